"""``python -m nvfp4`` is ``nvfp4``."""

import os
import sys

if __name__ == "__main__":
    if sys.path[0] == os.getcwd():  # where files may have the names of modules
        del sys.path[0]
    from nvfp4.cli.main import main

    main()
