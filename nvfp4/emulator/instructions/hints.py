"""Instructions that order memory or advise the hardware.

All threads of a launch see one memory in one order here, so prefetches, cache policies and launch
control have nothing to do, and fences only tell the race check. An instruction
that is not listed is still an error.
"""

import numpy as np

from nvfp4.emulator.instructions.action import Action, Result, Site, instruction
from nvfp4.emulator.instructions.global_access import note_fence
from nvfp4.emulator.instructions.mbarrier_objects import fence_inits
from nvfp4.emulator.instructions.shared_access import note_proxy_fence, note_thread_fence
from nvfp4.emulator.ptx.flow import is_proxy_fence
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.batch import Execution


def _nothing(ex: Execution, *sources: Array) -> None:
    pass


@instruction(
    "prefetch", "prefetchu", "applypriority",
    "setmaxnreg", "cp.async.bulk.prefetch", "nanosleep", "pmevent",
)  # fmt: skip
def hint(site: Site) -> Action:
    """No effect on any result."""
    return Action("special", [], [], _nothing)


"""What a discarded word holds: NaN as floating point of any width, so that it is not overlooked."""


@instruction("membar", "fence")
def fence(site: Site) -> Action:
    """membar.level, fence.sem.scope; fence.proxy.async. Others order nothing here."""
    orders = any(level in site.parts for level in ("gl", "sys", "gpu"))

    def run(ex: Execution, *sources: Array) -> None:
        note_fence(ex.batch, ex.lanes())
        note_thread_fence(ex.batch, ex.lanes())

    def before_arrivals(ex: Execution, *sources: Array) -> None:
        note_thread_fence(ex.batch, ex.lanes())

    def initialises(ex: Execution, *sources: Array) -> None:
        fence_inits(ex.batch, ex.lanes())

    def between_proxies(ex: Execution, *sources: Array) -> None:
        note_proxy_fence(ex.batch, ex.lanes())

    if is_proxy_fence(site.instruction):
        return Action("special", [], [], between_proxies)
    if "mbarrier_init" in site.parts:
        return Action("special", [], [], initialises)
    if "proxy" in site.parts:
        return Action("special", [], [], _nothing)
    return Action("special", [], [], run if orders else before_arrivals)


@instruction("createpolicy")
def createpolicy(site: Site) -> Action:
    """A cache policy; its 64 bits mean nothing here."""
    site.takes(1, 6)

    def run(ex: Execution, *sources: Array) -> tuple[Array, ...]:
        return (np.zeros(1, np.uint64),)

    return Action("special", [], [Result(site.operands[0], "b64")], run)


@instruction("tcgen05")
def tcgen05(site: Site) -> Action:
    """What else there is of Blackwell's tensor cores."""
    raise site.unsupported(f"{site.opcode} is not emulated")


@instruction("wgmma")
def wgmma(site: Site) -> Action:
    """Hopper's tensor cores, which a B200 does not have."""
    raise site.unsupported(
        f"{site.opcode} is not emulated", hint="it runs on an H100 or H200 alone"
    )
