"""Cores and memory of this machine that are there to be used."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def core_count() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def free_bytes() -> int:
    """Memory that is available, of the machine and of the container; unknown is plenty."""
    free = 1 << 62
    with contextlib.suppress(OSError):
        found = re.search(r"^MemAvailable: *(\d+) kB", Path("/proc/meminfo").read_text(), re.M)
        free = int(found.group(1)) << 10 if found else free
    with contextlib.suppress(OSError, ValueError):  # "max"
        free = min(free, int(_CGROUP_LIMIT.read_text()))
    return free
