"""A submission's compiler and linker flags: those that matter to the code are kept."""

import os
import re
import shlex
from collections.abc import Collection, Iterable, Iterator

from nvfp4.records.launch import PTXAS_OPTIONS

ARCHITECTURES = {
    *("-gencode", "--generate-code", "-arch", "--gpu-architecture", "-code", "--gpu-code")
}
"""Options that choose an architecture; see `architectures`."""
# Options that say what ptxas and the linker of device code do: no machine code is made. Some take
# the next word.
_OF_PTXAS = ("-Xptxas", "--ptxas-options")
_DROPPED_WITH_VALUE = {
    *ARCHITECTURES,
    *_OF_PTXAS,
    *("-Xnvlink", "--nvlink-options", "-Xfatbinary"),
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


def single_words(flags: Iterable[str] | str | None) -> list[str]:
    """Split flags into single words: torch passes them through a shell, so one string may hold
    several."""
    given = [flags] if isinstance(flags, str) else flags or ()
    return [word for flag in given for word in shlex.split(str(flag))]


def options(words: Iterable[str], names: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the options of these names with their values (after `=`, or in the next word), and any
    other word with an empty name."""
    left = iter(words)
    for word in left:
        name, equals, value = word.partition("=")
        if name in names:
            yield name, value if equals else next(left, "")
        else:
            yield "", word


def kept(flags: Iterable[str] | str | None) -> list[str]:
    """Return the flags of a compiler that matter to what its output computes.

    Optimisation of host code is left out: it costs time to compile and the host does little.
    """
    return [
        word
        for name, word in options(single_words(flags), _DROPPED_WITH_VALUE)
        if not name and word not in _DROPPED and not re.fullmatch(r"-t\d+", word)
    ]


def register_limit(flags: Iterable[str] | str | None) -> list[str]:
    """Return the value of -maxrregcount for ptxas if the flags have it."""
    values = [value for name, value in options(single_words(flags), _REGISTER_LIMITS) if name]
    return [f"-maxrregcount={value}" for value in values[:1]]


def of_ptxas(flags: Iterable[str] | str | None) -> str:
    """Return a line for the end of the PTX that tells `model.assembly` what flags ask of ptxas."""
    asked = register_limit(flags)
    asked += [value for name, value in options(single_words(flags), _OF_PTXAS) if name]
    text = " ".join(asked).replace(",", " ")
    return f"\n{PTXAS_OPTIONS}{text}\n" if text else ""


_LIBRARY_OF_CUDA = re.compile(
    r"-l(?:cuda|cudart|cudart_static|nvrtc|nvidia-ml|cudadevrt|"
    r"(?:cublas|cusparse|cusolver|cudnn|curand|cufft|c10_cuda|torch_cuda).*)"
)


def linked(flags: Iterable[str] | str | None) -> list[str]:
    """Return linker flags without CUDA's libraries, whose functions the judge provides here."""
    return [word for word in single_words(flags) if not _LIBRARY_OF_CUDA.fullmatch(word)]


_DEVICE_LINKING = re.compile(
    r"-dc|--device-c|-rdc(=true)?|--relocatable-device-code(=true)?|-dlto|-dw|--device-w"
)
OF_NVCC = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
"""Variables whose words nvcc puts before and after its own arguments."""
_HEADERS = ("CPATH", "CPLUS_INCLUDE_PATH")
OF_COMPILERS = (*OF_NVCC, *_HEADERS)
"""Variables of the environment that change what compilers make."""
# This is loaded before a submission is.
inherited = dict(os.environ)


def own_variable(name: str) -> str | None:
    """Return a variable's value if the submission has set it; None if the shell did."""
    given = os.environ.get(name)
    return None if given == inherited.get(name) else given


def with_own_flags(words: Iterable[str]) -> tuple[str, ...]:
    """Return nvcc's arguments with those that the submission sets in the environment."""
    before, after = (shlex.split(own_variable(name) or "") for name in OF_NVCC)
    return (*before, *words, *after)


def own_include_paths() -> list[str]:
    """Return the header folders that the submission names in the environment."""
    listed = os.pathsep.join(own_variable(name) or "" for name in _HEADERS)
    return [folder for folder in listed.split(os.pathsep) if folder]


def device_linking(words: Iterable[str]) -> str | None:
    """Return the argument that defers linking of device code, if any."""
    return next((word for word in words if _DEVICE_LINKING.fullmatch(word)), None)
