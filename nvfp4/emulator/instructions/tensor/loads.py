"""tcgen05.ld, st and wait: a warp moves words between tensor memory and registers.

A warp of a warpgroup reaches 32 lanes, those of its rank. An address with a lane below 32 is taken
relative to them, as hardware does. Source: PTX ISA, Data Movement Shape; CUTLASS's copy traits for
the fragments, which the manual has as figures.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nvfp4.emulator.errors import TensorMemoryFault, UninitialisedRegister, UnwrittenTensor
from nvfp4.emulator.instructions.action import Action, LaneSite, Result, Site, Source, instruction
from nvfp4.emulator.instructions.tensor import issue
from nvfp4.emulator.instructions.warp import ALL_LANES, back, by_warp, member_gate, whole_warps
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.batch import Execution, Origin
from nvfp4.emulator.state.tensor_memory import CtaTensorMemory, split_address

_WARP_LANES = 32
_REGISTERS = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1}
"""Registers of a thread for each repetition."""
_REPETITIONS = tuple(f"x{1 << power}" for power in range(8))
_MOST_REGISTERS = 128
_SPLIT = "16x32bx2"


@dataclass(frozen=True)
class Fragment:
    """Where registers lie: lane and column, int64[register, thread], relative to the address.

    packed: two neighbouring columns share a register, the lower halves of each.
    """

    lane: Array
    column: Array
    packed: bool

    @property
    def columns(self) -> int:
        """Number of columns that are reached, from the address on."""
        return int(self.column.max()) + 1 + self.packed

    @property
    def lanes(self) -> int:
        """Number of lanes that are reached."""
        return 32 if self.lane.max() > 15 else 16


def _fragment(shape: str, registers: int, split: int, packed: bool) -> Fragment:
    j, t = np.meshgrid(np.arange(registers), np.arange(32), indexing="ij")
    if shape == "32x32b":
        lane, column = t, j
    elif shape == "16x64b":
        lane, column = t // 4 + 8 * (t % 2), 2 * j + t // 2 % 2
    elif shape == "16x128b":
        lane, column = t // 4 + 8 * (j % 2), 4 * (j // 2) + t % 4
    elif shape == "16x256b":
        lane, column = t // 4 + 8 * (j // 2 % 2), 8 * (j // 4) + 2 * (t % 4) + j % 2
    else:
        lane, column = t % 16, j
    if packed:
        column = 2 * column
    if shape == _SPLIT:
        column = column + t // 16 * split
    return Fragment(lane, column, packed)


def _fragment_of(site: Site, registers: int, split: int) -> Fragment:
    """split: the operand with immHalfSplitoff, if there is one. Raises UnsupportedInstruction."""
    shape = next((part for part in site.parts if part in _REGISTERS), None)
    count = next((part for part in site.parts if part in _REPETITIONS), None)
    if shape is None or count is None:
        raise site.unsupported(f"{site.opcode} names no shape and count that are emulated")
    wanted = _REGISTERS[shape] * int(count[1:])
    if wanted > _MOST_REGISTERS:
        raise site.unsupported(f"{site.opcode} moves more than {_MOST_REGISTERS} registers")
    if registers != wanted:
        raise site.unsupported(f"{site.opcode}: {registers} registers where {wanted} belong")
    packed = "pack::16b" in site.parts or "unpack::16b" in site.parts
    return _fragment(shape, wanted, site.integer(split) if shape == _SPLIT else 0, packed)


_MODIFIERS = " ".join(("sync", "aligned", "b32", *_REGISTERS, *_REPETITIONS))


def _reach(at: LaneSite, address: int, fragment: Fragment, what: str) -> tuple[int, int]:
    """(first lane, first column) of a warp's access. Faults where it may not reach them."""
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
    issue.require_columns(at, what, column, fragment.columns)
    return lane, column


def _note(at: LaneSite, fragment: Fragment, lane: int, column: int, writes: bool) -> None:
    """Tell the race check of a warp's access."""
    if not at.batch.shared.checked:
        return
    if _SPLIT in at.site.parts:
        reached = np.unique(fragment.column)
        first, last = int(reached[0]), int(reached[-1])
        spans = [(first, last + 1 + fragment.packed)]
        gaps = np.flatnonzero(np.diff(reached) > 2)
        if gaps.size:
            middle = int(reached[gaps[0]]) + 1 + fragment.packed
            spans = [(first, middle), (int(reached[gaps[0] + 1]), last + 1 + fragment.packed)]
    else:
        spans = [(0, fragment.columns)]
    lanes = np.arange(lane, lane + fragment.lanes)
    what = "write" if writes else "read"
    # The machine waits for a register that is used: CuTe DSL has no tcgen05.wait::ld at all.
    complete = not writes and at.site.instruction.line not in at.batch.launch.loads_under_way
    for start, stop in spans:
        columns = slice(column + start, column + stop)
        found = issue.pipes_of(at).note_warp(at.lane, at, columns, lanes, writes, complete)
        issue.note_conflict(at, what, lane << 16 | (column + start), found)


def _read(array: Array, fragment: Fragment, lane: int, column: int) -> tuple[Array, Array | None]:
    """[register, thread] of an array [column, lane], and the same of the columns behind if they are
    packed."""
    lanes, columns = fragment.lane + lane, fragment.column + column
    second = array[columns + 1, lanes] if fragment.packed else None
    return array[columns, lanes], second


