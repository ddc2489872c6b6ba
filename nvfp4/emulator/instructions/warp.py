"""Instructions of a whole warp: shfl, vote, match, redux, elect, activemask, bar.warp.sync.

The `.sync` forms wait, by their gate, until every living thread that the member mask names has
come to the instruction. A thread that its own mask does not name is a finding; hardware lets all
threads that execute the instruction together take part, and so does this.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from nvfp4.emulator.arithmetic import resolve
from nvfp4.emulator.arithmetic.definedness import any_undefined, spread
from nvfp4.emulator.arrays import Array, Arrays
from nvfp4.emulator.errors import BarrierMisuse, InactiveSource, MissingWarpSync, OutOfBounds
from nvfp4.emulator.instructions import access, action
from nvfp4.emulator.instructions import undefined as undefined_memory
from nvfp4.emulator.instructions.access_shape import Access, space_of, split_windows
from nvfp4.emulator.ptx.syntax import Integer
from nvfp4.emulator.ptx.types import REGISTER_DTYPES
from nvfp4.emulator.state import native
from nvfp4.emulator.state.batch import Batch, Execution, Origin
from nvfp4.emulator.state.group import Group

ALL_LANES = Integer(0xFFFFFFFF)
"""The member mask of a whole warp."""


def ballot(warps: Array) -> Array:
    """Return bool[warps, 32] as uint32[warps]."""
    return np.packbits(warps, axis=1, bitorder="little").view(np.uint32).reshape(-1)


def by_warp(group: Group, values: Array, fill: Any = 0) -> Array:
    """Return values as rows of 32 lanes, one row for each warp of the batch. Lanes outside the
    group get `fill`."""
    if group.full:
        return group.spread(values).reshape(-1, 32)
    out = np.full(group.grid.lane.size, fill, values.dtype)
    out[group.lanes] = values
    return out.reshape(-1, 32)


def present_lanes(ex: Execution) -> Array:
    """Return which lanes execute this, bool[warps, 32]."""
    return by_warp(ex.group, np.ones(1, np.bool_) if ex.guard is None else ex.guard, False)


def back(group: Group, rows: Array) -> Array:
    """Return a register of the group from values [warps, 32]."""
    return group.fold(rows.reshape(-1) if group.full else rows.reshape(-1)[group.lanes])


def registers_of(ex: Execution, warps: Array, values: Array) -> tuple[Array, ...]:
    """Return the group's registers from those of some warps of the batch, [registers, warps,
    lanes]."""
    out = np.zeros((len(values), ex.batch.grid.lane.size // 32, 32), values.dtype)
    out[:, warps] = values
    return tuple(back(ex.group, rows) for rows in out)


def member_gate(mask_source: int) -> action.Gate:
    """Return a gate that waits for the threads in the member mask. mask_source: index of the source
    with the mask."""

    def gate(ex: Execution, *sources: Array) -> Array | None:
        batch, group, guard = ex
        if group.whole and guard is None:
            return None
        living = ballot(batch.alive.reshape(-1, 32))
        here = ballot(present_lanes(ex))
        absent = by_warp(group, sources[mask_source]) & (living & ~here)[:, None]
        ready: Array = group.spread(back(group, absent == 0))
        return ready if guard is None else ready | ~group.spread(guard)

    return gate


def whole_warps(site: action.Site, ex: Execution) -> Array:
    """Return the warps of which all 32 threads execute this."""
    present = present_lanes(ex)
    warps = np.flatnonzero(present.any(axis=1))
    missing = np.flatnonzero(~present[warps].all(axis=1))
    if missing.size:
        warp = warps[missing[0]]
        at = site.lane(ex.batch, 32 * warp + int(present[warp].argmax()))
        what = f"{site.opcode} is executed by only {int(present[warp].sum())} threads of a warp"
        at.fault(BarrierMisuse, what, hint="all 32 must execute it together")
    return warps


def synchronised(batch: Batch, present: Array) -> None:
    """Tell the race check that this orders the warps' threads."""
    step(batch, np.flatnonzero(present.any(axis=1)))


