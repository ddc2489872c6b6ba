"""atom and red on global and shared memory.

Lanes act one after the other, in lane order; in one of the orders of a launch, warps go backwards
at every second instruction. Those with different addresses go at the same time, by the lane
function that the same arithmetic instruction uses.
"""

from collections.abc import Callable, Sequence

import numpy as np

from nvfp4.emulator.arithmetic import resolve
from nvfp4.emulator.arrays import Array, begin_of_runs, halves_of, pairs_of
from nvfp4.emulator.errors import OutOfBounds, UninitialisedShared
from nvfp4.emulator.instructions import access_shape, global_access, shared_access
from nvfp4.emulator.instructions.action import Action, Result, Site, Source, instruction
from nvfp4.emulator.ptx.types import register_class, type_bits
from nvfp4.emulator.state import native
from nvfp4.emulator.state.batch import Batch, Execution
from nvfp4.emulator.state.memory import WRITTEN
from nvfp4.emulator.state.races import first_unwritten

Update = Callable[[Array, Array, Array], Array]

_ROUNDED = ("f16", "f16x2", "bf16", "bf16x2", "f32", "f64")
OPERATIONS = ("and", "or", "xor", "exch", "add", "inc", "dec", "min", "max", "cas")


def update_of(site: Site, space: str) -> Update:
    """Return the function (old, b, c) -> new."""
    operation = next((p for p in site.parts if p in OPERATIONS), None)
    if operation is None:
        raise site.unsupported(f"{site.opcode} names no operation")
    if operation == "exch":
        return lambda old, b, c: b
    if operation == "cas":
        return lambda old, b, c: np.where(old == b, c, old)
    if operation == "inc":
        return lambda old, b, c: np.where(old >= b, old.dtype.type(0), old + old.dtype.type(1))
    if operation == "dec":
        return lambda old, b, c: np.where((old == 0) | (old > b), b, old - np.uint32(1))
    type_name = site.type()
    # In global memory the addition flushes subnormal numbers; in shared memory it does not.
    flushes = type_name == "f32" and operation == "add" and space == "global"
    function = resolve("add.ftz.f32" if flushes else f"{operation}.{type_name}").function
    return lambda old, b, c: function(old, b)[0]


