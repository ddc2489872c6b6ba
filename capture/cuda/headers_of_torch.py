"""Torch's own headers, for what the slim ones beside this file do not have."""

from __future__ import annotations

import functools
from pathlib import Path

CUDA_FLAGS = (
    # What torch gives nvcc: fewer operators on half types than CUDA has, so that code which needs
    # them fails here as it does there.
    "-D__CUDA_NO_HALF_OPERATORS__",
    "-D__CUDA_NO_HALF_CONVERSIONS__",
    "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
    "--expt-relaxed-constexpr",
)


@functools.cache
def identity() -> str:
    """Which release of torch."""
    import torch

    return str(torch.__version__)


def include_paths() -> list[Path]:
    """Torch's headers."""
    import torch

    root = Path(torch.__file__).parent / "include"
    return [root, root / "torch/csrc/api/include"]


def link_flags() -> list[str]:
    """For ld."""
    import torch

    libraries = Path(torch.__file__).parent / "lib"
    names = ("c10", "torch_cpu", "torch", "torch_python")
    return [f"-L{libraries}", f"-Wl,-rpath,{libraries}", *(f"-l{name}" for name in names)]
