"""Triton compiles for one architecture and its kernels run on another.

Only the loading of a kernel is taken over: the driver gets translated PTX in place of machine code.
Triton launches as ever, at no cost.
"""

import os
import re
import sys
from collections.abc import Callable
from typing import Any

from nvfp4.capture.device import device_for
from nvfp4.capture.patches import Patches

Translate = Callable[[str], str]


def start_loading(
    translate: Translate, explain: Callable[[str], object], arch: str
) -> Callable[[], None]:
    """Triton compiles for `arch` from now on; what is loaded is `translate(ptx)`.

    explain: raises an error with the driver's words for PTX that it does not take. Returns the
    function that stops it. What these raise surfaces where the user's code launched its kernel.
    Raises ImportError and AttributeError for a version of Triton that has no such parts.
    """
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.driver import CudaDriver
    from triton.compiler.compiler import CompiledKernel

    major, minor = device_for(arch).capability
    target = GPUTarget("cuda", 10 * major + minor, 32)
    patches = Patches()
    patches.set(CudaDriver, "get_current_target", lambda self: target)
    load = _loading(CompiledKernel._init_handles, target, translate, explain)
    patches.set(CompiledKernel, "_init_handles", load)
    return patches.undo


def _loading(
    original: Callable[[Any], None],
    target: Any,
    translate: Translate,
    explain: Callable[[str], object],
) -> Callable[[Any], None]:
    """Return a CompiledKernel._init_handles that loads translated PTX if the kernel was compiled
    for another target."""

    def load(self: Any) -> None:
        if self.module is not None or self.metadata.target != target:
            original(self)
            return
        text = translate(corrected(self.asm["ptx"], self.src))
        # The driver takes text as well; it ends at a zero.
        self.kernel = text.encode() + b"\0"
        try:
            original(self)
        except RuntimeError as error:
            if self.module is None and "PTX" in str(error):
                explain(text)
            raise

    return load


_FILE = re.compile(r'^(\s*\.file\s+\d+\s+)"([^"\n]*)"', re.MULTILINE)
_COLUMN = re.compile(r"((?:\.loc|inlined_at)[ \t]+\d+[ \t]+\d+[ \t]+)([1-9]\d*)")


def corrected(ptx: str, source: Any) -> str:
    """Return the PTX with corrected files and columns; instructions and lines do not change.

    Files that are not loaded are replaced by loaded ones of the same name, because a submission is
    copied to a new folder for each run and Triton's cache keeps the old one. Columns count from 0,
    as Python's do; Triton's count from 1. source: of the compiled kernel.
    """
    loaded = _loaded_files(source)

    def replace(match: re.Match[str]) -> str:
        path = match[2]
        now = loaded.get(os.path.basename(path))
        return match[0] if now is None or path in loaded.values() else f'{match[1]}"{now}"'

    return _COLUMN.sub(lambda m: f"{m[1]}{int(m[2]) - 1}", _FILE.sub(replace, ptx))


def _loaded_files(source: Any) -> dict[str, str]:
    """Paths of this process's modules by file name; the kernel's own file takes precedence."""
    found = {}
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str) and path.endswith(".py"):
            found[os.path.basename(path)] = path
    code = getattr(getattr(getattr(source, "fn", None), "fn", None), "__code__", None)
    if code is not None:
        found[os.path.basename(code.co_filename)] = code.co_filename
    return found
