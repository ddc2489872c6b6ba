"""A judgement of nothing on the terminal that this process has, for ``test_screens``.

    python judgement.py FD

Writes a line to FD, the name of the moment, whenever the screen is worth a look, and goes on when
it reads one.
"""

import sys

from nvfp4.cli.display.console import new_console
from nvfp4.cli.display.progress import observed
from nvfp4.cli.display.render import show
from screens.verdicts import Clock, play, verdicts


def main(fd: int) -> None:
    console, clock = new_console(), Clock()

    with open(fd, "r+b", buffering=0) as told:

        def look(moment: str) -> None:
            sys.stdout.flush()
            told.write(f"{moment}\n".encode())
            told.readline()

        with observed(console, clock) as observer:
            for moment in play(observer, clock):
                look(moment)
        show(console, verdicts()["emulated-passed"])
        look("over")


if __name__ == "__main__":
    main(int(sys.argv[1]))
