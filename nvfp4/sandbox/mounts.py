"""The file system as a submission's process sees it, in its own mount namespace.

Everything is read-only, except a few folders. /tmp, /run and /dev are new, so that they contain no
files or sockets of others.
"""

import contextlib
import ctypes
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

_nosuid, _nodev, _noexec, _bind, _recursive, _private = 2, 4, 8, 1 << 12, 1 << 14, 1 << 18
_mount_setattr = 442  # the same on every architecture
_at_fdcwd, _at_recursive, _read_only = -100, 0x8000, 1

_private_bytes = 1 << 30
"""Size of /tmp and of /dev/shm each; both are kept in memory."""

_PRIVATE_FILES = 1 << 18
"""Most files in each of them, as empty files also take memory."""

_private_size = f"mode=1777,size={_private_bytes},nr_inodes={_PRIVATE_FILES}"

_few = "mode=755,size=1048576"
"""Options of a small file system for folders and links."""

_hidden = ("/tmp", "/var/tmp", "/run", "/var/run")
_devices = ("null", "zero", "full", "random", "urandom", "tty")
_gpus = ("nvidia*", "dxg")
_links = {"fd": "fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
_settings = ("sys", "sysrq-trigger", "irq", "bus", "fs")
"""Folders and files below /proc which root could change even without rights over others."""

_libraries_in_run = ("/run/opengl-driver", "/run/current-system", "/run/booted-system")


class MountError(OSError):
    """Linux refused a mount, or new namespaces."""


def show_only(
    writable: dict[Path, Path],
    private: list[Path],
    sockets: list[str],
    fresh_proc: bool,
    gpus: bool,
) -> None:
    """Mount this view in the process's mount namespace, which must be its own.

    writable: see ``namespaces.enter``. private: folders that are empty except for what is writable.
    sockets: files to hide. fresh_proc: whether this process has its own pid namespace. gpus:
    whether there are any. The current folder stays. Raises MountError.
    """
    folder = Path.cwd()
    kept = _opened(hidden_program_folders())
    opened_once = _opened(writable.values())
    given = {path: opened_once[other] for path, other in writable.items() if other in opened_once}
    names = (*_devices, *(_gpus if gpus else ()))
    devices = _opened(path for name in names for path in Path("/dev").glob(name))
    _mount(None, "/", None, _recursive | _private)
    _set_read_only("/", True, recursive=True)
    for name in _hidden:
        if os.path.isdir(name) and not os.path.islink(name):
            _mount("tmpfs", name, "tmpfs", _nosuid | _nodev, _private_size)
    for path in filter(_is_hidden, private):  # or they could be made here
        path.mkdir(parents=True, exist_ok=True)
    covered = [str(path) for path in private if os.path.isdir(path)]  # and it can be reached
    for name in covered:
        _mount("tmpfs", name, "tmpfs", _nosuid | _nodev, _few)
    for path, fd in kept.items():
        _bind_again(path, fd)
    for path, fd in given.items():
        _bind_again(path, fd)
        _set_read_only(str(path), False)
    for name in covered:
        _set_read_only(name, True)
    # /dev with a few devices and a new /dev/shm.
    _mount("tmpfs", "/dev", "tmpfs", _nosuid | _noexec, _few)
    for path, fd in devices.items():
        _bind_again(path, fd)
    for name, target in _links.items():
        os.symlink(f"/proc/self/{target}", f"/dev/{name}")
    os.mkdir("/dev/shm")
    _mount("tmpfs", "/dev/shm", "tmpfs", _nosuid | _nodev, _private_size)
    _set_read_only("/dev", True)
    if fresh_proc:
        _mount("proc", "/proc", "proc", _nosuid | _nodev | _noexec)
        for name in _settings:
            setting = f"/proc/{name}"
            if os.path.exists(setting):
                _mount(setting, setting, None, _bind | _recursive)
                _set_read_only(setting, True, recursive=True)
    for socket in sockets:
        with contextlib.suppress(MountError):  # of a folder that others cannot enter
            _mount("/dev/null", socket, None, _bind)
    for opened in (kept, opened_once, devices):
        for fd in opened.values():
            os.close(fd)
    os.chdir(folder)


def _opened(paths: Iterable[Path]) -> dict[Path, int]:
    """Return each path that exists, with a descriptor that stays valid under a later mount."""
    found = {}
    for path in paths:
        with contextlib.suppress(OSError):
            found[path] = os.open(path, os.O_PATH | os.O_CLOEXEC)
    return found


def hidden_program_folders() -> list[Path]:
    """Return the folders of Python's modules and programs and of system libraries that lie below
    hidden folders."""
    script = os.path.dirname(os.path.abspath(sys.argv[0]))
    places = [sys.prefix, sys.base_prefix, os.path.dirname(sys.executable), script, *sys.path]
    places += [str(Path(__file__).resolve().parents[2]), *_libraries_in_run]
    real = sorted(filter(_is_hidden, {Path(os.path.realpath(place)) for place in places}))
    # A folder inside another is included with it.
    return [path for path in real if not any(other in path.parents for other in real)]


def _is_hidden(path: Path) -> bool:
    return any(Path(hidden) in path.parents for hidden in _hidden)


def sockets_of_others() -> list[str]:
    """Return the names of this network namespace's sockets, except in hidden folders, and all
    sockets and named pipes beside them: a socket may have been linked or renamed since it was
    bound."""
    with open("/proc/net/unix", encoding="utf-8", errors="surrogateescape") as file:
        next(file, None)  # names of columns
        fields = (line.rstrip("\n").split(None, 7) for line in file)
        names = {each[7] for each in fields if len(each) == 8 and not each[7].startswith("@")}
    found = {name for name in names if name.startswith("/")}
    places, folders = {"/"}, {os.path.dirname(name) for name in names}
    if len(found) < len(names):  # others are relative to the folder of some process
        for each in Path("/proc").glob("[0-9]*/cwd"):
            with contextlib.suppress(OSError):
                places.add(os.readlink(each))
    for folder in {os.path.realpath(Path(place, each)) for place in places for each in folders}:
        if not _is_hidden(Path(folder, "any")):
            with contextlib.suppress(OSError), os.scandir(folder) as entries:
                # These are known from the listing itself, without a call that may fail for one.
                odd = (e for e in entries if not (e.is_symlink() or e.is_file() or e.is_dir()))
                found |= {e.path for e in odd if Path(e).is_socket() or Path(e).is_fifo()}
    return sorted(path for path in found if not _is_hidden(Path(path)))


def _bind_again(path: Path, fd: int) -> None:
    """Bind the file of a descriptor to its path again, which a new mount hides."""
    source = f"/proc/self/fd/{fd}"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir() if os.path.isdir(source) else path.touch()
    _mount(source, str(path), None, _bind | _recursive)


def _mount(
    source: str | None, target: str, kind: str | None, flags: int, options: str | None = None
) -> None:
    """Call mount(2). Raises MountError."""
    words = [word and os.fsencode(word) for word in (source, target, kind, options)]
    arguments = (*words[:3], ctypes.c_ulong(flags), words[3])
    call_libc(lambda libc: libc.mount(*arguments), f"mount {target}")


def _set_read_only(target: str, value: bool, recursive: bool = False) -> None:
    """Set whether a mount, and those below it if recursive, is read-only. Raises MountError."""
    attributes = (ctypes.c_uint64 * 4)(_read_only * value, _read_only * (not value), 0, 0)
    flags = ctypes.c_long(_at_recursive if recursive else 0)
    place = ctypes.c_long(_at_fdcwd), os.fsencode(target), flags
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    arguments = (ctypes.c_long(_mount_setattr), *place, attributes, size)
    call_libc(lambda libc: libc.syscall(*arguments), f"mount_setattr {target}")


def call_libc(function: Callable[[ctypes.CDLL], int], what: str) -> None:
    """Call a function of the C library that sets errno. Raises MountError if it fails."""
    if function(ctypes.CDLL(None, use_errno=True)) != 0:
        number = ctypes.get_errno()
        raise MountError(number, f"{what}: {os.strerror(number)}")
