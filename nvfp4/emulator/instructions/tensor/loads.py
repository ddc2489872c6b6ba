"""tcgen05.ld, st and wait: a warp moves words between tensor memory and registers.

A warp of a warpgroup reaches 32 lanes, those of its rank. An address with a lane below 32 is taken
relative to them, as hardware does. Source: PTX ISA, Data Movement Shape; CUTLASS's copy traits for
the fragments, which the manual has as figures.
"""

from functools import cached_property

import numpy as np

from nvfp4.emulator.arrays import Array, Arrays
from nvfp4.emulator.errors import TensorMemoryFault, UninitialisedRegister, UnwrittenTensor
from nvfp4.emulator.instructions.action import Action, LaneSite, Result, Site, Source, instruction
from nvfp4.emulator.instructions.tensor import issue
from nvfp4.emulator.instructions.warp import ALL_LANES, back, by_warp, member_gate
from nvfp4.emulator.state.batch import Execution, Origin
from nvfp4.emulator.state.tensor_memory import CtaTensorMemory, split_address
from nvfp4.records.base import Record

_WARP_LANES = 32
_REGISTERS = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1}
"""Registers of a thread for each repetition of a shape. The last one names, behind the address, how
many columns further on the second half of a warp begins."""
_REPETITIONS = tuple(f"x{1 << power}" for power in range(8))
_MOST_REGISTERS = 128


class Fragment(Record):
    """The layout of an instruction's registers: lane and column, int64[register, thread], relative
    to the address."""

    lane: Array
    column: Array

    @cached_property
    def columns(self) -> list[range]:
        """The columns accessed: one range, or two where the halves of a warp lie apart."""
        used = np.unique(self.column)
        parts = np.split(used, np.flatnonzero(np.diff(used) > 1) + 1)
        return [range(int(each[0]), int(each[-1]) + 1) for each in parts]

    @property
    def lanes(self) -> int:
        """Number of lanes accessed."""
        return 32 if self.lane.max() > 15 else 16


