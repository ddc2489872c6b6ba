"""A submission's compiler and linker flags: those that matter to the code are kept."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Iterable, Iterator

# Options that choose an architecture, or what ptxas and the linker of device code do: another
# architecture is compiled for, and no machine code is made. Some take the next word.
_ARCHITECTURES = {
    *("-gencode", "--generate-code", "-arch", "--gpu-architecture", "-code", "--gpu-code"),
}
_DROPPED_WITH_VALUE = {
    *_ARCHITECTURES,
    *("-Xptxas", "--ptxas-options", "-Xnvlink", "--nvlink-options", "-Xfatbinary"),
    *("-ccbin", "--compiler-bindir", "-t", "--threads", "-split-compile", "--split-compile"),
    *("-o", "--output-file", "-odir", "--keep-dir", "-keep-dir", "-cudart", "--cudart"),
}
_DROPPED = {
    *("-lineinfo", "--generate-line-info", "-rdc=true", "-rdc", "-dc", "--device-c"),
    *("--relocatable-device-code=true", "--keep", "-keep", "--save-temps", "-save-temps"),
    *("-res-usage", "--resource-usage", "-v", "--verbose", "-c", "-dlto", "--dlto"),
    *("--extensible-whole-program", "-ewp"),
    *("-O0", "-O1", "-O2", "-O3", "-O", "-Ofast", "--optimize=3", "--dopt=on", "-time"),
    *("-fPIC", "-shared"),
}
_REGISTER_LIMITS = ("-maxrregcount", "--maxrregcount")


def _words(flags: Iterable[str] | str | None) -> list[str]:
    """Single words; torch passes flags through a shell, so one string may hold several."""
    if flags is None:
        return []
    if isinstance(flags, str):
        flags = [flags]
    return [word for flag in flags for word in shlex.split(str(flag))]


def options(words: Iterable[str], names: Collection[str]) -> Iterator[tuple[str, str]]:
    """Options of these names and their values, after `=` or in the next word; any other word with
    an empty name.
    """
    left = iter(words)
    for word in left:
        name, equals, value = word.partition("=")
        if name in names:
            yield name, value if equals else next(left, "")
        else:
            yield "", word


def kept(flags: Iterable[str] | str | None) -> list[str]:
    """The flags of a compiler that matter to what its output computes.

    Optimisation of host code is left out: it costs time to compile and the host does little.
    """
    return [
        word
        for name, word in options(_words(flags), _DROPPED_WITH_VALUE)
        if not name and word not in _DROPPED and not re.fullmatch(r"-t\d+", word)
    ]


def register_limit(flags: Iterable[str] | str | None) -> list[str]:
    """-maxrregcount for ptxas, where the flags have it."""
    values = [value for name, value in options(_words(flags), _REGISTER_LIMITS) if name]
    return [f"-maxrregcount={value}" for value in values[:1]]


_LIBRARY_OF_CUDA = re.compile(
    r"-l(?:cuda|cudart|cudart_static|nvrtc|nvidia-ml|cudadevrt|"
    r"(?:cublas|cusparse|cusolver|cudnn|curand|cufft|c10_cuda|torch_cuda).*)"
)


def linked(flags: Iterable[str] | str | None) -> list[str]:
    """Linker flags without the libraries of CUDA, whose functions are not those of a GPU here."""
    return [word for word in _words(flags) if not _LIBRARY_OF_CUDA.fullmatch(word)]


_DEVICE_LINKING = re.compile(
    r"-dc|--device-c|-rdc(=true)?|--relocatable-device-code(=true)?|-dlto|-dw|--device-w"
)
_ARCH_LIST = "TORCH_CUDA_ARCH_LIST"
_OF_NVCC = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
_HEADERS = ("CPATH", "CPLUS_INCLUDE_PATH")
OF_COMPILERS = (*_OF_NVCC, *_HEADERS)
"""Variables of the environment that change what compilers make."""
# This is loaded before a submission is.
inherited = dict(os.environ)
_ONE = re.compile(r"(?:sm|compute)_\d+[af]?")
_CODE = re.compile(r"code=(?:\[([^\]]*)\]|(.*))")


def split_architectures(words: Iterable[str]) -> tuple[list[str], list[str]]:
    """nvcc's arguments without those that choose an architecture, and what code those ask for,
    such as sm_90a, compute_90 and native.

    The second is empty where the choice is nvcc's own.
    """
    others: list[str] = []
    made: list[str] = []
    archs: list[str] = []
    codes: list[str] = []
    for name, value in options(words, _ARCHITECTURES):
        found = _CODE.search(value)
        if name not in _ARCHITECTURES:
            others.append(value)
        elif name in ("-code", "--gpu-code"):
            codes += value.split(",")
        elif found:
            made += (found[1] or found[2] or "").split(",")
        else:
            archs.append(value)
    if not codes:  # an architecture by itself stands for its PTX, too
        codes = [*archs, *(each.replace("sm_", "compute_") for each in archs)]
    return others, list(dict.fromkeys([*made, *codes]))


def made_for(flags: Iterable[str] | str | None, arch_list: str | None) -> tuple[str, ...]:
    """What torch has nvcc make code for, sm_90a and compute_90 and the like.

    Empty where that is the device that is there, or not known. arch_list: TORCH_CUDA_ARCH_LIST,
    which torch looks at where no flag has to do with architectures.
    """
    words = _words(flags)
    if any("arch" in word for word in words):
        codes = tuple(split_architectures(words)[1])
    else:
        codes = _listed(arch_list or "")
    return codes if all(_ONE.fullmatch(each) for each in codes) else ()


def own_variable(name: str) -> str | None:
    """What a submission has set: a shell's is not what it asks for."""
    given = os.environ.get(name)
    return None if given == inherited.get(name) else given


def own_arch_list() -> str | None:
    """TORCH_CUDA_ARCH_LIST if the submission has set it."""
    return own_variable(_ARCH_LIST)


def with_own_flags(words: Iterable[str]) -> tuple[str, ...]:
    """nvcc's arguments with those that the submission hands over by the environment."""
    before, after = (shlex.split(own_variable(name) or "") for name in _OF_NVCC)
    return (*before, *words, *after)


def own_include_paths() -> list[str]:
    """Folders of headers that the submission names by the environment."""
    listed = os.pathsep.join(own_variable(name) or "" for name in _HEADERS)
    return [folder for folder in listed.split(os.pathsep) if folder]


def _listed(arch_list: str) -> tuple[str, ...]:
    made = []
    for each in re.split(r"[; ]", arch_list) if arch_list else ():
        number, _, ptx = each.replace(".", "").partition("+")
        made += [f"sm_{number}", *([f"compute_{number}"] if ptx else [])]
    return tuple(made)


def device_linking(words: Iterable[str]) -> str | None:
    """The argument that leaves device code to be linked later, if there is one."""
    return next((word for word in words if _DEVICE_LINKING.fullmatch(word)), None)