def step(batch: Batch, warps: Array) -> None:
    """Tell the race check that something orders the threads of each of these warps."""
    if batch.shared.checked:
        batch.shared.clocks.step_warps(*np.divmod(warps, batch.clusters.warps))


_BITS = np.uint32(1) << np.arange(32, dtype=np.uint32)


def _members(site: action.Site, ex: Execution, mask: Array) -> tuple[Array, Array]:
    """Return (lanes that execute this, member masks), [warps, 32] each, which the instruction
    synchronises.

    In a warp with threads outside their own masks, every mask is that of the executing lanes.
    """
    present = present_lanes(ex)
    members = by_warp(ex.group, mask)
    outside = present & ((members & _BITS) == 0)
    if outside.any():
        lane = int(np.flatnonzero(outside)[0])
        site.lane(ex.batch, lane).note(
            MissingWarpSync,
            f"{site.opcode}: the thread is not in its own member mask "
            f"{int(members.reshape(-1)[lane]):#010x}",
            hint="name every lane that executes the instruction, such as 0xffffffff",
            count=int(np.count_nonzero(outside)),
        )
        members = np.where(outside.any(axis=1)[:, None], ballot(present)[:, None], members)
    synchronised(ex.batch, present)
    return present, members


def _shared_by_members(cls: str, bit_by_bit: bool = False) -> action.Shadow:
    """Return the shadow of a result that the members of a mask compute together; the last source is
    the mask.

    It is undefined for all if it is for one, or only in that lane's bit.
    """

    def shadow(ex: Execution, values: Arrays, shadows: Arrays) -> tuple[Array, ...]:
        bad = ballot(by_warp(ex.group, any_undefined(shadows), False) & present_lanes(ex))
        found = by_warp(ex.group, values[-1]) & bad[:, None]
        if bit_by_bit:
            return (back(ex.group, found),)
        return (back(ex.group, spread(found != 0, REGISTER_DTYPES[cls])),)

    return shadow


_SHUFFLES = ("up", "down", "bfly", "idx")  # in the order of native.shuffle
_ABSENT_HINT = (
    "let all lanes that are read execute it: keep them until the last shuffle, with a neutral value"
)


@action.instruction(
    "shfl", operands="=b32|pred b32 b32 b32 b32", modifiers="sync! b32 up|down|bfly|idx"
)
def shfl(site: action.Site) -> action.Action:
    """shfl.sync.mode.b32 d|p, a, b, c, membermask. c: bits 0-4 clamp, 8-12 segment mask.

    What is read of a lane that does not execute it (it has exited, or is on another path) is
    undefined.
    """
    mode = site.one_of(*_SHUFFLES)

    def moved(ex: Execution, rows: Array, b: Array, c: Array) -> tuple[Array, Array]:
        shuffled, valid = np.empty(rows.shape, np.uint32), np.empty(rows.shape, np.bool_)
        step, clamp = by_warp(ex.group, b), by_warp(ex.group, c)
        native.shuffle(_SHUFFLES.index(mode), rows, step, clamp, shuffled, valid)
        return shuffled, valid

    def shadow(ex: Execution, values: Arrays, shadows: Arrays) -> tuple[Array, ...]:
        astray = any_undefined(shadows[1:])
        theirs = by_warp(ex.group, shadows[0])
        if not _complete(ex, values[3]):
            theirs = np.where(present_lanes(ex), theirs, np.uint32(0xFFFFFFFF))
        rows, _ = moved(ex, theirs, values[1], values[2])
        return back(ex.group, rows) | spread(astray, np.dtype(np.uint32)), astray

    def run(ex: Execution, value: Array, b: Array, c: Array, mask: Array) -> tuple[Array, ...]:
        rows = by_warp(ex.group, value)
        if _complete(ex, mask):
            synchronised(ex.batch, np.ones_like(rows, np.bool_))
        else:
            present, _ = _members(site, ex, mask)
            if not present.all():
                lanes = np.broadcast_to(np.arange(32, dtype=np.uint32), rows.shape)
                source, _ = moved(ex, lanes, b, c)
                absent = present & ~np.take_along_axis(present, source.astype(np.int64), axis=1)
                if absent.any() and ex.batch.launch.check:  # reported when the value is used
                    lane = int(source[absent][0])
                    place = f"lane {lane} of the warp, which does not execute {site.opcode}"
                    origin = Origin(InactiveSource, place, _ABSENT_HINT)
                    ex.batch.launch.undefined_memory.setdefault(site.instruction.line, origin)
                noise = ex.batch.launch.order.bytes(128, salt=3).view(np.uint32)
                rows = np.where(present, rows, noise)
        shuffled, valid = moved(ex, rows, b, c)
        return back(ex.group, shuffled), back(ex.group, valid)

    return site.action("warp", run, gate=member_gate(3), shadow=shadow, loads=True)


