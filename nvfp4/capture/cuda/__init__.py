"""CUDA C++ submissions without a GPU: their launches as plain values.

Sources given to torch.utils.cpp_extension are compiled by nvcc to PTX and host code. The host code
runs as it is; the CUDA functions it calls are `runtime.cpp`'s, which end in `runtime` and `calls`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nvfp4.capture.cuda import packages
from nvfp4.capture.cuda.runtime import RUNTIME, FindVariable, checked
from nvfp4.capture.device import device_for
from nvfp4.capture.imports import when_imported
from nvfp4.records.launch import Examine, Launch, ListedMemory, Memory, anything_goes

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
    RUNTIME.begin(device_for(arch), run, memory or ListedMemory(), find_variable, examine)
    replaced: list[tuple[Any, str, Any]] = []

    def put(owner: Any, name: str, value: Any) -> None:
        replaced.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    def adapt_extensions() -> None:
        import torch._ops
        import torch.utils.cpp_extension as theirs

        from nvfp4.capture.cuda import extension

        for name in ("load", "load_inline"):
            put(theirs, name, getattr(extension, name))
        # Operators that C++ registers are called through torch, not through a module of ours.
        for kind in (torch._ops.OpOverloadPacket, torch._ops.OpOverload):
            put(kind, "__call__", checked(kind.__call__))

    forget = [when_imported("torch.utils.cpp_extension", adapt_extensions), *packages.hook(put)]

    def stop() -> None:
        for each in forget:
            each()
        while replaced:
            owner, name, original = replaced.pop()
            setattr(owner, name, original)
        RUNTIME.end()

    return stop
