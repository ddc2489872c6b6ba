"""Errors that say that code and GPU do not fit."""

import re

_of_an_architecture = re.compile(
    r"\bsm_\d+|\bcompute_\d+|\barch|ptxas|nvvm|kernel image|NO_BINARY|INVALID_PTX|UNSUPPORTED_PTX"
    r"|compute capability|tcgen05|tensor memory|blackwell|not supported on",
    re.IGNORECASE,
)
_of_torch_s_builds = "Error building extension"
_longest_line = 400


def names_an_architecture(error: BaseException | None) -> bool:
    """Whether an error, or one that led to it, says that code and GPU do not fit.

    A failed build of a CUDA C++ extension is none: `retarget/nvcc.py` has tried all there is.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        text = f"{type(error).__name__}: {error}"
        if _of_an_architecture.search(text) and _of_torch_s_builds not in text:
            return True
        error = error.__cause__ or error.__context__
    return False


def shorten_build_errors(error: BaseException) -> None:
    """Leaves out of torch's message the command lines, behind which the compiler's words are."""
    text = str(error)
    if isinstance(error, RuntimeError) and text.startswith(_of_torch_s_builds):
        lines = text.splitlines()
        kept = [line for line in lines if line.strip() and len(line) <= _longest_line]
        error.args = ("\n".join(kept),)
