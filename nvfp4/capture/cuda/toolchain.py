"""The compilers that CUDA C++ submissions need: nvcc with its headers, and a host compiler."""

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

from nvfp4.capture.cuda.flags import OF_COMPILERS, inherited, own_variable
from nvfp4.records.base import Record
from nvfp4.records.launch_errors import NotInstalled, UnsupportedCall

OLDEST_CUDA = (13, 0)
"""The contest's release, the first whose ptxas takes all of a block's shared memory as static."""


class MissingToolchain(NotInstalled):
    """This machine cannot compile CUDA C++."""


class Toolchain(Record):
    """The compilers for CUDA C++, by their paths."""

    nvcc: Path
    ptxas: Path
    include: Path
    """Folder of the toolkit's headers."""
    host_compiler: str
    version: tuple[int, int]
    """Version of nvcc."""

    @property
    def identity(self) -> str:
        """Return a hash that identifies the compilers, since other compilers make other code."""
        return f"{self.nvcc} {self.version} {self.host_compiler} {python_include()}"

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment for nvcc, without variables that would change the code. Variables
        that a submission sets are passed as arguments."""
        return {name: value for name, value in os.environ.items() if name not in OF_COMPILERS}


def python_include() -> str:
    """Return the folder of Python.h."""
    return sysconfig.get_paths()["include"]


def _candidates() -> list[Path]:
    """Return possible paths of nvcc, best first; a submission cannot choose it."""
    named = [name for name in ("CUDA_HOME", "CUDA_PATH") if name in inherited]
    found = [Path(inherited[name], "bin/nvcc") for name in named]
    on_path = shutil.which("nvcc", path=inherited.get("PATH"))
    if on_path:
        found.append(Path(on_path))
    found.append(Path("/usr/local/cuda/bin/nvcc"))
    wheels = importlib.util.find_spec("nvidia")
    for folder in (wheels.submodule_search_locations or []) if wheels else []:
        found += sorted(Path(folder).glob("cu*/bin/nvcc"), reverse=True)
    return [path for path in found if path.is_file() and os.access(path, os.X_OK)]


def _include_of(nvcc: Path) -> Path | None:
    home = nvcc.resolve().parent.parent
    folders = (home / "include", home / "targets/x86_64-linux/include")
    return next((each for each in folders if (each / "cuda_runtime_api.h").is_file()), None)


def _version_of(nvcc: Path) -> tuple[int, int] | None:
    try:
        said = subprocess.run([nvcc, "--version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    release = re.search(r"release (\d+)\.(\d+)", said.stdout)
    return (int(release[1]), int(release[2])) if release else None


@functools.cache
def find_toolchain() -> Toolchain:
    """Return the first complete toolchain. Raises MissingToolchain, which says what to install."""
    hint = "pip install 'nvfp4[cuda]' brings nvcc"
    path = inherited.get("PATH")
    compilers = (shutil.which(each, path=path) for each in (inherited.get("CXX", ""), "g++"))
    host_compiler = next(filter(None, compilers), None)
    too_old = None
    for nvcc in _candidates():
        include, version = _include_of(nvcc), _version_of(nvcc)
        ptxas = nvcc.resolve().parent / "ptxas"
        if include is None or version is None or not ptxas.is_file():
            continue
        if version < OLDEST_CUDA:
            too_old = too_old or f"{nvcc} is of CUDA {version[0]}.{version[1]}"
            continue
        if not (include / "crt/host_defines.h").is_file():
            continue
        if host_compiler is None:
            message = "CUDA C++ cannot be compiled here: there is no host compiler"
            raise MissingToolchain(message, hint="install g++ (Debian and Ubuntu: apt install g++)")
        return Toolchain(nvcc, ptxas, include, host_compiler, version)
    if too_old:
        message = f"CUDA C++ cannot be compiled here: {too_old}, older than 13.0"
        raise MissingToolchain(message, hint=hint)
    raise MissingToolchain("CUDA C++ cannot be compiled here: nvcc is missing", hint=hint)


def refuse_other_compiler(home: str | None) -> None:
    """Raise UnsupportedCall if torch would run an nvcc that the submission has chosen.

    home: the folder of the toolkit that torch would take.
    """
    chosen = own_variable("PYTORCH_NVCC")
    if chosen is None and home is not None and Path(home, "bin/nvcc").is_file():
        nvcc = Path(home, "bin/nvcc").resolve()
        chosen = None if nvcc in [each.resolve() for each in _candidates()] else str(nvcc)
    if chosen is not None:
        message = f"the submission chooses the compiler itself: {chosen}"
        raise UnsupportedCall(message, hint="leave PYTORCH_NVCC and CUDA_HOME to the machine")
