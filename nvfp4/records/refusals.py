"""Errors that say nothing of the submission: what is not emulated, what this machine lacks.

Those of our own packages have `refusal` in their class. Others are known by their words.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from dataclasses import dataclass

_longest_chain = 8

packages = ("cuda", "cupy", "cutlass", "numba", "pycuda", "pynvml", "triton", "tvm_ffi")
"""That machines with a GPU have, and that this one may lack."""

_limits = (errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EFBIG, errno.EAGAIN)


@dataclass(frozen=True)
class Sign:
    """Words by which an error is known. code: of the failure. says: what they mean, for people.
    on_gpu: whether they mean it where there is a GPU, too.
    """

    code: str
    pattern: str
    says: str
    on_gpu: bool = False


signs = (
    Sign(
        "launch.unsupported_call",
        r"Could not run '\S+' with arguments from the 'CUDA' backend",
        "an operator of torch that has a kernel for CUDA alone",
    ),
    Sign(
        "launch.unsupported_call",
        r"\" not implemented for '(?:Half|BFloat16|ComplexHalf)'|MKL FFT doesn't support",
        "an operator of torch whose CPU kernel does not know the dtype",
    ),
    Sign(
        "launch.unsupported_call",
        r"module 'torch\._C' has no attribute '_(?:cuda|nccl|cudnn)|dummy base class|"
        r"not compiled with CUDA|compiled without CUDA|not linked with support for cuda",
        "a function of torch.cuda that needs torch's CUDA build",
    ),
    Sign(
        "launch.unsupported_call",
        r"CUDA_ERROR_(?:NO_DEVICE|NOT_SUPPORTED|STUB_LIBRARY|SYSTEM_DRIVER)|"
        r"cudaError(?:NoDevice|NotSupported|InsufficientDriver|StubLibrary)|"
        r"no CUDA-capable device|No CUDA GPUs are available|Found no NVIDIA driver|"
        r"operation not supported|driver version is insufficient",
        "a library that looks for the GPU by itself, or a CUDA function that is not emulated",
    ),
    Sign(
        "import.not_installed",
        r"lib[\w.+-]+\.so[\d.]*: cannot open shared object file",
        "a shared library that is not here, such as libcublas",
        on_gpu=True,
    ),
    Sign(
        "import.not_installed",
        # Those in cuda are packages of their own.
        rf"No module named '(?:{'|'.join(packages)}|cuda\.\w+)'|nvidia-ml-py does not seem",
        f"a package that is not installed here: {', '.join(packages)}",
        on_gpu=True,
    ),
    Sign(
        "machine.limit",
        r"DefaultCPUAllocator|[Cc]an(?:not|'t) allocate memory",
        "more memory than this machine has",
        on_gpu=True,
    ),
)


def chain(error: BaseException) -> Iterator[BaseException]:
    """An error, and those behind it, the nearest first: what it was raised from, or while which
    was handled."""
    each: BaseException | None = error
    for _ in range(_longest_chain):
        if each is None:
            return
        yield each
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)


def own_refusal(error: BaseException) -> BaseException | None:
    """The refusal of a package of ours behind an error; None where there is none."""
    for each in chain(error):
        ours = type(each).__module__.startswith("nvfp4.")
        if ours and getattr(type(each), "refusal", False) is True:
            return each
    return None


def is_refusal(error: BaseException) -> bool:
    """Whether an error says nothing of the submission, where there is no GPU."""
    return own_refusal(error) is not None or code_of_others(error, emulated=True) is not None


def code_of_others(error: BaseException, emulated: bool) -> str | None:
    """The code of an error that others raise and this machine is to blame for; None for any other.
    emulated: whether there is no GPU."""
    for each in chain(error):
        if isinstance(each, MemoryError) or getattr(each, "errno", None) in _limits:
            return "machine.limit"
        text = str(each)
        for sign in signs:
            if (emulated or sign.on_gpu) and re.search(sign.pattern, text):
                return sign.code
    return None
