"""Compilers' caches, which hold code: each submission has its own, so that none runs another's.

A new one begins as a copy of what trusted code has compiled (``capture.cuda.build`` as a program):
a worker can write its own copy only.
"""

import atexit
import contextlib
import fcntl
import hashlib
import json
import math
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from platformdirs import user_data_path

from nvfp4.records.files import clear, open_plain_file, write_whole
from nvfp4.records.options import Options
from nvfp4.records.processes import FOLDER_VARIABLE, caches_home, passed_on
from nvfp4.sandbox.machine import size_bytes

kept_s = 14 * 24 * 3600.0
kept_bytes = 4 << 30
kept_each_bytes = 1 << 30
"""Largest cache of one submission; a larger one is deleted after the judgement."""

kept_trusted_bytes = 64 << 20
"""Largest cache of the emulator's own machine code. One version takes 3 MiB."""

MISSED_LOOPS = "missed.txt"
"""File of that cache: the loops that the next executor compiles, see `executor.machine_code`."""

most_missed_bytes = 1 << 16

lock_s = 90.0
"""Seconds to wait for another judgement, which may be building the files of all extensions."""

_private_variable = "NVFP4_PRIVATE"
_numba = "NUMBA_CACHE_DIR"
_to_trim: set[Path] = set()

_EARLIER_VARIABLE = "NVFP4_EARLIER_CACHE"
_BEGAN_S = time.time()
"""This process, or the server that has forked it, began before any process of the submission."""

_most_earlier_bytes = 256 << 20
_listed_s = 24 * 3600.0
"""No judgement takes longer."""


def cache_variables(submission: Path, scratch: Path, emulates: bool = True) -> dict[str, str]:
    """Return variables that direct temporary files to scratch and compilers' caches to the
    submission's folder, which is created if needed. emulates: whether extensions are built for the
    emulator."""
    content = submission.read_bytes()
    folder = _folder_of(content)
    try:
        _prepare(folder, for_extensions=emulates and b"cpp_extension" in content)
    except OSError as error:  # such as a full disk
        if isinstance(error, TimeoutError):
            print(f"nvfp4: {error}", file=sys.stderr)
        folder = scratch / "cache"
    names = [f"{each}_CACHE_DIR" for each in ("TRITON", "TORCHINDUCTOR", "CUTE_DSL", "NUMBA")]
    names += ["CUDA_CACHE_PATH", "TORCH_EXTENSIONS_DIR"]
    caches = {name: str(folder / name.lower()) for name in names}
    return {**caches, FOLDER_VARIABLE: str(folder), "TMPDIR": str(scratch)}


def _folder_of(content: bytes) -> Path:
    return cache_root() / "submissions" / hashlib.sha256(content).hexdigest()[:32]


def forget(content: bytes) -> None:
    """Delete the cache of a submission when this process ends, after the submission's processes:
    files that they left there could affect results."""
    atexit.register(clear, _folder_of(content))


def trusted_variables() -> dict[str, str]:
    """Return the environment for Numba's cache of trusted code; empty if no such cache is
    possible."""
    folder = cache_root() / "trusted" / _numba.lower()
    try:
        if size_bytes(folder, kept_trusted_bytes) > kept_trusted_bytes:
            clear(folder)
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return {}
    return {_numba: str(folder)} if os.access(folder, os.W_OK) else {}


def keep_missed(lines: list[str]) -> None:
    """Record loops for the next executor to compile; see `executor.machine_code`."""
    folder = trusted_variables().get(_numba)
    if folder is not None:
        with contextlib.suppress(OSError), Path(folder, MISSED_LOOPS).open("a+") as file:
            file.seek(0)
            known = file.read(most_missed_bytes)
            told = [line.encode("ascii", "replace").decode() for line in lines]
            text = "".join(f"{line}\n" for line in told if f"{line}\n" not in known)
            if len(known) + len(text) < most_missed_bytes:
                file.write(text)


