"""Registers that wgmma writes on its own time: who reads them before that is done.

Whatever reads the registers of a product's sums, or copies of them, is looked at when it executes.
A mov by itself is no use of a value: compilers rename registers so. Early reads change no value
here: where ptxas sees one, it puts a wait before it, which costs time alone. What has been
overwritten in shared memory does, in orders in which operations end late.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nvfp4.emulator.arithmetic import definedness
from nvfp4.emulator.errors import Related, TensorRace
from nvfp4.emulator.instructions.action import Action, Run, Site
from nvfp4.emulator.ptx.program import Program, Register
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.batch import Execution
from nvfp4.emulator.state.warpgroup_pipe import WarpgroupPipe

_PRODUCT = ("wgmma", "mma_async")


def watched(program: Program, actions: Sequence[Action | None]) -> list[Action | None]:
    """The actions of a kernel, of which those that read sums of wgmma note it if they do so too
    early."""
    found = list(actions)
    if not any(each.parts[:2] == _PRODUCT for each in program.code):
        return found
    sums = _sums(program, actions)
    for i, (instruction, action) in enumerate(zip(program.code, actions, strict=True)):
        if action is None or action.parks or instruction.parts[0] == "wgmma":
            continue
        site = Site(program.kernel, instruction)
        read = {
            j: source.operand.index
            for j, source in enumerate(action.sources)
            if isinstance(source.operand, Register) and source.operand.index in sums
        }
        copied = _copied(action) if instruction.parts[0] == "mov" else None
        if copied is not None and copied[0] in sums:
            found[i] = _with_run(action, _copying(action, *copied))
        elif read:
            found[i] = _with_run(action, _reading(site, action, read))
    return found


def _sums(program: Program, actions: Sequence[Action | None]) -> set[int]:
    """The registers of sums, and those that they are copied to."""
    sums: set[int] = set()
    copies: list[tuple[int, int]] = []
    for instruction, action in zip(program.code, actions, strict=True):
        if action is None:
            continue
        if instruction.parts[:2] == _PRODUCT:
            sums.update(r.operand.index for r in action.results if isinstance(r.operand, Register))
        copied = _copied(action) if instruction.parts[0] == "mov" else None
        if copied is not None:
            copies.append(copied)
    before = -1
    while before != len(sums):
        before = len(sums)
        sums.update(target for target, source in copies if source in sums)
    return sums


def _copied(action: Action) -> tuple[int, int] | None:
    """(target, source) of a mov from a register to another."""
    if len(action.sources) != 1 or len(action.results) != 1:
        return None
    target, source = action.results[0].operand, action.sources[0].operand
    if isinstance(target, Register) and isinstance(source, Register):
        return target.index, source.index
    return None


def _with_run(action: Action, run: Run) -> Action:
    """The same action, but for what it does."""
    if not action.pure:
        return replace(action, run=run)
    classes = [result.cls for result in action.results]
    rule = definedness.transfer(action.rule or definedness.whole(classes), classes)
    return replace(
        action, run=run, pure=False, shadow=lambda ex, values, shadows: rule(values, shadows)
    )


def _results(action: Action, ex: Execution, values: Sequence[Array]) -> tuple[Array, ...] | None:
    found = action.run(*values) if action.pure else action.run(ex, *values)
    assert not isinstance(found, int)
    return found


def _copying(action: Action, target: int, source: int) -> Run:
    def run(ex: Execution, *values: Array) -> tuple[Array, ...] | None:
        pipe = ex.batch.held(WarpgroupPipe)
        if pipe is not None:
            pipe.copy(target, source, np.unique(ex.lanes() >> 5))
        return _results(action, ex, values)

    return run


def _reading(site: Site, action: Action, read: dict[int, int]) -> Run:
    """read: registers of sums by the number of the source."""

    def run(ex: Execution, *values: Array) -> tuple[Array, ...] | None:
        pipe = ex.batch.held(WarpgroupPipe)
        if pipe is not None and (pipe.spoiled or pipe.under_way()):
            seen = list(values)
            for i, register in read.items():
                seen[i] = _seen(site, ex, pipe, register, values[i])
            values = tuple(seen)
        return _results(action, ex, values)

    return run


def _seen(site: Site, ex: Execution, pipe: WarpgroupPipe, register: int, value: Array) -> Array:
    """What a register of sums holds, which may be under way."""
    products = pipe.written_by(register)
    if products is None:
        return value
    lanes = ex.lanes()
    warps = np.unique(lanes >> 5)
    early = warps[products[warps] > pipe.done[warps]]
    for warp in early[:1].tolist():
        place = pipe.places[warp, int(products[warp])]
        site.lane(ex.batch, int(lanes[lanes >> 5 == warp][0])).note(
            TensorRace,
            f"{site.opcode} reads a register that {place.site.opcode} may still be writing: no "
            "wgmma.wait_group behind it lies between",
            "put wgmma.commit_group and wgmma.wait_group before it",
            count=32 * early.size,
            related=[Related("it is written here", place.location())],
        )
    wrong = [warp for warp in warps.tolist() if (warp, int(products[warp])) in pipe.spoiled]
    if not wrong or not ex.batch.launch.order.bulk_copies_late:
        return value
    bad = np.isin(ex.group.lanes >> 5, wrong)
    other = ~ex.group.spread(value)
    found: Array = np.where(bad, other, ex.group.spread(value))
    return found