@instruction("atom", "red")
def atomic(site: Site) -> Action:
    """atom{.sem}{.scope}{.space}.op.type d, [a], b{, c}; red, without d."""
    returns = site.parts[0] == "atom"
    access_shape.known_modifiers(site, "noftz", *OPERATIONS)
    if "async" in site.parts:
        raise site.unsupported(f"{site.opcode} is not emulated")
    bits = type_bits(site.type())
    if bits not in (16, 32, 64):
        raise site.unsupported(f"{site.opcode}: {bits}-bit atomics are not emulated")
    first = int(returns)
    compare = "cas" in site.parts
    site.takes(first + 2 + compare, first + 3 + compare)
    memory = site.memory(first)
    values = site.items(first + 1)
    third = site.items(first + 2) if compare else ()
    count = access_shape.elements_of(site, first + 1)
    if returns:
        access_shape.elements_of(site, 0)
    if compare:
        access_shape.elements_of(site, first + 2)
    space = access_shape.space_of(site)
    what = access_shape.Access(site, space, bits // 8, count)
    updates = {s: update_of(site, s) for s in ("global", "shared")}
    cls = register_class(what.size)
    sources = [Source(memory, "b64")]
    sources += [Source(value, cls) for value in (*values, *third)]
    results = [Result(target, cls) for target in site.items(0)] if returns else []

    def run(ex: Execution, address: Array, *data: Array) -> tuple[Array, ...]:
        group, at = ex.group, ex.positions()
        flat, lanes = group.spread(address)[at], group.lanes[at]
        b = [group.spread(value)[at] for value in data[:count]]
        c = [group.spread(value)[at] for value in data[count:]] or b
        old = np.zeros((count, group.lanes.size), what.dtype)
        if at.size:
            spaces = [(space, None)] if space != "generic" else access_shape.split_windows(flat)
            for part, mask in spaces:
                some = np.arange(at.size) if mask is None else np.flatnonzero(mask)
                if part == "local":  # as a GPU, which ends with cudaErrorInvalidAddressSpace
                    site.lane(ex.batch, lanes[some[0]]).fault(
                        OutOfBounds,
                        f"{site.parts[0]} at a generic address in the thread's local memory: "
                        "atomics reach global and shared memory alone",
                        hint="a variable that the thread alone has needs no atomic; put what "
                        "threads share in shared or global memory",
                    )
                operands = [v[some] for v in b], [v[some] for v in c]
                before = apply(
                    ex.batch, what, part, updates[part], flat[some], lanes[some], *operands
                )
                old[:, at[some]] = before
        return tuple(group.fold(row) for row in old)

    return Action("atomic", sources, results, run)


def apply(
    batch: Batch, what: access_shape.Access, space: str, update: Update, address: Array,
    lanes: Array, b: list[Array], c: list[Array]
) -> Array:  # fmt: skip
    """Update memory and return the old values, [elements, lanes]."""
    batch.traffic.atomics += address.size
    if space == "shared":
        offset = shared_access.locate(batch, what, address, lanes, WRITTEN)
        words, meeting = np.unique(pairs_of(lanes >> 5, offset), return_counts=True)
        warps, first = np.unique(halves_of(words)[0], return_index=True)
        turns = np.maximum.reduceat(meeting, first)
        batch.launch.work.asked[what.site.instruction.start].turns += int(turns.sum())
        batch.launch.work.spend(-what.site.instruction.start, batch.by_cta(warps, turns))
        if batch.shared.checked:
            if "exch" not in what.site.parts:
                unwritten, count = first_unwritten(batch.shared.stamps, offset)
                if count:
                    place = batch.shared.address(offset[unwritten])
                    what.site.lane(batch, lanes[unwritten]).note(
                        UninitialisedShared,
                        f"atomic on shared address {place:#x}, which nothing has written",
                        count=count,
                    )
            shared_access.note_writes(
                batch, what.site, what.nbytes, offset, lanes, np.stack(b), atomic=True
            )
            shared_access.meet_by_atomics(batch, what.site, offset, lanes)
        address = batch.shared.host(offset)
    else:
        global_access.locate(batch, what, address, lanes, WRITTEN)
        global_access.note_atomics(batch, what, address, lanes)
        cta = batch.numbers[lanes // batch.grid.threads]
        batch.launch.work.updates.note(what.site.instruction.start, address, lanes >> 5, cta)
    batch.launch.rounds |= "add" in what.site.parts and what.site.type() in _ROUNDED
    old = access_shape.data_of(what, address.size)
    batch.signals.atomics += 1
    if batch.launch.order.late == "told" and batch.signals.atomics % 2 == 0:  # the last warps first
        order = np.lexsort((lanes, -(lanes >> 5), address))
    else:
        order = np.argsort(address, kind="stable")
    starts = np.flatnonzero(begin_of_runs(address[order]))
    length = np.diff(np.append(starts, address.size))
    same = np.zeros(address.size, np.bool_)
    # Each turn performs the next lane of every address.
    for turn in range(int(length.max())):
        now = order[starts[length > turn] + turn]
        held = access_shape.data_of(what, now.size)
        native.gather(address[now], held)
        old[:, now] = held
        new = [update(held[i], b[i][now], c[i][now]) for i in range(what.elements)]
        stored = np.stack(new).astype(old.dtype, copy=False)
        native.scatter(address[now], stored)
        same[now] = kept = (stored == held).all(axis=0)
        batch.signals.changed |= not kept.all()
    if same.any() and _may_poll(what.site.parts, b):
        thread = int(batch.numbers[0]) << 32 | int(lanes[same][0])
        batch.launch.work.look(what.site.instruction.start, thread, address[same])
    return old


def _may_poll(parts: Sequence[str], b: list[Array]) -> bool:
    """Return whether an atomic that changes nothing may only look what others have done."""
    if parts[0] != "atom":
        return False
    adds = "add" in parts or "or" in parts
    return "cas" in parts or "exch" in parts or (adds and not np.any(b))
