"""Torch's own headers, used for what the slim headers lack."""

import functools
import re
from collections.abc import Iterable
from pathlib import Path

from nvfp4.capture.cuda.image_headers import NO_FILE

LIBRARY_HEADERS = Path(__file__).parent / "library_headers"
"""Headers of libraries that the toolkit may lack."""

# Errors that say that a name is unknown: torch's own headers may know it.
MISSING_NAME = re.compile(
    r"undefined|has no member|no member|not declared|does not name|cannot open|No such file|"
    r"no instance|no match|not a member|incomplete|not a template|unrecognized|"
    r"no suitable|cannot convert|could not convert|no operator|ambiguous|not a type|not a class|"
    r"expected constructor|no storage class"  # a macro that is not known
)
_UNKNOWN = re.compile(r"""identifier "(\w+)" is undefined|.(\w+). was not declared in this scope""")
_OF_TORCH = re.compile(
    r"[A-Z][A-Z0-9_]+|at|c10|torch|pybind11|py|caffe2|(?:cublas|cusolver|cusparse)\w*"
)
_BOUND = re.compile(r'\.def\(\s*"(\w+)"\s*,')
_NOT_OURS = re.compile(r'\.def\(\s*"(?:\w+"\s*,|[^"]*[=*])')
_LIBRARY = re.compile(r"TORCH_LIBRARY\w*\([^{]*\{(?:[^\n]*\}$|.*?\n\})", re.DOTALL | re.MULTILINE)
_USING = re.compile(r"\busing\s+(?:namespace\s+)?(?:at|c10|torch)\b")


def binds_as_ours_cannot(source: str) -> bool:
    """Return whether a source may use bindings that ours do not support: two functions with one
    name, or an operator whose schema is missing or has defaults or named arguments."""
    names = _BOUND.findall(source)
    return len(names) > len(set(names)) or any(map(_NOT_OURS.search, _LIBRARY.findall(source)))


def torch_may_know(errors: str, sources: Iterable[str]) -> bool:
    """Return whether torch's headers may contain what a compiler did not find, by its messages.

    They cannot contain a name that is neither a macro nor in a namespace, unless a source uses
    torch's namespaces.
    """
    using = any(_USING.search(text) for text in sources)
    missing = filter(MISSING_NAME.search, errors.splitlines())
    return any(_one_may_be(line, using) for line in missing if "error" in line)


def _one_may_be(error: str, using: bool) -> bool:
    file = NO_FILE.search(error)
    if file is not None:
        folders = (*include_paths(), LIBRARY_HEADERS)
        return any((folder / file["name"]).is_file() for folder in folders)
    unknown = _UNKNOWN.search(error)
    if unknown is None:
        return True
    return using or _OF_TORCH.fullmatch(unknown[1] or unknown[2]) is not None


@functools.cache
def identity() -> str:
    """Identify the release of torch."""
    import torch

    return str(torch.__version__)


def include_paths() -> list[Path]:
    """Return the folders of torch's headers."""
    import torch

    root = Path(torch.__file__).parent / "include"
    return [root, root / "torch/csrc/api/include"]


def link_flags() -> list[str]:
    """Return the linker options for torch's libraries."""
    import torch

    libraries = Path(torch.__file__).parent / "lib"
    names = ("c10", "torch_cpu", "torch", "torch_python")
    return [f"-L{libraries}", f"-Wl,-rpath,{libraries}", *(f"-l{name}" for name in names)]
