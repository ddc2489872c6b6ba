"""The turn of a process that is started before a GPU is free for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

VARIABLE = "NVFP4_TURN"
"""The number of a file that says when it is the process's turn."""


class Turn:
    """Given to a process that has loaded what takes seconds and waits. fd: for it to inherit, by
    the variable.
    """

    def __init__(self) -> None:
        self.fd, self._ours = os.pipe()

    def give(self) -> None:
        """Lets the process go on; one that has ended need not."""
        with suppress(BrokenPipeError):
            os.write(self._ours, b"!")

    def __enter__(self) -> Turn:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self.fd)
        os.close(self._ours)


def wait_for_turn(load: Callable[[], object]) -> bool:
    """Returns at once where nobody gives turns, else loads first. False where nobody will give one
    any more."""
    number = os.environ.pop(VARIABLE, None)
    if number is None:
        return True
    load()
    given = os.read(int(number), 1)
    os.close(int(number))
    return bool(given)
