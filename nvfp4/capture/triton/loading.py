"""Triton compiles for one architecture and its kernels run on another.

Only the loading of a kernel is taken over: the driver gets translated PTX in place of machine code.
Triton launches as ever, at no cost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nvfp4.capture.device import device_for
from nvfp4.capture.standin.patches import Patches
from nvfp4.capture.triton import lines

Translate = Callable[[str], str]


def start_loading(
    translate: Translate, explain: Callable[[str], None], arch: str
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
    explain: Callable[[str], None],
) -> Callable[[Any], None]:
    """CompiledKernel._init_handles that loads translated PTX where the target is another's."""

    def load(self: Any) -> None:
        if self.module is not None or self.metadata.target != target:
            original(self)
            return
        text = translate(lines.corrected(self.asm["ptx"], self.src))
        # The driver takes text as well; it ends at a zero.
        self.kernel = text.encode() + b"\0"
        try:
            original(self)
        except RuntimeError as error:
            if self.module is None and "PTX" in str(error):
                explain(text)
            raise

    return load
