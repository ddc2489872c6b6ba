"""CUDA C++ submissions without a GPU: their launches as plain values.

Sources given to torch.utils.cpp_extension are compiled by nvcc to PTX and host code. The host code
runs as it is; the CUDA functions it calls are `runtime.cpp`'s, which end in `runtime` and `calls`.
"""

from collections.abc import Callable

from nvfp4.capture.cuda import calls, packages  # noqa: F401
from nvfp4.capture.cuda.runtime import RUNTIME, FindVariable, checked
from nvfp4.capture.imports import when_imported
from nvfp4.capture.patches import Patches
from nvfp4.records.launch import Examine, Launch, Memory, anything_goes

__all__ = ["RUNTIME", "start"]


def start(
    run: Callable[[Launch], None],
    find_variable: FindVariable,
    arch: str = "sm_100a",
    memory: Memory | None = None,
    examine: Examine = anything_goes,
) -> Callable[[], None]:
    """Send every launch of an extension of this process to `run`; returns what stops it.

    Extensions must be built while this is on. find_variable: see `runtime.FindVariable`. memory:
    what the launches may touch. examine: see `capture.launch`. Raises ValueError for an
    architecture that is not known and RuntimeError if this is on already.
    """
    patches = Patches()

    def adapt_extensions() -> None:
        import torch._ops
        import torch.utils.cpp_extension as theirs

        from nvfp4.capture.cuda import extension

        for build in (extension.load, extension.load_inline):
            patches.replace(theirs, build.__name__, extension.taking_what_torch_takes(build))
        # Operators that C++ registers are called through torch, not through a module of ours.
        for kind in (torch._ops.OpOverloadPacket, torch._ops.OpOverload):
            patches.set(kind, "__call__", checked(kind.__call__))

    def install() -> Callable[[], None]:
        RUNTIME.find_variable = find_variable
        forget = [when_imported("torch.utils.cpp_extension", adapt_extensions)]
        forget += packages.hook(patches.set)

        def remove() -> None:
            for each in forget:
                each()
            patches.undo()

        return remove

    return RUNTIME.start(run, arch, memory, examine, install)
