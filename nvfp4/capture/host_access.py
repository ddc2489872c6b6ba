"""Who is told what host code does to device memory, beside launches."""

from __future__ import annotations

from typing import Protocol

from nvfp4.capture import stream_order


class Observer(Protocol):
    """Both may raise, which the function that reads or writes then does."""

    def reads(self, address: int, nbytes: int) -> None:
        """Host code is about to use the contents of device memory."""

    def wrote(self, address: int, nbytes: int) -> None:
        """Host code has set these bytes, be it to what they were."""


observer: Observer | None = None
"""There is one at most."""


def observe(one: Observer | None) -> None:
    """Tell this observer from now on, None for nobody."""
    global observer
    observer = one


def reads(address: int, nbytes: int) -> None:
    """To be called before the contents are used."""
    stream_order.interrupt()
    if observer is not None and nbytes:
        observer.reads(address, nbytes)


def wrote(address: int, nbytes: int) -> None:
    """To be called after bytes were set."""
    stream_order.interrupt()
    if observer is not None and nbytes:
        observer.wrote(address, nbytes)
