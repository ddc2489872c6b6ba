"""What this machine has for all that runs on it: the container's share where that is less."""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

unlimited = 1 << 62

_GROUPS = Path("/sys/fs/cgroup")

_lines = re.compile(r"^(\w+):\s+(\d+) kB", re.MULTILINE)


def memory_bytes(groups: Path = _GROUPS) -> int:
    """Of all that runs here."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    limits += [_figure(each / "memory.max", unlimited) for each in _own(groups)]
    limits += [
        _figure(each / "memory.limit_in_bytes", unlimited) for each in _own(groups, "memory")
    ]
    return min(limits)


def left_bytes(groups: Path = _GROUPS) -> int:
    """Of memory, when what is only kept of files has gone."""
    left = [kilobytes("/proc/meminfo").get("MemAvailable", unlimited)]
    for each in _own(groups):
        most = _figure(each / "memory.max", unlimited)
        if most < unlimited:
            taken = _figure(each / "memory.current", 0) - _kept_of_files(each / "memory.stat")
            left.append(max(0, most - taken))
    return min(left)


def left_threads(groups: Path = _GROUPS) -> int:
    """How many more may start here."""
    return min(
        (
            max(0, _figure(each / "pids.max", unlimited) - _figure(each / "pids.current", 0))
            for each in (*_own(groups), *_own(groups, "pids"))
        ),
        default=unlimited,
    )


def kilobytes(path: str) -> dict[str, int]:
    """The figures of a file of /proc, in bytes, by name."""
    with contextlib.suppress(OSError), open(path) as file:
        return {name: int(value) << 10 for name, value in _lines.findall(file.read())}
    return {}


def _own(groups: Path, controller: str = "") -> Iterator[Path]:
    """The control group of this process and those above it, as far as they can be seen.
    controller: of a system that has a tree for each."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controller in controllers.split(","):
                own = Path(path.lstrip("/"))
                yield from (groups / controller / each for each in (own, *own.parents))


def _figure(path: Path, otherwise: int) -> int:
    """What a file holds, which may be missing or hold "max"."""
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text())
    return otherwise


def _kept_of_files(path: Path) -> int:
    """Bytes that a control group would give up before it is out of memory."""
    found = {}
    with contextlib.suppress(OSError, ValueError):
        found = {name: int(value) for name, value in map(str.split, path.read_text().splitlines())}
    return sum(found.get(name, 0) for name in ("active_file", "inactive_file", "slab_reclaimable"))
