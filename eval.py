"""The judge for the contest's bot: ``python3 eval.py MODE CASEFILE``. It needs nvfp4 installed.

MODE: test, benchmark, leaderboard or profile. POPCORN_FD is the pipe that takes the results.
"""

import sys

if __name__ == "__main__":
    del sys.path[0]  # a submission has run in this folder, and may have left a torch.py
    try:
        from nvfp4.judge.entry import main
    except ModuleNotFoundError as error:
        if error.name != "nvfp4":
            raise
        print("eval.py needs nvfp4 installed: pip install nvfp4", file=sys.stderr)
        sys.exit(2)
    sys.exit(main(sys.argv[1:]))
