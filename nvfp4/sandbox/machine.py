"""Memory, threads and disk of this machine, and how much of them processes take (Linux)."""

import contextlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from nvfp4.records.files import kilobytes

unlimited = 1 << 62

_GROUPS = Path("/sys/fs/cgroup")


def memory_bytes(groups: Path = _GROUPS) -> int:
    """Return the bytes of memory of this machine, or of its container if that has less."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    limits += [_figure(each / "memory.max", unlimited) for each in _own(groups)]
    older = _own(groups, "memory")
    limits += [_figure(each / "memory.limit_in_bytes", unlimited) for each in older]
    return min(limits)


def left_bytes(groups: Path = _GROUPS) -> int:
    """Return the bytes of free memory, including reclaimable caches of files."""
    left = [kilobytes("/proc/meminfo").get("MemAvailable", unlimited)]
    for each in _own(groups):
        most = _figure(each / "memory.max", unlimited)
        if most < unlimited:
            taken = _figure(each / "memory.current", 0) - _kept_of_files(each / "memory.stat")
            left.append(max(0, most - taken))
    return min(left)


def left_threads(groups: Path = _GROUPS) -> int:
    """Return how many more threads this control group may start."""
    own = (*_own(groups), *_own(groups, "pids"))
    left = [
        _figure(each / "pids.max", unlimited) - _figure(each / "pids.current", 0) for each in own
    ]
    return max(0, min(left, default=unlimited))


def _own(groups: Path, controller: str = "") -> Iterator[Path]:
    """Return the control group of this process and those above it, as far as visible. controller:
    on a system with one tree for each controller."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controller in controllers.split(","):
                own = Path(path.lstrip("/"))
                yield from (groups / controller / each for each in (own, *own.parents))


def _figure(path: Path, otherwise: int) -> int:
    """Return the number in a file; `otherwise` if it is missing or is "max"."""
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text())
    return otherwise


def _kept_of_files(path: Path) -> int:
    """Return the bytes that a control group can reclaim before it is out of memory."""
    found = {}
    with contextlib.suppress(OSError, ValueError):
        found = {name: int(value) for name, value in map(str.split, path.read_text().splitlines())}
    return sum(found.get(name, 0) for name in ("active_file", "inactive_file", "slab_reclaimable"))


_ENTRY_BYTES = 32 << 10
"""Overhead charged for each file, as many files also take long to count."""

_DEEPEST = 64
"""Greatest depth of folders; a deeper folder counts as exceeding every limit."""

_ON_THEIR_WAY = re.compile(r"scm_fds:\s+[1-9]")


def threads(pid: int) -> int:
    """Return the number of threads of a process."""
    with contextlib.suppress(OSError):
        return os.stat(f"/proc/{pid}/task").st_nlink - 2
    return 0


def running_threads(pids: Iterable[int]) -> int:
    """Return the number of threads of these processes that run or wait for a core."""
    found = 0
    for thread in _entries(pids, "task"):
        with contextlib.suppress(OSError), open(thread.path + "/stat", "rb") as file:
            found += file.read().rpartition(b") ")[2][:1] == b"R"
    return found


def give_way(pids: Iterable[int]) -> None:
    """Limit all threads of these processes, and those they start, to otherwise idle cores. The
    processes cannot undo that."""
    for thread in _entries(pids, "task"):
        with contextlib.suppress(OSError):
            os.sched_setscheduler(int(thread.name), os.SCHED_IDLE, os.sched_param(0))


def open_files(pids: Iterable[int]) -> Iterator[os.stat_result]:
    """Yield the status of each open file of these processes, once for each descriptor."""
    for fd in _entries(pids, "fd"):
        with contextlib.suppress(OSError):
            yield os.stat(fd.path)


def _entries(pids: Iterable[int], name: str) -> Iterator[os.DirEntry[str]]:
    """Yield the entries of a folder of /proc for each process that is alive."""
    for pid in pids:
        with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/{name}") as entries:
            yield from entries


def resident_bytes(pid: int) -> int:
    """Return the bytes of a process's pages that no file on a disk backs."""
    found = kilobytes(f"/proc/{pid}/status")
    return found.get("RssAnon", 0) + found.get("RssShmem", 0)


def proportional_bytes(pid: int) -> int:
    """Return `resident_bytes` with only a share of each page that several processes share."""
    found = kilobytes(f"/proc/{pid}/smaps_rollup")
    names = ("Pss_Anon", "Pss_Shmem")
    return sum(found[name] for name in names) if set(names) <= set(found) else resident_bytes(pid)


def files_on_their_way(pids: Iterable[int], most: int) -> bool:
    """Whether a socket holds files that no process has received, which are charged to no process.
    Also true if more files are open than the limit `most`."""
    for number, fd in enumerate(_entries(pids, "fd")):
        if number >= most:
            return True
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.stat(fd.path).st_mode):
                told = Path(fd.path).parents[1] / "fdinfo" / fd.name
                if _ON_THEIR_WAY.search(told.read_text()):
                    return True
    return False


def sockets(pid: int) -> int:
    """Return the number of sockets in a process's network namespace; 0 if this one shares it."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        if not os.path.samefile(f"/proc/{pid}/ns/net", "/proc/self/ns/net"):
            # sockets: used 42
            return int(Path(f"/proc/{pid}/net/sockstat").read_text().split(maxsplit=3)[2])
    return 0


def size_bytes(folder: Path, enough: int = unlimited) -> int:
    """Return the bytes below a folder, counted until they exceed `enough`. A folder that is too
    deep or cannot be listed exceeds every limit."""
    taken = 0
    waiting = [(os.fspath(folder), 0)]
    while waiting and taken <= enough:
        path, depth = waiting.pop()
        if depth > _DEEPEST:
            return unlimited
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        found = entry.stat(follow_symlinks=False)
                        taken += found.st_blocks * 512 + _ENTRY_BYTES
                        if stat.S_ISDIR(found.st_mode):
                            waiting.append((entry.path, depth + 1))
                    if taken > enough:
                        break
        except (FileNotFoundError, NotADirectoryError):  # it has gone meanwhile
            continue
        except OSError:
            return unlimited
    return taken


def free_bytes(folder: Path, with_files: bool = False) -> int:
    """Return the free bytes of a folder's disk. with_files: add the overhead that ``size_bytes``
    charges, for each file that fits, so that empty files count too."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return 0
    files = found.f_favail if with_files else 0
    return found.f_bavail * found.f_frsize + files * _ENTRY_BYTES