def _complete(ex: Execution, mask: Array) -> bool:
    """Return whether all lanes of all warps execute this, and the member mask names them all."""
    return ex.group.full and _names_all(ex, mask)


def _names_all(ex: Execution, mask: Array) -> bool:
    """Return whether all of the group execute this, and the member mask names all lanes."""
    return ex.guard is None and mask.size == 1 and mask.reshape(-1)[0] == 0xFFFFFFFF


# The answer of each mode: from the lanes that say yes and those that take part, as bit sets.
_VOTES: dict[str, Callable[[Array, Array], Array]] = {
    "all": lambda votes, here: votes == here,
    "any": lambda votes, here: votes != 0,
    "uni": lambda votes, here: (votes == here) | (votes == 0),
    "ballot": lambda votes, here: votes,
}


@action.instruction("vote", operands="_ pred b32", modifiers="sync! all|any|uni|ballot pred b32")
def vote(site: action.Site) -> action.Action:
    """vote.sync.{all,any,uni}.pred and vote.sync.ballot.b32 d, {!}a, membermask."""
    mode = site.one_of(*_VOTES)

    def run(ex: Execution, value: Array, mask: Array) -> tuple[Array, ...]:
        present, members = _members(site, ex, mask)
        here = ballot(present)[:, None] & members
        votes = ballot(by_warp(ex.group, value, False) & present)[:, None] & members
        return (back(ex.group, _VOTES[mode](votes, here)),)

    cls = "b32" if mode == "ballot" else "pred"
    site.results.append(action.Result(site.operands[0], cls))
    shadow = _shared_by_members(cls, bit_by_bit=mode == "ballot")
    return site.action("warp", run, gate=member_gate(1), shadow=shadow)


@action.instruction("match", operands="=b32|pred type b32", modifiers="sync! any|all b32|b64")
def match(site: action.Site) -> action.Action:
    """match.any.sync.b32 d, a, membermask; match.all.sync.b32 d|p, a, membermask."""
    every = site.one_of("any", "all") == "all"

    def run(ex: Execution, value: Array, mask: Array) -> tuple[Array, ...]:
        present, members = _members(site, ex, mask)
        rows = by_warp(ex.group, value)
        here = ballot(present)[:, None] & members
        equal = np.zeros(rows.shape, np.uint32)
        for lane in range(32):
            same = (rows == rows[:, lane : lane + 1]) & present[:, lane : lane + 1]
            equal |= np.where(same, _BITS[lane], np.uint32(0))
        equal &= here
        agreed = equal == here
        found = np.where(agreed, here, np.uint32(0)) if every else equal
        return back(ex.group, found), back(ex.group, agreed)

    lanes, flag = _shared_by_members("b32"), _shared_by_members("pred")

    def shadow(ex: Execution, values: Arrays, shadows: Arrays) -> tuple[Array, ...]:
        return (*lanes(ex, values, shadows), *flag(ex, values, shadows))

    return site.action("warp", run, gate=member_gate(1), shadow=shadow)


_INTEGER_FOLDS: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "min": np.minimum, "max": np.maximum,
}  # fmt: skip