def earlier_cache(variables: dict[str, str], scratch: Path) -> dict[str, str]:
    """Return a variable for a process that gets its cache as it was before this judgement.

    The process gets a copy of the files of that time, mounted in place of the cache. If any of them
    is changed or missing, which could tell it something, it gets what a new cache begins with. The
    copy, with all that the process compiles, is in its scratch folder.
    """
    cache, copy = Path(variables[FOLDER_VARIABLE]), scratch / "cache"
    copy.mkdir()
    try:
        _copy_listed(cache, copy)
    except (OSError, ValueError):
        shutil.rmtree(copy)
        with contextlib.suppress(OSError):  # the process compiles missing files
            _copy(cache_root() / "trusted", copy)
        copy.mkdir(exist_ok=True)
    return {_EARLIER_VARIABLE: str(copy)}


def _listing(cache: Path) -> Path:
    """Return the path of the list of what a cache held before this judgement, which no submission
    sees."""
    return cache.with_suffix(".before") / str(_BEGAN_S) / "files.json"


def _plain_files(cache: Path) -> dict[str, list[int]]:
    """Return what shows whether a file is the same later on, for each file of a cache. The system
    sets the times, whatever a submission says."""
    found: dict[str, list[int]] = {}
    left_bytes = _most_earlier_bytes
    for here, _, names in os.walk(cache):
        for path in (Path(here, name) for name in names):
            with contextlib.suppress(OSError):
                status = path.lstat()
                left_bytes -= status.st_size
                if stat.S_ISREG(status.st_mode) and left_bytes >= 0:
                    found[str(path.relative_to(cache))] = [status.st_ino, status.st_ctime_ns]
    return found


def _copy_listed(cache: Path, copy: Path) -> None:
    """Copy the files that are listed. Raises OSError if one has changed, and ValueError."""
    for name, known in json.loads(_listing(cache).read_text()).items():
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with open_plain_file(cache, name) as file, target.open("wb") as whole:
            shutil.copyfileobj(file, whole)
            status = os.fstat(file.fileno())
        if [status.st_ino, status.st_ctime_ns] != known:
            raise OSError(f"{name} has changed")
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
        target.chmod(stat.S_IMODE(status.st_mode))


def shown_cache() -> dict[Path, Path]:
    """Return the submission's cache, and the folder that is mounted in its place."""
    cache, earlier = os.environ.get(FOLDER_VARIABLE), os.environ.pop(_EARLIER_VARIABLE, None)
    return {Path(cache): Path(earlier or cache)} if cache else {}


def use_instead(cache: Path, other: Path) -> None:
    """Let this process's variables name another folder, because that cannot be mounted in place of
    the cache."""
    for name, value in os.environ.items():
        if Path(value).is_relative_to(cache):
            os.environ[name] = str(other / Path(value).relative_to(cache))


def _copy(trusted: Path, folder: Path) -> None:
    """Copy the files that extensions share. Others may be added meanwhile: a compiler's files have
    another name until complete. The emulator's machine code is for executors only."""
    shutil.copytree(trusted, folder, ignore=shutil.ignore_patterns("*.tmp.*", _numba.lower()))


def cache_root() -> Path:
    """Return the folder that contains all others; it may not exist."""
    return caches_home() / "nvfp4"


def private_variable() -> dict[str, str]:
    """Return a variable that names the user's folders to hide from a confined process, which could
    block other processes by locking their files."""
    folders = [cache_root(), user_data_path("nvfp4", appauthor=False)]
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return {_private_variable: os.pathsep.join(map(str, folders))}


def private_folders() -> list[Path]:
    """Take the folders of ``private_variable`` from the environment, hidden from a submission."""
    named = os.environ.pop(_private_variable, "")
    return [Path(each) for each in named.split(os.pathsep) if each]


