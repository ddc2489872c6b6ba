"""Confinement of a submission's process, by all mechanisms."""

import contextlib
import os
import site
from pathlib import Path

from nvfp4.sandbox import isolation, namespaces
from nvfp4.sandbox.caches import private_folders, shown_cache, use_instead
from nvfp4.sandbox.system_calls import refuse_system_calls


def confine(closed: bool = False) -> dict[str, str]:
    """Confine this process to its current folder and to the folder of XDG_CACHE_HOME.

    closed: other processes of the user cannot read it, even if other mechanisms are missing.
    Continues in a child; see ``namespaces.enter``. Returns the description of each mechanism;
    "none: ..." says why it is missing.
    """
    caches, private = shown_cache(), private_folders()
    # The user's own home folder is read-only, Python's packages in it stay where they are.
    home = next(iter(caches), Path.home())
    os.environ |= {"HOME": str(home), "PYTHONUSERBASE": site.getuserbase()}
    os.environ["TRITON_HOME"] = str(home)  # Triton, which may be loaded, has kept the other one
    how = namespaces.enter({Path.cwd(): Path.cwd(), **caches}, private)
    writable = [Path.cwd(), *caches]
    isolation.die_with_parent()
    if closed:
        isolation.close_to_others()
    protections = {"resources": isolation.limit_resources(), "namespaces": how}
    if " mount" in how:
        writable += [Path("/tmp"), Path("/dev/shm")]  # its own
        private = []  # already hidden
    else:
        for cache, other in caches.items():
            use_instead(cache, other)
            writable = [Path.cwd(), other]
    for mechanism, confines in (
        ("files", lambda: confine_files(writable, private)),
        ("system_calls", refuse_system_calls),
    ):
        try:
            protections[mechanism] = confines()
        except OSError as error:
            protections[mechanism] = f"none: {error}"
    return protections


def confine_files(writable: list[Path], private: list[Path]) -> str:
    """Apply Landlock: all files can be executed, all except those in ``private`` read, and only
    those in ``writable`` and devices written.

    It also forbids tracing and reading outside processes, signals to them, and TCP. Raises OSError
    if the kernel or the package lacks it.
    """
    try:
        from py_landlock import AccessFs, Landlock, LandlockError, PathError, Scope
    except ImportError as error:
        raise OSError("the package py-landlock is not installed") from error
    writable = [path for path in writable if path.exists()]
    devices = [
        path
        for path in Path("/dev").glob("*")
        if path.name in ("null", "zero", "full", "random", "urandom", "tty", "dri")
        or (path.name.startswith("nvidia") and namespaces.uses_gpu())
    ]
    try:
        domain = Landlock(strict=False)
        domain.allow_execute("/").add_path_rule("/", access=AccessFs.READ_DIR)
        for path in [*writable, *_all_but(private)]:
            domain.add_path_rule(path, access=AccessFs.READ_FILE)
        # CUDA names its threads in the process's own folder.
        for path in [*writable, Path("/proc/self").resolve(), *devices]:
            if path.is_dir():
                domain.allow_write(path)
                domain.add_path_rule(path, access=AccessFs.REFER | AccessFs.IOCTL_DEV)
            elif path.exists():
                domain.add_path_rule(path, access=AccessFs.WRITE_FILE | AccessFs.IOCTL_DEV)
        domain.allow_scope(Scope.ABSTRACT_UNIX_SOCKET)  # CUDA's IPC between judge and worker
        domain.apply()
    except (FileNotFoundError, PathError):  # another process has removed its file meanwhile
        return confine_files(writable, private)
    except LandlockError as error:
        raise OSError(str(error)) from error
    return f"Landlock ABI {int(domain.abi_version)}"


def _all_but(private: list[Path]) -> list[Path]:
    """Return paths that together cover all files except these folders and their contents."""
    hidden = {path.resolve() for path in private}
    above = {folder for path in hidden for folder in path.parents}
    if not above:
        return [Path("/")]
    found = []
    for folder in above - hidden:
        with contextlib.suppress(OSError):  # one that may not be listed
            # A link may lead above what is hidden; where it leads is named for itself.
            found += [path for path in folder.iterdir() if not path.is_symlink()]
    return [path for path in found if path not in above | hidden and os.access(path, os.R_OK)]