def _fragment(shape: str, registers: int, split: int) -> Fragment:
    j, t = np.meshgrid(np.arange(registers), np.arange(32), indexing="ij")
    if shape == "32x32b":
        return Fragment(t, j)
    if shape == "16x32bx2":
        return Fragment(t % 16, j + t // 16 * split)
    if shape == "16x64b":
        return Fragment(t // 4 + 8 * (t % 2), 2 * j + t // 2 % 2)
    if shape == "16x128b":
        return Fragment(t // 4 + 8 * (j % 2), 4 * (j // 2) + t % 4)
    return Fragment(t // 4 + 8 * (j // 2 % 2), 8 * (j // 4) + 2 * (t % 4) + j % 2)


def _fragment_of(site: Site, data: int, split: int) -> Fragment:
    """Return the layout of an instruction's registers. data, split: the operands that name these,
    and the distance of the second half. Raises UnsupportedInstruction."""
    shape = next((part for part in site.parts if part in _REGISTERS), None)
    count = next((part for part in site.parts if part in _REPETITIONS), None)
    if shape is None or count is None:
        raise site.unsupported(f"{site.opcode} names no shape and count that are emulated")
    halves, registers = shape == "16x32bx2", len(site.items(data))
    if len(site.operands) != 2 + halves:
        raise site.unsupported(f"{site.opcode} with {len(site.operands)} operands")
    wanted = _REGISTERS[shape] * int(count[1:])
    if wanted > _MOST_REGISTERS:
        raise site.unsupported(f"{site.opcode} moves more than {_MOST_REGISTERS} registers")
    if registers != wanted:
        raise site.unsupported(f"{site.opcode}: {registers} registers where {wanted} belong")
    return _fragment(shape, wanted, site.integer(split) if halves else 0)


_MODIFIERS = " ".join(("sync", "aligned", "b32", *_REGISTERS, *_REPETITIONS))


def _reach(at: LaneSite, address: int, fragment: Fragment, what: str) -> tuple[int, int]:
    """Return (first lane, first column) of a warp's access. Faults if the warp may not access
    these."""
    lane, column = split_address(address)
    thread = at.lane % at.batch.grid.threads
    own = thread // _WARP_LANES % 4 * _WARP_LANES
    if lane < _WARP_LANES:
        lane += own
    if (
        lane // _WARP_LANES * _WARP_LANES != own
        or lane % _WARP_LANES + fragment.lanes > _WARP_LANES
    ):
        at.fault(
            TensorMemoryFault,
            f"{what} of tensor memory lanes {lane} to {lane + fragment.lanes - 1} by warp "
            f"{thread // _WARP_LANES}, which reaches lanes {own} to {own + _WARP_LANES - 1} only",
            hint="add the warp's lanes to the address: warp % 4 * 32 << 16",
            arguments={"lane": lane, "warp": thread // _WARP_LANES},
        )
    if lane % 16:
        at.fault(TensorMemoryFault, f"{what} of tensor memory from lane {lane}, no multiple of 16")
    for each in fragment.columns:
        issue.require_columns(at, [issue.row_of(at)], what, column + each.start, len(each))
    return lane, column


def _note(at: LaneSite, fragment: Fragment, lane: int, column: int, writes: bool) -> None:
    """Record a warp's access for the race check."""
    if not at.batch.shared.checked:
        return
    lanes = np.arange(lane, lane + fragment.lanes)
    what = "write" if writes else "read"
    # The machine waits for a register that is used: most kernels of CuTe DSL have no
    # tcgen05.wait::ld, which is its fence_view_async_tmem_load.
    complete = not writes and at.site.instruction.line not in at.batch.launch.apart.under_way
    for each in fragment.columns:
        columns = slice(column + each.start, column + each.stop)
        found = issue.pipes_of(at).note_warp(at.lane, at, columns, lanes, writes, complete)
        issue.note_conflict(at, what, lane << 16 | columns.start, found)


@instruction("tcgen05.ld", operands="_ [] _?", modifiers=_MODIFIERS)
def load(site: Site) -> Action:
    """tcgen05.ld.sync.aligned.shape.num.b32 r, [taddr]{, split}."""
    targets = site.items(0)
    fragment = _fragment_of(site, 0, 2)
    count = len(targets)

    def run(ex: Execution, address: Array, mask: Array) -> tuple[Array, ...]:
        out = np.zeros((count, ex.batch.grid.lane.size // 32, 32), np.uint32)
        for at, (where, _) in issue.issuing_warps(site, ex, (address, mask)):
            lane, column = _reach(at, where, fragment, "read")
            _note(at, fragment, lane, column, writes=False)
            memory = issue.memory_of(at)
            words = memory.words[fragment.column + column, fragment.lane + lane]
            out[:, at.lane // 32] = words
            if not ex.batch.launch.tracks_memory:
                _note_undefined(at, memory, fragment, lane, column)
            issue.count_bytes(at, words.nbytes, reads=True)
        return tuple(back(ex.group, row) for row in out)

    def shadow(ex: Execution, values: Arrays, given: Arrays) -> tuple[Array, ...]:
        out = np.zeros((count, ex.batch.grid.lane.size // 32, 32), np.uint32)
        for at, (where, _) in issue.issuing_warps(site, ex, (values[0], values[1])):
            lane, column = _reach(at, where, fragment, "read")
            out[:, at.lane // 32] = _note_undefined(at, issue.memory_of(at), fragment, lane, column)
        if not out.any():
            return tuple(np.zeros((count, 1), np.uint32))
        return tuple(back(ex.group, row) for row in out)

    site.sources.append(Source(ALL_LANES, "b32"))
    site.results.extend(Result(target, "b32") for target in targets)
    return site.action("load", run, gate=member_gate(1), shadow=shadow, loads=True)


def _note_undefined(
    at: LaneSite, memory: CtaTensorMemory, fragment: Fragment, lane: int, column: int
) -> Array:
    """Return the shadows of a load's registers, and note that it reads undefined words."""
    defined = memory.defined[fragment.column + column, fragment.lane + lane]
    shadow = np.where(defined, np.uint32(0), np.uint32(0xFFFFFFFF))
    if shadow.any() and at.batch.launch.check:
        register, thread = (int(each[0]) for each in np.nonzero(shadow))
        column += int(fragment.column[register, thread])
        lane += int(fragment.lane[register, thread])
        place = f"lane {lane}, column {column} of tensor memory"
        origin = Origin(UnwrittenTensor, f"{place}, which nothing has written")
        by = memory.origins.get(column)
        if by is not None:
            origin = by._replace(place=f"{place}, {by.place}")
        at.batch.launch.undefined_memory.setdefault(at.site.instruction.line, origin)
    return shadow


@instruction("tcgen05.st", operands="[] _ _?", modifiers=_MODIFIERS)
def store(site: Site) -> Action:
    """tcgen05.st.sync.aligned.shape.num.b32 [taddr]{, split}, r."""
    last = len(site.operands) - 1
    values, fragment = site.items(last), _fragment_of(site, last, 1)

    def run(ex: Execution, address: Array, mask: Array, *data: Array) -> None:
        rows = np.stack([by_warp(ex.group, each) for each in data])
        for at, (where, _) in issue.issuing_warps(site, ex, (address, mask)):
            lane, column = _reach(at, where, fragment, "write")
            _note(at, fragment, lane, column, writes=True)
            memory, words = issue.memory_of(at), rows[:, at.lane // 32]
            lanes, columns = fragment.lane + lane, fragment.column + column
            memory.words[columns, lanes] = words
            memory.defined[columns, lanes] = True
            issue.count_bytes(at, words.nbytes)

    def shadow(ex: Execution, given: Arrays, shadows: Arrays) -> tuple[Array, ...]:
        none = np.zeros(ex.group.lanes.size, np.bool_)
        if any(each.any() for each in shadows[2:]):
            _keep_undefined(site, ex, fragment, given, shadows[2:])
        return (ex.group.fold(none),)

    site.sources.extend(Source(each, "b32") for each in (ALL_LANES, *values))
    return site.action("store", run, gate=member_gate(1), shadow=shadow)


def _keep_undefined(
    site: Site, ex: Execution, fragment: Fragment, given: Arrays, shadows: Arrays
) -> None:
    """Mark words that were stored from undefined registers as undefined."""
    launch, line = ex.batch.launch, site.instruction.line
    rows = np.stack([by_warp(ex.group, each) for each in shadows])
    for at, (where,) in issue.issuing_warps(site, ex, (given[0],)):
        lane, column = _reach(at, where, fragment, "write")
        bad = rows[:, at.lane // 32] != 0
        memory = issue.memory_of(at)
        columns = (fragment.column + column)[bad]
        memory.defined[columns, (fragment.lane + lane)[bad]] = False
        memory.put_undefined(columns.tolist(), line)
    if not launch.tracks_memory:
        text = f"tensor memory, where PTX line {line} has written undefined values"
        launch.undefined_memory.setdefault(line, Origin(UninitialisedRegister, text))


@instruction("tcgen05.wait::ld", "tcgen05.wait::st", operands="", modifiers="sync aligned")
def wait(site: Site) -> Action:
    """tcgen05.wait::{ld,st}.sync.aligned."""
    writes = "wait::st" in site.parts

    def run(ex: Execution, mask: Array) -> None:
        if not ex.batch.shared.checked:
            return
        for at, _ in issue.issuing_warps(site, ex, (mask,)):
            issue.pipes_of(at).wait(at.lane, writes)

    return Action("special", [Source(ALL_LANES, "b32")], [], run, member_gate(0))
