"""Namespaces of a submission: pid, ipc, mount, network, host name and user.

the judge └ waits for the status, outside of every namespace, and measures what the others use └
makes the namespaces └ pid 1: mounts what may be seen, then waits └ the submission

The submission cannot see, signal or trace what is outside. When one of the chain ends, Linux kills
what is below it, and all mounts go with it.
"""

import contextlib
import ctypes
import os
import resource
import select
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from nvfp4.sandbox import isolation
from nvfp4.sandbox.mounts import call_libc, show_only, sockets_of_others
from nvfp4.sandbox.totals import Totals, look_s

_new_user, _new_mounts, _new_pids = 0x10000000, 0x00020000, 0x20000000
_new_ipc, _new_net, _new_names = 0x08000000, 0x40000000, 0x04000000
_without_pids = _new_user | _new_mounts | _new_ipc | _new_net | _new_names

_drop_from_bounding_set, _ambient, _clear_all_ambient = 24, 47, 4  # PR_CAPBSET_DROP, ...
_no_new_privileges = 38
_capability_version_3 = 0x20080522

_ready = b"ready\n"


class _NotPossible(Exception):
    """This system does not allow it; ``str`` says why."""


def uses_gpu() -> bool:
    """Return whether a submission that is started with this environment can use a GPU."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        return False
    return any(any(Path("/dev").glob(name)) for name in ("nvidia[0-9]*", "dxg"))


def enter(writable: dict[Path, Path], private: list[Path]) -> str:
    """Continue in a process with its own namespaces, in which only some folders are writable, each
    mounted at another path or at its own. private: folders of which only these are visible.

    Returns what is in force there, "none: ..." where nothing is possible. Call it before the first
    thread starts. The calling process stays inside: it waits for the one that returns, and ends as
    that one does.
    """
    isolation.die_with_parent()
    reasons = []
    # CUDA needs a /proc that may be written, which only a process with pids of its own can mount.
    for with_pids in (True,) if uses_gpu() else (True, False):
        try:
            _continue_inside(writable, private, with_pids)
        except _NotPossible as error:
            reasons.append(str(error))
            continue
        drop_capabilities()
        if with_pids:
            return "own pid, ipc, mount, network and user namespaces"
        return f"own ipc, mount, network and user namespaces; no own pids: {reasons[0]}"
    how = f"none: {reasons[-1]}"
    _continue_watched(writable)
    if uses_gpu():
        with contextlib.suppress(OSError):
            _unshare(_new_user | _new_net | _new_names)
            how = f"own network and user namespaces; no others: {reasons[-1]}"
    drop_capabilities()
    return how


def drop_capabilities() -> None:
    """Drop every capability of root, also for programs started later."""
    libc = ctypes.CDLL(None)
    for capability in range(64):
        libc.prctl(_drop_from_bounding_set, capability, 0, 0, 0)
    libc.prctl(_ambient, _clear_all_ambient, 0, 0, 0)
    libc.capset((ctypes.c_uint32 * 2)(_capability_version_3, 0), (ctypes.c_uint32 * 6)())
    libc.prctl(_no_new_privileges, 1, 0, 0, 0)


def _continue_inside(writable: dict[Path, Path], private: list[Path], with_pids: bool) -> None:
    """Return in the innermost process only. Raises _NotPossible, with nothing changed."""
    read_fd, write_fd = os.pipe()
    outermost, sockets = os.getpid(), sockets_of_others()
    child = os.fork()
    if child:
        os.close(write_fd)
        _wait_outside(child, read_fd, writable)
        return
    os.close(read_fd)
    _begin_child(outermost)
    try:
        _unshare(_without_pids | (_new_pids if with_pids else 0))
        if with_pids:
            _become_child(_end_as, keep=-1)
            isolation.die_with_parent()
        show_only(writable, private, sockets, fresh_proc=with_pids, gpus=uses_gpu())
        if uses_gpu():
            _refuse_without_cuda()
        os.write(write_fd, _ready)
        _become_child(lambda status: _report(write_fd, status), keep=write_fd)
        os.close(write_fd)
    except OSError as error:
        os.write(write_fd, str(error).encode())
        os._exit(1)


def _refuse_without_cuda() -> None:
    """Raise OSError if CUDA is installed but does not start in the namespaces."""
    child = os.fork()
    if child == 0:  # CUDA would not survive a fork
        with contextlib.suppress(OSError):
            os._exit(1 if ctypes.CDLL("libcuda.so.1").cuInit(0) else 0)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        raise OSError("CUDA does not start in namespaces of its own")


def _continue_watched(writable: dict[Path, Path]) -> None:
    """Return in a child; this process watches it and ends with its status."""
    outermost, files = os.getpid(), open_files()
    child = os.fork()
    if child == 0:
        _begin_child(outermost)
        return
    isolation.adopt_orphans()  # or they would not be watched
    close_all_but([2], files)
    with contextlib.suppress(OSError):  # of Linux before 5.3
        _watch(child, os.pidfd_open(child), writable)
    _, status = os.waitpid(child, 0)
    _end_as(status)


def _begin_child(parent: int) -> None:
    """Begin a child that dies with its parent, in another session than the parent, which watches
    it, as Linux may give each session a share of the cores."""
    isolation.die_with_parent()
    if os.getppid() != parent:  # it ended before that
        os._exit(1)
    with contextlib.suppress(OSError):  # where it leads one already
        os.setsid()


def _watch(child: int, ended: int, writable: dict[Path, Path]) -> None:
    """Wait until `ended` is readable; kill a child that exceeds a limit, with its descendants."""
    totals = Totals(child, list(writable.values()), gives_way=not uses_gpu())
    while not select.select([ended], [], [], look_s)[0]:
        why = totals.exceeded()
        if why:
            for pid in reversed(isolation.stop_tree(child)):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(OSError):
                os.write(2, f"it was stopped: {why}\n".encode())
            return


def _wait_outside(child: int, read_fd: int, writable: dict[Path, Path]) -> None:
    """End with the status of the innermost process. Raises _NotPossible if it never started."""
    said = os.read(read_fd, 4096)
    if not said.startswith(_ready):
        os.close(read_fd)
        os.waitpid(child, 0)
        raise _NotPossible(said.decode("utf-8", "replace") or "a process ended early")
    close_all_but([read_fd, 2], open_files())
    isolation.adopt_orphans()
    said = said.removeprefix(_ready)
    if not said:
        _watch(child, read_fd, writable)
        said = os.read(read_fd, 4096)
    _, status = os.waitpid(child, 0)
    _end_as(int(said) if said else status)


def _end_as(status: int) -> NoReturn:
    """End with the status of a child."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        with contextlib.suppress(OSError):  # of SIGKILL
            signal.signal(number, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


def _become_child(ended: Callable[[int], None], keep: int) -> None:
    """Continue in a child. The parent closes all files but one, waits, then calls ``ended``."""
    files = open_files()  # before the child replaces /proc, in which its parent may not be
    child = os.fork()
    if child == 0:
        return
    try:
        close_all_but([keep], files)
        while True:  # pid 1 inherits orphans
            pid, status = os.wait()
            if pid == child:
                ended(status)
    finally:
        os._exit(1)


def _report(write_fd: int, status: int) -> None:
    os.write(write_fd, str(status).encode())
    os._exit(0)


def open_files() -> list[int]:
    """Return the descriptors of this process."""
    return [int(name) for name in os.listdir("/proc/self/fd")]


def close_all_but(kept: Sequence[int], files: list[int]) -> None:
    """Close `files` except those in `kept`; some may be closed already."""
    for each in set(files) - set(kept):
        with contextlib.suppress(OSError):
            os.close(each)


def _unshare(flags: int) -> None:
    """Enter new namespaces, with the same user and group. Raises OSError."""
    user, group = os.geteuid(), os.getegid()
    call_libc(lambda libc: libc.unshare(flags), "unshare")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