@instruction("tcgen05.ld", operands="_ [] _?", modifiers=f"pack::16b {_MODIFIERS}")
def load(site: Site) -> Action:
    """tcgen05.ld.sync.aligned.shape.num{.pack::16b}.b32 r, [taddr]{, immHalfSplitoff}."""
    site.takes(3 if _SPLIT in site.parts else 2)
    targets = site.items(0)
    fragment = _fragment_of(site, len(targets), split=2)
    count = len(targets)

    def run(ex: Execution, address: Array, mask: Array) -> tuple[Array, ...]:
        out = np.zeros((count, ex.batch.grid.lane.size // 32, 32), np.uint32)
        for at, (where, _) in issue.issuing_warps(site, ex, (address, mask)):
            lane, column = _reach(at, where, fragment, "read")
            _note(at, fragment, lane, column, writes=False)
            memory = issue.memory_of(at)
            words, second = _read(memory.words, fragment, lane, column)
            if second is not None:
                words = (words & np.uint32(0xFFFF)) | (second << np.uint32(16))
            out[:, at.lane // 32] = words
            if not ex.batch.launch.tracks_memory:
                _note_undefined(at, memory, fragment, lane, column)
            issue.count_bytes(at, words.nbytes, reads=True)
        return tuple(back(ex.group, row) for row in out)

    def shadow(ex: Execution, values: Sequence[Array], given: Sequence[Array]) -> tuple[Array, ...]:
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
    """Remember that a load reads undefined words; the shadows of its registers."""
    first, second = (
        None if part is None else ~part for part in _read(memory.defined, fragment, lane, column)
    )
    assert first is not None
    shadow = np.where(first, np.uint32(0xFFFFFFFF), np.uint32(0))
    if second is not None:
        shadow = np.where(first, np.uint32(0xFFFF), np.uint32(0))
        shadow = shadow | np.where(second, np.uint32(0xFFFF0000), np.uint32(0))
    if shadow.any() and at.batch.launch.check:
        register, thread = (int(each[0]) for each in np.nonzero(shadow))
        where = (
            int(fragment.column[register, thread]) + column,
            int(fragment.lane[register, thread]) + lane,
        )
        place = f"lane {where[1]}, column {where[0]} of tensor memory"
        origin = Origin(UnwrittenTensor, f"{place}, which nothing has written")
        by = memory.origins.get(where[0])
        if by is not None:
            origin = by._replace(place=f"{place}, {by.place}")
        at.batch.launch.undefined_memory.setdefault(at.site.instruction.line, origin)
    return shadow


@instruction("tcgen05.st", operands="[] _ _?", modifiers=f"unpack::16b {_MODIFIERS}")
def store(site: Site) -> Action:
    """tcgen05.st.sync.aligned.shape.num{.unpack::16b}.b32 [taddr]{, immHalfSplitoff}, r."""
    split = _SPLIT in site.parts
    site.takes(3 if split else 2)
    values = site.items(2 if split else 1)
    fragment = _fragment_of(site, len(values), split=1)

    def run(ex: Execution, address: Array, mask: Array, *data: Array) -> None:
        rows = np.stack([by_warp(ex.group, each) for each in data])
        for at, (where, _) in issue.issuing_warps(site, ex, (address, mask)):
            lane, column = _reach(at, where, fragment, "write")
            _note(at, fragment, lane, column, writes=True)
            memory, words = issue.memory_of(at), rows[:, at.lane // 32]
            lanes, columns = fragment.lane + lane, fragment.column + column
            memory.words[columns, lanes] = words & np.uint32(0xFFFF) if fragment.packed else words
            memory.defined[columns, lanes] = True
            if fragment.packed:
                memory.words[columns + 1, lanes] = words >> np.uint32(16)
                memory.defined[columns + 1, lanes] = True
            issue.count_bytes(at, words.nbytes)

    def shadow(
        ex: Execution, given: Sequence[Array], shadows: Sequence[Array]
    ) -> tuple[Array, ...]:
        nobody = np.zeros(ex.group.lanes.size, np.bool_)
        if any(each.any() for each in shadows[2:]):
            _keep_undefined(site, ex, fragment, given, shadows[2:])
        return (ex.group.fold(nobody),)

    site.sources.extend(Source(each, "b32") for each in (ALL_LANES, *values))
    return site.action("store", run, gate=member_gate(1), shadow=shadow)


def _keep_undefined(
    site: Site, ex: Execution, fragment: Fragment, given: Sequence[Array], shadows: Sequence[Array]
) -> None:
    """Mark words that were stored from undefined registers as undefined."""
    launch, line = ex.batch.launch, site.instruction.line
    rows = np.stack([by_warp(ex.group, each) for each in shadows])
    addresses = by_warp(ex.group, given[0])
    for warp in whole_warps(site, ex).tolist():
        at = site.lane(ex.batch, 32 * warp)
        lane, column = _reach(at, int(addresses[warp, 0]), fragment, "write")
        bad = rows[:, warp] != 0
        memory = issue.memory_of(at)
        for behind in range(1 + fragment.packed):
            columns = (fragment.column + column + behind)[bad]
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
