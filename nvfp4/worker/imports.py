"""What a submission can import."""

import os
import sys
from pathlib import Path


def import_packages_only() -> None:
    """Let this process import from its folder, where task.py is, and what is installed: other
    folders of PYTHONPATH are the user's own, which no contest has."""
    named = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    own = {str(path) for path in map(Path, named) if not _has_packages(path)}
    sys.path[:] = [os.getcwd(), *(each for each in sys.path if each.rstrip("/") not in own)]


def _has_packages(path: Path) -> bool:
    """Return whether packages are installed in a folder, or in one above, as by `pip --target`."""
    return any(next(at.glob("*.dist-info"), None) for at in (path, *path.parents))