@action.instruction(
    "redux", operands="=b32 b32 b32",
    modifiers="sync! add|and|or|xor|min|max u32|s32|b32|f32 abs NaN",
)  # fmt: skip
def redux(site: action.Site) -> action.Action:
    """redux.sync.op.{u32,s32,b32,f32} d, a, membermask."""
    operation, type_name = site.one_of(*_INTEGER_FOLDS), site.type()
    fold = _INTEGER_FOLDS[operation]
    if type_name == "f32":
        nan = ".NaN" if "NaN" in site.parts else ""
        extreme = resolve(f"{operation}{nan}.f32").function
        fold = lambda a, b: extreme(a, b)[0]  # noqa: E731
    dtype = np.int32 if type_name == "s32" else np.uint32
    absolute = resolve("abs.f32").function if "abs" in site.parts else None

    def run(ex: Execution, value: Array, mask: Array) -> tuple[Array, ...]:
        present, members = _members(site, ex, mask)
        if absolute is not None:
            (value,) = absolute(value)
        rows = by_warp(ex.group, value).view(dtype)
        if type_name == "f32":
            rows = fold(rows, rows)  # one lane alone gives the canonical NaN, too
        out = np.zeros(rows.shape, dtype)
        for members_of in _distinct(members, present):
            taking = present & ((members & _BITS) != 0) & (members == members_of[:, None])
            total = np.zeros(rows.shape[0], dtype)
            started = np.zeros(rows.shape[0], np.bool_)
            for lane in range(32):
                column = np.ascontiguousarray(rows[:, lane])
                merged = np.where(started, fold(total, column), column)
                total = np.where(taking[:, lane], merged, total).astype(dtype)
                started |= taking[:, lane]
            out = np.where(taking, total[:, None], out)
        return (back(ex.group, out.view(np.uint32)),)

    return site.action("warp", run, gate=member_gate(1), shadow=_shared_by_members("b32"))


def _distinct(members: Array, present: Array) -> list[Array]:
    """Return the different member masks of each warp, as arrays uint32[warps] with one mask per
    warp."""
    left = present.copy()
    found = []
    while left.any():
        masks = members[np.arange(left.shape[0]), left.argmax(axis=1)]
        found.append(masks)
        left &= members != masks[:, None]
    return found


@action.instruction("elect", operands="=b32|pred b32", modifiers="sync!")
def elect(site: action.Site) -> action.Action:
    """elect.sync d|p, membermask: the lowest member leads."""

    def run(ex: Execution, mask: Array) -> tuple[Array, ...]:
        if ex.group.whole and _names_all(ex, mask):
            step(ex.batch, ex.group.each_warp)
            return np.zeros(1, np.uint32), ex.group.fold(ex.group.lanes & 31 == 0)
        present, members = _members(site, ex, mask)
        here = ballot(present)[:, None] & members
        lowest = here & (~here + np.uint32(1))
        leader = np.maximum(np.frexp(lowest)[1] - 1, 0).astype(np.uint32)
        return back(ex.group, leader), back(ex.group, lowest == _BITS)

    return site.action("warp", run, gate=member_gate(0))


@action.instruction("activemask", operands="=b32")
def activemask(site: action.Site) -> action.Action:
    """activemask.b32 d: the threads of the warp that are here now."""

    def run(ex: Execution) -> tuple[Array, ...]:
        present = present_lanes(ex)
        return (back(ex.group, np.broadcast_to(ballot(present)[:, None], present.shape)),)

    return site.action("warp", run)


@action.instruction("bar.warp", operands="b32?", modifiers="sync!")
def bar_warp(site: action.Site) -> action.Action:
    """bar.warp.sync membermask."""

    def run(ex: Execution, mask: Array) -> None:
        _members(site, ex, mask)

    if not site.sources:
        site.sources.append(action.Source(ALL_LANES, "b32"))
    return site.action("barrier", run, gate=member_gate(0))


_ROWS = 8
_MODIFIERS = "sync! aligned! m8n8! x1|x2|x4 trans shared shared::cta b16!"


