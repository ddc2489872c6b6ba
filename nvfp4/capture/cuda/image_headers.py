"""Headers that the contest's machines have beside torch's, such as CUTLASS's.

Their image is nvidia/cuda:13.x-devel with CUTLASS in a folder that their compilers look in. A
header of the image that this machine lacks says nothing of the submission.

Source: gpu-mode/kernelbot, src/runners/modal_runner.py.
"""

import importlib.util
import os
import re
from collections.abc import Iterator
from pathlib import Path

from nvfp4.records.base import Record
from nvfp4.records.launch_errors import NotInstalled

NO_FILE = re.compile(
    r"^(?P<where>.*?:\d+)?.*?(?:cannot open source file \"|error: )(?P<name>[^\s\":]+)"
    r"(?:\"|: No such file)",
    re.MULTILINE,
)
_OF_A_LIBRARY = re.compile(r"error.*?\b(cublas|cusolver|cusparse)\w*", re.IGNORECASE)
_LIBRARIES = {"cublas": "cublas_v2.h", "cusolver": "cusolverDn.h", "cusparse": "cusparse.h"}
_OF_CUTLASS = re.compile(
    r"^.*error.*(?:\"(?:cutlass|cute)\b.*\" has no member|"
    r"is not a member of .(?:cutlass|cute)\b).*$",
    re.MULTILINE,
)


class _Family(Record):
    """Headers of one origin."""

    name: str
    names: re.Pattern[str]
    """Pattern that matches the whole name of a header."""
    hint: str


CONTESTS_CUTLASS = 4, 5, 2
"""The release of CUTLASS on the contest's machines."""
_NEWER_CUTLASS = "set CUTLASS_PATH to the folder of a checkout of CUTLASS {}.{}.{}".format(
    *CONTESTS_CUTLASS
)
_TOOLKIT = "install all of the CUDA toolkit, 13.0 or later, and set CUDA_HOME to its folder"
_FAMILIES = (
    _Family(
        "CUTLASS",
        re.compile(r"(?:cutlass|cute)/.+"),
        "pip install --no-deps nvidia-cutlass brings its headers; or set CUTLASS_PATH to the "
        "folder of a checkout",
    ),
    _Family(
        "CCCL", re.compile(r"(?:thrust|cub)/.+|cuda/(?:std/)?(?:\w+|__.+)|nv/target"), _TOOLKIT
    ),
    _Family(
        "the CUDA toolkit",
        re.compile(
            r"(?:cublas(?:_api|_v2|Lt|Xt)?|nvblas|cufft(?:w|Xt|_\w+)?|cudalibxt|curand\w*|"
            r"cusolver\w*|cusparse(?:_v2)?|npp\w*|nvjpeg|cufile|nvrtc|nvJitLink|nvFatbin|"
            r"nvPTXCompiler|nvml|nvperf_\w+|cupti\w*|nvToolsExt\w*|generated_\w+_meta|"
            r"cuda(?:EGL|GL|VDPAU)?(?:Typedefs)?|cudaProfiler(?:Typedefs)?|cuda_profiler_api|"
            r"cuda_(?:awbarrier|pipeline)\w*|cuda_(?:bf16|fp16|fp8|fp6|fp4|tf32|tile)|"
            r"cuda_(?:occupancy|runtime|runtime_api|device_runtime_api|stdint)|"
            r"cuda_(?:egl|gl|vdpau)_interop|cudart_platform|cuComplex|cooperative_groups|mma|"
            r"sm_\d+_\w+|math_constants|math_functions|library_types|fatbinary_section|nvvm|"
            r"(?:builtin|device|driver|surface|texture|vector)_types|vector_functions|"
            r"device_(?:atomic_|double_)?functions|device_launch_parameters|channel_descriptor)"
            r"\.(?:h|hpp)|(?:cooperative_groups|crt|nvtx3|CL|Openacc|Openmp)/.+"
        ),
        _TOOLKIT,
    ),
    _Family("g++ 13", re.compile(r"format|stdfloat|expected|spanstream"), "install g++ 13"),
)


def cutlass_folders() -> tuple[Path, ...]:
    """Return the include folders of CUTLASS's C++ headers; none if it is not installed."""
    for root in _cutlass_roots():
        for include in (root / "include", root):
            if (include / "cutlass/cutlass.h").is_file():
                utilities = include.parent / "tools/util/include"
                return (include, utilities) if utilities.is_dir() else (include,)
    return ()


def _cutlass_roots() -> Iterator[Path]:
    for name in ("CUTLASS_PATH", "CPLUS_INCLUDE_PATH", "CPATH"):
        yield from (Path(each) for each in os.environ.get(name, "").split(os.pathsep) if each)
    package = importlib.util.find_spec("cutlass_library")  # of nvidia-cutlass
    for folder in (package.submodule_search_locations or []) if package else []:
        yield Path(folder, "source")
    yield Path("/opt/cutlass")


def identity() -> str:
    """Identify the installed CUTLASS, because another release compiles to other code."""
    return f"{cutlass_folders()} {_release()}"


def _release() -> tuple[int, ...]:
    """Return the version of this machine's CUTLASS; empty if it is unknown."""
    try:
        text = Path(cutlass_folders()[0], "cutlass/version.h").read_text(encoding="utf-8")
    except (IndexError, OSError):
        return ()
    return tuple(int(n) for n in re.findall(r"define CUTLASS_(?:MAJOR|MINOR|PATCH) +(\d+)", text))


def refuse_if_missing(errors: str, toolkit: Path) -> None:
    """Raise NotInstalled if a compiler's errors are due to a header of the contest's image that
    this machine lacks.

    The header may be missing, older, or one of `library_headers`, which have only a few of its
    types. toolkit: the folder of the toolkit's headers.
    """
    for found in NO_FILE.finditer(errors):
        _refuse(found["name"], found["where"])
    newer, release = _OF_CUTLASS.search(errors), _release()
    if newer is not None and () < release < CONTESTS_CUTLASS:
        here = ".".join(map(str, release))
        raise NotInstalled(
            f"{newer[0].strip()} (CUTLASS {here} on this machine; the contest's have a later one)",
            hint=_NEWER_CUTLASS,
        )
    for library in _OF_A_LIBRARY.findall(errors):
        header = _LIBRARIES[library.lower()]
        if not (toolkit / header).is_file():
            _refuse(header, None)


def _refuse(name: str, where: str | None) -> None:
    family = next((each for each in _FAMILIES if each.names.fullmatch(name)), None)
    if family is not None:
        place = f"{where}: " if where else ""
        older = family.name == "CUTLASS" and cutlass_folders()
        raise NotInstalled(
            f"{place}{name}, a header of {family.name}, is not on this machine; the contest's "
            "machines have it",
            hint=_NEWER_CUTLASS if older else family.hint,
        )
