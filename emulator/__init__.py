"""Run CUDA kernels given as PTX on the CPU, thread for thread and bit for bit.

    import emulator

    with emulator.install() as emulation:  # CuTe DSL code runs unchanged in here
        ...
        print(emulation.launches[-1].to_dict())

    report = emulator.run_ptx(text, "kernel", grid=(8, 1, 1), block=(128, 1, 1), params=[...])

The emulator knows nothing of the kernels it runs: it reads PTX, executes it, checks every access
and counts what happens. Faults are exceptions derived from EmulatorError.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from emulator.engine.batch import Dim3
from emulator.engine.launch import launch as _launch
from emulator.engine.memory import Buffer
from emulator.engine.module import load_module
from emulator.errors import EmulatorError
from emulator.report import LaunchReport

if TYPE_CHECKING:
    from emulator.emulation import Emulation, install

__all__ = ["Buffer", "Emulation", "EmulatorError", "LaunchReport", "install", "run_ptx"]


def __getattr__(name: str) -> Any:
    # The interception is imported when asked for: run_ptx needs neither CuTe DSL nor torch.
    if name in ("Emulation", "install"):
        from emulator import emulation

        return getattr(emulation, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def run_ptx(
    ptx: str,
    kernel: str,
    grid: Sequence[int],
    block: Sequence[int],
    params: Sequence[bytes],
    shared_bytes: int = 0,
    buffers: Sequence[Buffer | tuple[str, int, int]] = (),
    check: bool = True,
    sample_ctas: int | None = None,
) -> LaunchReport:
    """Execute one kernel of a PTX module.

    grid, block: up to three extents. params: the bytes of each `.param`, in order, little-endian;
    pointers are host addresses. shared_bytes: dynamic shared memory. buffers: (name, address,
    nbytes) of memory the kernel may touch; CPU tensors of torch are found without. check: look
    for shared-memory races, unwritten shared memory and unset registers as well; bounds and
    alignment are always checked. sample_ctas: run only so many CTAs, spread over the grid, and
    scale the counts.

    Raises EmulatorError; its subclasses in emulator.errors tell what went wrong.
    """
    known = [b if isinstance(b, Buffer) else Buffer(*b) for b in buffers]
    return _launch(
        load_module(ptx),
        kernel,
        _three(grid),
        _three(block),
        params,
        shared_bytes,
        known,
        check,
        sample_ctas,
    )


def _three(extents: Sequence[int]) -> Dim3:
    x, y, z = (*extents, 1, 1, 1)[:3]
    return int(x), int(y), int(z)