def _prepare(folder: Path, for_extensions: bool) -> None:
    """Create the folder of a submission and delete old ones. Raises OSError."""
    root = cache_root()
    # Closed to other users: a submission may leave programs there that run as this user, and copies
    # of files that only this user can read.
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    if stat.S_IMODE(root.stat().st_mode) & 0o077:
        root.chmod(0o700)
    folder.parent.mkdir(exist_ok=True)
    trusted = root / "trusted"
    if folder not in _to_trim:  # at the end of this process, which has then ended the submission's
        _to_trim.add(folder)
        atexit.register(trim, folder)
    with locked(folder.parent / "lock"):
        trim(folder)
        if not folder.is_dir():
            if for_extensions:
                _build_trusted(trusted)
            part = folder.with_suffix(".part")
            clear(part)
            _copy(trusted, part) if trusted.is_dir() else part.mkdir()
            part.rename(folder)
            prune(folder.parent, kept_s, kept_bytes, folder)  # half a second where there are many
        os.utime(folder)
        listing = _listing(folder)
        if not listing.exists():
            listing.parent.mkdir(parents=True, exist_ok=True)
            write_whole(listing, json.dumps(_plain_files(folder)))
            prune(listing.parent.parent, _listed_s, kept_trusted_bytes)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock on this file in the with block. Raises TimeoutError."""
    deadline = time.monotonic() + lock_s
    # A pipe in its place is refused: to open it would wait for its other end.
    flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError(
                        f"another process has held the lock {path} for {lock_s:.0f} s: this "
                        "judgement goes on with an empty compilers' cache"
                    ) from None
                time.sleep(0.05)
        yield


def trim(folder: Path) -> None:
    """Delete the folder of a submission if it has become too large."""
    if size_bytes(folder, kept_each_bytes) > kept_each_bytes:
        clear(folder)


def _build_trusted(folder: Path) -> None:
    """Compile the files that all extensions share, in a process without code of a submission."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        folder.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "nvfp4.capture.cuda.build"]
        known, null = {**os.environ, FOLDER_VARIABLE: str(folder)}, subprocess.DEVNULL
        # Not in this folder, whose modules would be imported.
        subprocess.run(
            command, cwd="/", env=known, stdin=null, stdout=null, stderr=null, timeout=60.0
        )


_clock_s = 60.0
"""Largest expected difference between the clocks of a file system and of this machine."""


def prune(folder: Path, longest_s: float, most_bytes: int, kept: Path | None = None) -> None:
    """Delete subfolders unused for `longest_s`, then the oldest until the rest takes at most
    `most_bytes`.

    kept: a subfolder that stays. A date in the future, which a submission may set, counts as very
    old.
    """
    found, now_s = [], time.time()
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            if path.is_dir() and not path.is_symlink():
                used_s = path.stat().st_mtime
                if path == kept:
                    used_s = math.inf
                elif used_s > now_s + _clock_s:
                    used_s = 0.0
                found.append((used_s, path))
    left_bytes = most_bytes
    for number, (used, path) in enumerate(sorted(found, reverse=True)):
        left_bytes -= size_bytes(path, max(left_bytes, 0))
        if number and (used < time.time() - longest_s or left_bytes < 0):
            clear(path)


def variables(
    submission: Path, scratch: Path, options: Options, emulates: bool = True
) -> dict[str, str]:
    """Return the environment of a submission whose folder for temporary files is ``scratch``.
    emulates: see ``cache_variables``."""
    # ncu needs many of its own.
    passed = passed_on()
    if os.environ.get("POPCORN_NCU") == "1":
        hidden = ("POPCORN_S", "POPCORN_F", "NVFP4_")
        passed |= {name: os.environ[name] for name in os.environ if not name.startswith(hidden)}
    # Our side of the process needs the options, and the time at which the judge ends.
    # Inductor's own processes would look for a GPU that a confined process does not show them.
    ours = {**options.as_variable(), **private_variable(), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    ours["NVFP4_DEADLINE"] = str(time.monotonic() + options.timeout_s)
    return {**passed, **cache_variables(submission, scratch, emulates), **ours}
