"""Instructions that order memory or advise the hardware.

All threads of a launch see one memory in one order here, so prefetches, cache policies and launch
control have nothing to do, and fences only tell the race check. An instruction that is not listed
is still an error.
"""

from __future__ import annotations

import numpy as np

from nvfp4.emulator.instructions.action import NO_RESULTS, Action, Result, instruction
from nvfp4.emulator.instructions.global_access import note_fence
from nvfp4.emulator.instructions.site import Site
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.execution import Execution


def _nothing(ex: Execution, *sources: Array) -> tuple[Array, ...]:
    return NO_RESULTS


@instruction(
    "prefetch", "prefetchu", "applypriority", "discard", "griddepcontrol",
    "setmaxnreg", "cp.async.bulk.prefetch", "nanosleep", "pmevent",
)  # fmt: skip
def hint(site: Site) -> Action:
    """No effect on any result."""
    return Action("special", [], [], _nothing)


@instruction("membar", "fence")
def fence(site: Site) -> Action:
    """membar.level, fence.sem.scope; those of a proxy, of a CTA or of mbarriers order nothing."""
    orders = (
        any(level in site.parts for level in ("gl", "sys", "gpu")) and "proxy" not in site.parts
    )

    def run(ex: Execution, *sources: Array) -> tuple[Array, ...]:
        note_fence(ex.batch, ex.lanes())
        return NO_RESULTS

    return Action("special", [], [], run if orders else _nothing)


@instruction("createpolicy")
def createpolicy(site: Site) -> Action:
    """A cache policy; its 64 bits mean nothing here."""
    site.takes(1, 6)

    def run(ex: Execution, *sources: Array) -> tuple[Array, ...]:
        return (np.zeros(1, np.uint64),)

    return Action("special", [], [Result(site.operands[0], "b64")], run)


@instruction("istypep")
def istypep(site: Site) -> Action:
    """Textures, samplers and surfaces."""
    raise site.unsupported("textures, samplers and surfaces are not emulated")


@instruction("tcgen05")
def tcgen05(site: Site) -> Action:
    """Tensor memory and the tensor cores of Blackwell."""
    raise site.unsupported(
        f"{site.opcode}: tensor memory and tcgen05 are not emulated yet",
        hint="use FMA or dp4a instructions in the kernel's emulated variant",
    )


@instruction("wgmma", "wmma")
def tensor_core(site: Site) -> Action:
    """Tensor cores of earlier architectures."""
    raise site.unsupported(
        f"{site.opcode}: of the tensor cores only mma.sync on 8-bit integers is emulated",
        hint="use FMA or dp4a instructions in the kernel's emulated variant",
    )