@action.instruction("ldmatrix", operands="_ []", modifiers=_MODIFIERS)
def ldmatrix(site: action.Site) -> action.Action:
    """ldmatrix.sync.aligned.m8n8.{x1,x2,x4}{.trans}{.shared}.b16 r, [p]."""
    targets = site.items(0)
    count, what, transposed = _matrices(site, len(targets))

    def run(ex: Execution, address: Array, mask: Array) -> tuple[Array, ...]:
        warps, lanes, flat = _addressed(site, ex, count, address)
        data = access.read(ex.batch, what, "shared", flat, lanes)
        synchronised(ex.batch, present_lanes(ex))
        return registers_of(ex, warps, _fragments(data, count, transposed))

    def shadow(ex: Execution, values: Arrays, shadows: Arrays) -> tuple[Array, ...]:
        warps, lanes, flat = _addressed(site, ex, count, values[0])
        data = undefined_memory.fetch(ex.batch, what, "shared", lanes, flat)
        return registers_of(ex, warps, _fragments(data, count, transposed))

    site.sources.append(action.Source(ALL_LANES, "b32"))
    site.results.extend(action.Result(target, "b32") for target in targets)
    return site.action("load", run, gate=member_gate(1), shadow=shadow, loads=True)


@action.instruction("stmatrix", operands="[] _", modifiers=_MODIFIERS)
def stmatrix(site: action.Site) -> action.Action:
    """stmatrix.sync.aligned.m8n8.{x1,x2,x4}{.trans}{.shared}.b16 [p], r."""
    values = site.items(1)
    count, what, transposed = _matrices(site, len(values))

    def run(ex: Execution, address: Array, mask: Array, *registers: Array) -> None:
        warps, lanes, flat = _addressed(site, ex, count, address)
        data = _rows([by_warp(ex.group, each)[warps] for each in registers], transposed)
        access.write(ex.batch, what, "shared", flat, lanes, data)
        synchronised(ex.batch, present_lanes(ex))

    def shadow(ex: Execution, values: Arrays, shadows: Arrays) -> tuple[Array, ...]:
        warps, lanes, flat = _addressed(site, ex, count, values[0])
        data = _rows([by_warp(ex.group, each)[warps] for each in shadows[2:]], transposed)
        undefined_memory.keep(ex.batch, what, "shared", lanes, flat, data)
        return (np.zeros(1, np.bool_),)

    site.sources.extend(action.Source(each, "b32") for each in (ALL_LANES, *values))
    return site.action("store", run, gate=member_gate(1), shadow=shadow)


def _matrices(site: action.Site, given: int) -> tuple[int, Access, bool]:
    """Return how many matrices an instruction moves, which is the number of its registers, its
    access to each row, and whether it transposes them."""
    count = int(site.one_of("x1", "x2", "x4")[1])
    if given != count:
        raise site.unsupported(f"{site.opcode}: {given} registers for {count} matrices")
    return count, Access(site, space_of(site), 8, 2), "trans" in site.parts


def _addressed(
    site: action.Site, ex: Execution, count: int, address: Array
) -> tuple[Array, Array, Array]:
    """Return row by row (warps, lanes that hold the row's address, those addresses)."""
    warps = whole_warps(site, ex)
    holders = np.arange(_ROWS * count)
    lanes = (32 * warps[:, None] + holders).reshape(-1)
    flat = np.ascontiguousarray(by_warp(ex.group, address)[warps][:, holders]).reshape(-1)
    if space_of(site) == "generic":
        for space, mask in split_windows(flat):
            if space != "shared":
                lane = lanes[0 if mask is None else int(mask.argmax())]
                what = f"{site.opcode}: the address is not in shared memory"
                site.lane(ex.batch, lane).fault(OutOfBounds, what)
    return warps, lanes, flat


def _fragments(data: Array, count: int, transposed: bool) -> Array:
    """Convert rows, uint64[2, rows], to registers, uint32[matrices, warps, lanes]."""
    elements = np.ascontiguousarray(data.T).view(np.uint16).reshape(-1, count, _ROWS, 8)
    if transposed:
        elements = elements.swapaxes(2, 3)
    words = np.ascontiguousarray(elements).view(np.uint32)
    return words.reshape(-1, count, 32).swapaxes(0, 1)


def _rows(registers: Arrays, transposed: bool) -> Array:
    """Convert registers, each uint32[warps, lanes], to uint64[2, rows]; the inverse of
    `_fragments`."""
    elements = np.stack(registers, axis=1).view(np.uint16)
    elements = elements.reshape(-1, len(registers), _ROWS, 8)
    if transposed:
        elements = elements.swapaxes(2, 3)
    words = np.ascontiguousarray(elements).view(np.uint64).reshape(-1, 2)
    return np.ascontiguousarray(words.T)
