"""Whose code is on the stack."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

PACKAGES = {"site-packages", "dist-packages"}
"""Folders of what is installed, and not of a submission."""


def users_frames() -> Iterator[FrameType]:
    """The frames that are neither ours nor of a package, the innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        own = frame.f_globals.get("__name__", "").startswith("nvfp4.")
        if not own and not PACKAGES & set(Path(frame.f_code.co_filename).parts):
            yield frame
        frame = frame.f_back
