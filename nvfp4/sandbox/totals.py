"""What a submission's processes take together, which no limit of a single process bounds.

A process outside of the confinement looks now and then (``namespaces.enter``), so that a total can
be exceeded for a moment.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

from nvfp4.records.options import options_of_environment
from nvfp4.sandbox.isolation import data_share, descendants, own_threads

look_s = 0.2

disk_bytes = 8 << 30
"""Of scratch and of the cache; half of what is free where that is less."""

_noticed_bytes = 128 << 20
"""So much less must be free before anybody adds up what folders hold."""

_least_left_bytes = 512 << 20
"""Of the machine's memory, or half of what was left at first: memory that nobody is charged for,
such as that of files which are on their way through a socket, must leave as much."""

_entry_bytes = 4 << 10
"""Of a file beside its contents."""

unlimited = 1 << 62

_deepest = 64
"""Of folders in folders. What lies deeper is not looked at: there is too much of it."""

_lines = re.compile(r"^(\w+):\s+(\d+) kB", re.MULTILINE)


class Totals:
    """Of the processes below one, and of the folders that they can write."""

    def __init__(self, root: int, writable: list[Path]) -> None:
        self._root, self._writable = root, writable
        self._least_left_bytes = min(_least_left_bytes, _left_bytes() // 2)
        self._free_bytes = [_free_bytes(folder) for folder in writable]
        self._most_bytes = (options_of_environment().limit_gib << 30) or unlimited
        spare = (free // 2 for free in self._free_bytes)
        self._disk_bytes = min(disk_bytes, self._most_bytes, *spare)

    def exceeded(self) -> str | None:
        """Which limit is exceeded, in a sentence."""
        pids = [self._root, *descendants(self._root)]
        return _crowd(pids) or self._memory(pids) or self._disk()

    def _memory(self, pids: list[int]) -> str | None:
        most = min(int(data_share * memory_bytes()), self._most_bytes)
        unlinked = _unlinked_bytes(pids)
        taken = unlinked + sum(map(_resident_bytes, pids))
        if taken > most:  # pages that forks share may count for each of them
            taken = unlinked + sum(map(_proportional_bytes, pids))
        if taken > most:
            return f"its processes took {_gib(taken)} of memory, of {_gib(most)} that they may take"
        left = _left_bytes()
        if left < self._least_left_bytes:
            return f"this machine has {_gib(left)} of memory left"
        return None

    def _disk(self) -> str | None:
        free = [_free_bytes(folder) for folder in self._writable]
        if all(
            before - now < _noticed_bytes
            for before, now in zip(self._free_bytes, free, strict=True)
        ):
            return None
        self._free_bytes = free
        taken = sum(size_bytes(folder, self._disk_bytes) for folder in self._writable)
        if taken > self._disk_bytes:
            return f"its files took more than {_gib(self._disk_bytes)}"
        return None


def _crowd(pids: list[int]) -> str | None:
    running = sum(map(_threads, pids))
    if running <= own_threads:
        return None
    return f"its processes had {running} threads, of {own_threads} that they may have"


def _threads(pid: int) -> int:
    with contextlib.suppress(OSError):
        return os.stat(f"/proc/{pid}/task").st_nlink - 2
    return 0


def memory_bytes() -> int:
    """Of this machine, or of the container."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [physical]
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):  # "max" is no number
            limits.append(int(Path("/sys/fs/cgroup", name).read_text()))
    return min(limits)


def _left_bytes() -> int:
    """Of the machine's memory."""
    return _kilobytes("/proc/meminfo").get("MemAvailable", unlimited)


def size_bytes(folder: Path, enough: int = unlimited) -> int:
    """What lies below a folder takes, counted until it is more than enough. Folders that are too
    deep, or that nobody may list, are more than any limit."""
    taken = 0
    waiting = [(os.fspath(folder), 0)]
    while waiting and taken <= enough:
        path, depth = waiting.pop()
        if depth > _deepest:
            return unlimited
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        found = entry.stat(follow_symlinks=False)
                        taken += found.st_blocks * 512 + _entry_bytes
                        if stat.S_ISDIR(found.st_mode):
                            waiting.append((entry.path, depth + 1))
                    if taken > enough:
                        break
        except (FileNotFoundError, NotADirectoryError):  # it has gone meanwhile
            continue
        except OSError:
            return unlimited
    return taken


def _free_bytes(folder: Path) -> int:
    try:
        found = os.statvfs(folder)
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize


def _unlinked_bytes(pids: Iterable[int]) -> int:
    """Of files that have no name but are open: memory of memfds, and what else is deleted."""
    found: dict[tuple[int, int], int] = {}
    for pid in pids:
        with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as fds:
            for fd in fds:
                with contextlib.suppress(OSError):
                    each = os.stat(fd.path)
                    if stat.S_ISREG(each.st_mode) and not each.st_nlink:
                        found[each.st_dev, each.st_ino] = each.st_blocks * 512
    return sum(found.values())


def _resident_bytes(pid: int) -> int:
    """Of a process, pages that belong to no file of a disk."""
    found = _kilobytes(f"/proc/{pid}/status")
    return found.get("RssAnon", 0) + found.get("RssShmem", 0)


def _proportional_bytes(pid: int) -> int:
    """The same, and of a page that several processes have, a share."""
    found = _kilobytes(f"/proc/{pid}/smaps_rollup")
    names = ("Pss_Anon", "Pss_Shmem")
    return sum(found[name] for name in names) if set(names) <= set(found) else _resident_bytes(pid)


def _kilobytes(path: str) -> dict[str, int]:
    """The figures of a file of /proc, in bytes, by name."""
    with contextlib.suppress(OSError), open(path) as file:
        return {name: int(value) << 10 for name, value in _lines.findall(file.read())}
    return {}


def _gib(nbytes: float) -> str:
    return f"{nbytes / 2**30:.1f} GiB"
