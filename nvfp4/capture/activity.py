"""The current activity of this process, for progress displays."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_tell: Callable[[str], None] | None = None
_current = "running"


def tell(listener: Callable[[str], None] | None) -> None:
    """Call `listener` with a word whenever the activity changes; None stops that."""
    global _tell
    _tell = listener


@contextmanager
def busy(word: str) -> Iterator[None]:
    """Set the activity of a with block: importing, compiling, emulating or running."""
    before = _current
    _change(word)
    try:
        yield
    finally:
        _change(before)


def _change(word: str) -> None:
    global _current
    if word != _current and _tell is not None:
        _tell(word)
    _current = word
