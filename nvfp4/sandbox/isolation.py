"""Restrictions of a submission's process, as far as the system allows.

Applied before a process loads torch: threads and children that start later inherit it.
"""

import contextlib
import ctypes
import os
import resource
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

open_files = 4096
judge_open_files = 1 << 16
processes = 512
threads = 1 << 14  # of the user; does not bind root
own_threads = 1 << 13
output_bytes = 8 << 30
data_share = 0.8
_PENDING_SIGNALS = 1 << 12
"""Most pending timers and signals: the user's other programs need some of the user's limit."""

_set_parent_death_signal, _set_dumpable, _set_child_subreaper = 1, 4, 36  # PR_SET_...


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value)


def close_to_others(closed: bool = True) -> None:
    """Keep other processes of the same user from reading or tracing this one."""
    _prctl(_set_dumpable, not closed)


def adopt_orphans() -> None:
    """Make descendants whose parents end children of this process."""
    _prctl(_set_child_subreaper, 1)


def die_with_parent() -> None:
    """Let Linux kill this process when its parent ends."""
    _prctl(_set_parent_death_signal, signal.SIGKILL)


def move_to(folder: Path, environment: dict[str, str]) -> None:
    """Give this process another folder and another environment, temporary files included."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None


def children_of(pid: int) -> list[int]:
    """Return the children of a process, adopted ones included (Linux)."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.scandir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(task.path + "/children") as file:
                found += map(int, file.read().split())
    return found


def descendants(pid: int) -> list[int]:
    """Return all descendants of a process."""
    found = children_of(pid)
    for child in found:  # which grows
        found += children_of(child)
    return found


def stop_tree(root: int) -> list[int]:
    """Stop a process and its descendants; returns them, parents first."""
    stopped: list[int] = []
    while new := [each for each in (root, *descendants(root)) if each not in stopped]:
        for pid in new:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGSTOP)
        end = time.monotonic() + 1
        while any(map(_moves, new)) and time.monotonic() < end:
            time.sleep(0.0005)
        stopped += new
    return stopped


def _moves(pid: int) -> bool:
    """Return whether a thread of a process is not stopped yet, and may be within `fork`, whose
    child its parent's signal no longer reaches."""
    with contextlib.suppress(OSError):
        states = [Path(task, "stat").read_text() for task in os.scandir(f"/proc/{pid}/task")]
        return any(state.rpartition(")")[2][1] not in "TtZX" for state in states)
    return False


def kill_tree(process: Any) -> None:
    """Kill a session, given its leader as Popen, and all its descendants; wait for the leader."""
    tree = stop_tree(process.pid) if process.poll() is None else []
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    _kill(tree)
    process.wait()


def kill_children() -> None:
    """Kill every child of this process, adopted ones too (Linux)."""
    for _ in range(100):
        children = descendants(os.getpid())
        if not children:
            return
        _kill(children)


def _kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    for pid in pids:
        with contextlib.suppress(OSError):
            os.waitpid(pid, 0)


def allow_many_files() -> None:
    """Allow this process more open files than a submission. Linux sends no file to a process whose
    limit is below the number of its user's files in transit through sockets, and a submission can
    leave some there."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = judge_open_files if hard == resource.RLIM_INFINITY else min(judge_open_files, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def limit_resources() -> str:
    """Set resource limits and return them in words."""
    physical_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: open_files,
        resource.RLIMIT_FSIZE: output_bytes,
        resource.RLIMIT_NPROC: threads,
        resource.RLIMIT_DATA: int(data_share * physical_bytes),
        resource.RLIMIT_SIGPENDING: _PENDING_SIGNALS,
    }
    for kind, soft in limits.items():
        _, hard = resource.getrlimit(kind)
        within = soft if hard == resource.RLIM_INFINITY else min(soft, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(kind, (within, within))
    return (
        f"{data_share:.0%} of memory, {open_files} files, {output_bytes >> 30} GiB a file, "
        f"{processes} processes"
    )
