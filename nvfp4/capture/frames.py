"""Classification of calling code: a submission's, a package's, or ours."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from traceback import walk_stack
from types import FrameType

_PACKAGES = {"site-packages", "dist-packages"}
_LIBRARY = os.path.dirname(os.__file__)


def is_installed(path: str | Path) -> bool:
    """Whether a file is of a package, and not of a submission."""
    return not _PACKAGES.isdisjoint(Path(path).parts)


def users_frames() -> Iterator[FrameType]:
    """Yield the frames that are neither ours nor of a package or Python's library, the innermost
    first."""
    for frame, _ in walk_stack(sys._getframe(1)):
        path = frame.f_code.co_filename
        own = frame.f_globals.get("__name__", "").startswith("nvfp4.") or path.startswith(_LIBRARY)
        if not own and not is_installed(path):
            yield frame


def users_line() -> tuple[str | None, int | None]:
    """File and line of the user's code on the stack."""
    places = ((frame.f_code.co_filename, frame.f_lineno) for frame in users_frames())
    return next((place for place in places if os.path.isabs(place[0])), (None, None))


def users_file() -> Path:
    """Return the file of the user's code on the stack, or the program."""
    return Path(next((frame.f_code.co_filename for frame in users_frames()), sys.argv[0]))
