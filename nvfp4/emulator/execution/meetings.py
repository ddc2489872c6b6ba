"""Instructions at which threads meet, so that it may matter who comes first."""

from collections.abc import Iterator

from nvfp4.emulator.compiler.codegen import CompiledKernel
from nvfp4.emulator.errors import OrderDependence
from nvfp4.emulator.instructions.action import Site
from nvfp4.emulator.ptx.program import Instruction
from nvfp4.emulator.ptx.types import Array

_CHANGES = frozenset(("and", "or", "xor", "add", "inc", "dec", "min", "max"))
"""What atomics do to a value."""


def order_dependence(kernel: CompiledKernel, runs: Array) -> OrderDependence | None:
    """What there is to say if a launch turns out to depend on the order of its threads; None if no
    instruction was executed that can be the cause. runs: of each basic block.
    """
    return _about_the_first(
        filter(_orders_arrivals, _executed(kernel, runs)),
        kernel,
        "the result depends on the order in which warps and CTAs run, and here it matters who "
        "comes first",
        "a barrier goes before what one thread announces for others; initialise before one, too, "
        "and take each part by the thread's index or its ticket",
    )


def overwriting(kernel: CompiledKernel, runs: Array) -> OrderDependence | None:
    """The same of an atomic that keeps nothing of what others did, in a kernel with some that do
    something to what they find; None if there are no such two."""
    if not any(map(_changes_what_it_finds, _executed(kernel, runs))):
        return None
    return _about_the_first(
        filter(_overwrites, _executed(kernel, runs)),
        kernel,
        "the result depends on whether other threads' atomics come before this one, which keeps "
        "nothing of what they did",
        "set the memory in front of the launch, and let every thread add to it; a ticket that is "
        "drawn before says nothing of what comes behind it",
    )


def _about_the_first(
    instructions: Iterator[Instruction], kernel: CompiledKernel, message: str, hint: str
) -> OrderDependence | None:
    found = next(instructions, None)
    if found is None:
        return None
    where = Site(kernel.program.kernel, found).location()
    return OrderDependence(message, where=where, hint=hint)


def _executed(kernel: CompiledKernel, runs: Array) -> Iterator[Instruction]:
    for instructions, count in zip(kernel.instructions, runs.tolist(), strict=True):
        yield from instructions if count else ()


def overwriting_blocks(kernel: CompiledKernel) -> frozenset[int]:
    """Those with such an atomic."""
    found = (i for i, each in enumerate(kernel.instructions) if any(map(_overwrites, each)))
    return frozenset(found)


def _overwrites(instruction: Instruction) -> bool:
    """Whether it is an exchange, or a store that others see at once."""
    return _orders_arrivals(instruction) and (
        instruction.parts[0] == "st" or "exch" in instruction.parts
    )


def _changes_what_it_finds(instruction: Instruction) -> bool:
    return instruction.parts[0] in ("atom", "red") and not _CHANGES.isdisjoint(instruction.parts)


def _orders_arrivals(instruction: Instruction) -> bool:
    head = instruction.parts[0]
    if head in ("bar", "barrier"):  # of some threads of a CTA
        return "cluster" not in instruction.parts and len(instruction.operands) > 1
    if head == "st":  # a flag
        return not {"volatile", "relaxed", "release"}.isdisjoint(instruction.parts)
    return head in ("atom", "red", "mbarrier")
