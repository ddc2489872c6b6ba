"""Errors that say nothing about the submission: something is not emulated, or missing on this
machine.

Those of our own packages have `refusal` in their class. Errors of other packages are known by class
and contents, those raised in C++ by their text alone.
"""

import dis
import errno
import re
import sys
from collections.abc import Callable, Iterator
from types import TracebackType

from nvfp4.records.base import Record

_longest_chain = 8

packages = (
    *("cuda", "cupy", "cutlass", "helion", "numba", "nvmath", "pycuda", "pynvml", "tinygrad"),
    *("triton", "tvm_ffi"),
)
"""Packages that machines with a GPU usually have, above all the contest's, and that may be missing
here."""

_limits = (errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EFBIG, errno.EAGAIN)


class Sign(Record):
    """A sign that identifies an error."""

    code: str
    """Code of the failure."""
    known: Callable[[BaseException], bool]
    """Returns whether an exception is such an error."""
    on_gpu: bool = False
    """Whether it means the same if there is a GPU."""


def _is_missing_package(error: BaseException) -> bool:
    if not isinstance(error, ModuleNotFoundError):
        return False
    parent, _, child = (error.name or "").partition(".")
    # Those in cuda are packages of their own.
    return parent in packages if not child else parent == "cuda" and "." not in child


_raised_without_it = {
    ("torch.cuda", "_lazy_init"),
    ("torch.cuda.streams", "__new__"),
    ("torch._utils", "err_fn"),
}
"""Modules and functions of torch that raise where a CUDA build or a device is missing."""


def _needs_the_cuda_build(error: BaseException) -> bool:
    if isinstance(error, AttributeError):
        of_torch = error.obj is sys.modules.get("torch._C") is not None
        return of_torch and str(error.name).startswith(("_cuda", "_nccl", "_cudnn"))
    if isinstance(error, ImportError) and error.name == "torch._C":
        return "_cuda" in str(error)
    last = _innermost(error)
    if last is None:
        return False
    frame = last.tb_frame
    return (frame.f_globals.get("__name__"), frame.f_code.co_name) in _raised_without_it


def _innermost(error: BaseException) -> TracebackType | None:
    """Return the innermost frame of an error's traceback."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last


def _is_raised_by_hand(error: BaseException) -> bool:
    """Return whether a statement of the submission raised it; a real shortage is raised by the
    system itself."""
    last = _innermost(error)
    if last is None or _LIBRARY.search(last.tb_frame.f_code.co_filename):
        return False
    return dis.opname[last.tb_frame.f_code.co_code[last.tb_lasti]] == "RAISE_VARARGS"


_LIBRARY = re.compile(r"/(?:(?:site|dist)-packages|lib/python[\d.]+)/|/nvfp4/")


def _in_words(kind: type | tuple[type, ...], *words: str) -> Callable[[BaseException], bool]:
    """Return a test for errors that only their class and these words identify, as those of C++."""
    return lambda error: isinstance(error, kind) and any(each in str(error) for each in words)


_is_missing_library = _in_words((OSError, ImportError), "cannot open shared object file")
_lacks_memory = _in_words(
    RuntimeError, "DefaultCPUAllocator", "annot allocate memory", "can't allocate memory"
)


def _is_at_a_limit(error: BaseException) -> bool:
    limit = isinstance(error, MemoryError) or getattr(error, "errno", None) in _limits
    return (limit or _lacks_memory(error)) and not _is_raised_by_hand(error)


signs = (
    # An operator of torch that the CPU lacks, or lacks for a dtype; C++ of torch that asks the GPU.
    Sign(
        "launch.unsupported_call",
        _in_words(
            RuntimeError,
            *(f"\" not implemented for '{each}'" for each in ("Half", "BFloat16", "ComplexHalf")),
            *("MKL FFT doesn't support", "Cannot access accelerator", "built without USE_CUDA"),
            *("device not recognized: cuda", "CUDA' backend", '_cpu" not implemented for'),
            *("mixed dtype (CPU)", "supported on CPU", "implemented on the CPU"),
            *("only supported on CUDA", "ZeroDivisionError", "compiled without support for the"),
        ),
    ),
    Sign("launch.unsupported_call", _needs_the_cuda_build),
    Sign("launch.unsupported_call", _in_words(TypeError, "Torch not compiled with CUDA enabled")),
    # A library that looks for the GPU by itself, or a CUDA function that is not emulated.
    Sign(
        "launch.unsupported_call",
        _in_words(
            Exception,
            *(f"CUDA_ERROR_{each}" for each in ("NO_DEVICE", "NOT_SUPPORTED", "STUB_LIBRARY")),
            *("CUDA_ERROR_SYSTEM_DRIVER", "cudaErrorNoDevice", "cudaErrorNotSupported"),
            *("cudaErrorInsufficientDriver", "cudaErrorStubLibrary", "no CUDA-capable device"),
            *("operation not supported", "driver version is insufficient", "support for cuda"),
        ),
    ),
    # A shared library that is not here, such as libcublas.
    Sign("import.not_installed", _is_missing_library, on_gpu=True),
    Sign("import.not_installed", _is_missing_package, on_gpu=True),
    Sign("machine.limit", _is_at_a_limit, on_gpu=True),
)


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes, the nearest first: each was raised from the next, or while
    that was handled."""
    each: BaseException | None = error
    for _ in range(_longest_chain):
        if each is None:
            return
        yield each
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)


def own_refusal(error: BaseException) -> BaseException | None:
    """Return the refusal of a package of ours behind an error; None where there is none."""
    for each in chain(error):
        ours = type(each).__module__.startswith("nvfp4.")
        if ours and getattr(type(each), "refusal", False) is True:
            return each
    return None


def is_refusal(error: BaseException) -> bool:
    """Return whether an error says nothing about the submission, if there is no GPU."""
    return own_refusal(error) is not None or code_of_others(error, emulated=True) is not None


def code_of_others(error: BaseException, emulated: bool) -> str | None:
    """Return the code of another package's error for which this machine is to blame; None for any
    other error.

    emulated: whether there is no GPU.
    """
    possible = [sign for sign in signs if emulated or sign.on_gpu]
    found = (sign.code for each in chain(error) for sign in possible if sign.known(each))
    return next(found, None)
