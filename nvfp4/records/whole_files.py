"""Files that others find whole or not at all."""

from __future__ import annotations

import os
import pathlib


def write_whole(path: pathlib.Path, text: str) -> None:
    """Replaces a file in one step, so that an interruption leaves the old or the new one."""
    target = path.resolve()
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        if target.exists():
            beside.chmod(target.stat().st_mode & 0o777)
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)
