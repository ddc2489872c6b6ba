"""Where what a thread sees depends on who came first, without a race."""

from __future__ import annotations

from nvfp4.emulator.compiler.kernel import CompiledKernel
from nvfp4.emulator.errors import OrderDependence
from nvfp4.emulator.instructions.site import Site
from nvfp4.emulator.ptx.program import Instruction
from nvfp4.emulator.ptx.types import Array


def order_dependence(kernel: CompiledKernel, runs: Array) -> OrderDependence | None:
    """What there is to say if a launch turns out to depend on the order of its threads; None if no
    instruction was executed that can be the cause. runs: of each basic block.
    """
    for instructions, count in zip(kernel.instructions, runs.tolist(), strict=True):
        for instruction in instructions if count else ():
            if _orders_arrivals(instruction):
                return OrderDependence(
                    "the result depends on the order in which warps and CTAs run, and here it "
                    "matters who comes first",
                    where=Site(kernel.program.kernel, instruction).location(),
                    hint="a barrier goes before what one thread announces for others; initialise "
                    "before one, too, and take each part by the thread's index or its ticket",
                )
    return None


def _orders_arrivals(instruction: Instruction) -> bool:
    head = instruction.parts[0]
    if head in ("bar", "barrier"):  # of some threads of a CTA
        return "cluster" not in instruction.parts and len(instruction.operands) > 1
    if head == "st":  # a flag
        return not {"volatile", "relaxed", "release"}.isdisjoint(instruction.parts)
    return head in ("atom", "red", "mbarrier")
