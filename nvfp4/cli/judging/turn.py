"""A judgement that is started before a GPU is free for it loads what takes seconds, then waits."""

from __future__ import annotations

import contextlib
import os
from types import TracebackType

from nvfp4.cli.errors import SetupError
from nvfp4.cli.judging.bot import Bot

_VARIABLE = "NVFP4_TURN"
"""The number of a file that says when it is its turn."""


class Turn:
    """That of another process. fd: for it to inherit, with the variable."""

    def __init__(self) -> None:
        self.fd, self._ours = os.pipe()
        self.variable = {_VARIABLE: str(self.fd)}

    def give(self) -> None:
        """Lets the process go on; one that has ended need not."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._ours, b"!")

    def __enter__(self) -> Turn:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self.fd)
        os.close(self._ours)


def wait_for_turn(bot: Bot) -> None:
    """Returns at once where nobody gives turns. Raises SetupError where nobody will any more."""
    number = os.environ.pop(_VARIABLE, None)
    if number is None:
        return
    bot.prepare()
    given = os.read(int(number), 1)
    os.close(int(number))
    if not given:
        raise SetupError("the batch that this belongs to has ended", "Start it again.")
