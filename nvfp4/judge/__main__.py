"""``python -m nvfp4.judge MODE ARGUMENTS...``: the judge as a process."""

import sys

from nvfp4.judge.entry import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
