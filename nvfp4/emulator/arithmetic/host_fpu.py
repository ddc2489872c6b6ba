"""The host's floating-point rounding direction, for the .rz, .rm and .rp forms."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

_MODES = {
    "x86": {"rn": 0x000, "rm": 0x400, "rp": 0x800, "rz": 0xC00},
    "arm": {"rn": 0x000000, "rp": 0x400000, "rm": 0x800000, "rz": 0xC00000},
}[("arm" if platform.machine().lower() in ("aarch64", "arm64") else "x86")]
_LIBM = ctypes.CDLL(None)


@contextmanager
def rounding(mode: str) -> Iterator[None]:
    """Run the body with the thread's FPU rounding as PTX `mode` says (rn, rz, rm, rp).

    NumPy and the compiled functions use the FPU's own add, multiply, divide, square root and
    fused multiply-add, so they round that way too. NumPy's floating-point warnings are off.
    """
    with np.errstate(all="ignore"):
        if mode == "rn":
            yield
            return
        if _LIBM.fesetround(_MODES[mode]) != 0:
            raise RuntimeError(f"this machine's FPU cannot round as .{mode}")
        try:
            yield
        finally:
            _LIBM.fesetround(_MODES["rn"])
