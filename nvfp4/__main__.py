"""``python -m nvfp4`` is ``nvfp4``."""

import contextlib
import os
import sys

if __name__ == "__main__":
    with contextlib.suppress(FileNotFoundError):  # the folder may be gone
        if sys.path[0] == os.getcwd():  # where files may have the names of modules
            del sys.path[0]
    from nvfp4.cli.main import main

    main()
