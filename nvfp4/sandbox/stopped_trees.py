"""Processes that are stopped and go on, over and over, with all that they have started."""

import os
import signal
from contextlib import suppress
from pathlib import Path

from nvfp4.sandbox.isolation import stop_tree


class StoppedTree:
    """A process with its descendants, which may become more whenever it goes on."""

    def __init__(self) -> None:
        self._stopped: list[int] = []

    def stop(self, root: int) -> None:
        """Until ``go_on``, whatever groups they are in."""
        self._stopped = stop_tree(root)

    def go_on(self) -> None:
        """Those that were stopped and still live."""
        for pid in self._stopped:
            with suppress(OSError):  # it has ended
                os.kill(pid, signal.SIGCONT)


class Adopted:
    """Processes that outlive their parents and become this one's children, Linux only. They never
    go on."""

    def __init__(self) -> None:
        """Those that are children now are none of them."""
        self._others = self._children()

    def stop(self) -> None:
        """Those that have come since."""
        for pid in self._children() - self._others:
            stop_tree(pid)

    @staticmethod
    def _children() -> set[int]:
        """Of the main thread, which is the one that adopts; the others' take milliseconds."""
        with suppress(OSError):
            main = Path(f"/proc/self/task/{os.getpid()}/children")
            return {int(child) for child in main.read_text().split()}
        return set()
