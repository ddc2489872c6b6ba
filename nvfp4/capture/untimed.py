"""What stands where a program expects a time, and nothing can be timed."""

from __future__ import annotations

from typing import Any

from nvfp4.records.launch_errors import NeedsGpu

_LONGEST = 1e6
"""Whoever looks for the shortest time begins with this much or more."""


def no_time() -> NeedsGpu:
    """The error where a number is wanted: one from here would be taken for a time."""
    return NeedsGpu(
        "no time can be measured: this machine has no GPU, kernels run in an emulator",
        hint="choose a configuration by the shape where no time can be measured",
    )


class Untimed:
    """A time that was not measured, and what is computed from one.

    A search for the best takes it, and the first of several: it comes before whatever a search
    begins with, in either direction, and is no better than another. It reads "not timed", and it
    is no number: float() and comparisons with numbers that a search does not begin with raise
    NeedsGpu.
    """

    def _same(self, *_: Any) -> Untimed:
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _same
    __truediv__ = __rtruediv__ = __pow__ = __neg__ = __abs__ = __round__ = _same

    def __lt__(self, other: Any) -> bool:
        return self._before(other, sought=-1)

    def __gt__(self, other: Any) -> bool:
        return self._before(other, sought=1)

    def __le__(self, other: Any) -> bool:
        return isinstance(other, Untimed) or self < other

    def __ge__(self, other: Any) -> bool:
        return isinstance(other, Untimed) or self > other

    def _before(self, other: Any, sought: int) -> bool:
        """Whether a search that has found `other` so far takes this one. sought: 1 for the most."""
        if isinstance(other, Untimed):
            return False
        if other >= _LONGEST:
            return sought < 0
        if other <= 0:
            return sought > 0
        raise no_time()

    def __float__(self) -> float:
        raise no_time()

    __int__ = __index__ = __float__

    def __repr__(self) -> str:
        return "not timed"

    def __format__(self, spec: str) -> str:
        return repr(self)
