"""Loads from shared memory that may still be under way when their thread arrives at a barrier.

A thread does not wait for a load, but for its value where it is used first. What overwrites the
bytes after the barrier comes late enough if it is a store, which takes its turn behind the load. A
copy by the copy engine has no turn to wait for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nvfp4.emulator.ptx.program import Instruction, Memory, Not, Operand, OperandList, Register

_OTHER_SPACES = {"global", "param", "const", "local"}
_NO_RESULT = {"st", "stmatrix", "red", "cp", "bar", "barrier", "bra", "fence", "membar", "prefetch"}
_FARTHEST = 512


def loads_under_way(code: Sequence[Instruction]) -> frozenset[int]:
    """The lines of loads from shared memory, in a kernel with bulk copies, whose values no
    instruction uses before the next arrival at a barrier or mbarrier. Branches are not followed.
    """
    if not any(each.parts[:3] == ("cp", "async", "bulk") for each in code):
        return frozenset()
    return frozenset(
        load.line
        for index, load in enumerate(code)
        if _may_load_from_shared(load)
        and _arrives_first(load, code[index + 1 : index + 1 + _FARTHEST])
    )


def is_proxy_fence(instruction: Instruction) -> bool:
    """Whether it orders accesses to shared memory before later ones by the copy engine."""
    parts = instruction.parts
    asynchronous = any(part.split("::")[0] == "async" for part in parts)
    return parts[:2] == ("fence", "proxy") and asynchronous and "global" not in parts


def _may_load_from_shared(instruction: Instruction) -> bool:
    parts = instruction.parts
    return parts[0] in ("ld", "ldmatrix") and not _OTHER_SPACES & {
        part.split("::")[0] for part in parts
    }


def _arrives_first(load: Instruction, following: Sequence[Instruction]) -> bool:
    loaded = {each.index for each in _registers(load.operands[0])}
    for each in following:
        if is_proxy_fence(each) or not loaded:
            return False
        if each.parts[0] in ("bar", "barrier") and "warp" not in each.parts:
            return True
        if each.parts[:2] == ("mbarrier", "arrive"):
            return True
        results = 0 if each.parts[0] in _NO_RESULT else 1
        made = [r.index for operand in each.operands[:results] for r in _registers(operand)]
        used = {r.index for operand in each.operands[results:] for r in _registers(operand)}
        if each.parts[0] == "mov" and used & loaded:  # no instruction of the machine
            loaded.update(made)
        elif used & loaded:
            return False
        else:
            loaded.difference_update(made)
    return False


def _registers(operand: Operand) -> Iterator[Register]:
    if isinstance(operand, Register):
        yield operand
    elif isinstance(operand, OperandList):
        for each in operand.items:
            yield from _registers(each)
    elif isinstance(operand, Not):
        yield operand.operand
    elif isinstance(operand, Memory):
        yield from _registers(operand.base)
