"""tcgen05.alloc, dealloc and relinquish_alloc_permit: by a warp."""

from collections import Counter

import numpy as np

from nvfp4.emulator.errors import TensorMemoryFault
from nvfp4.emulator.instructions import access, warp
from nvfp4.emulator.instructions.access_shape import Access
from nvfp4.emulator.instructions.action import Action, LaneSite, Site, Source, instruction
from nvfp4.emulator.instructions.tensor import issue
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.batch import Batch, Execution
from nvfp4.emulator.state.tensor_memory import COLUMNS, LEAST_COLUMNS, TensorMemory, split_address
from nvfp4.emulator.state.tensor_pipe import ALL_PARTS


class _Allocations:
    """The allocations of tensor memory in a batch.

    places: the instruction that allocated columns, by (CTA's row, first column). asked, done: how
    many allocations the warps of each CTA have reached and executed. granted: allocations of a
    pair, which are made together: (first column, columns), by (first row, number).
    """

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.places: dict[tuple[int, int], LaneSite] = {}
        self.asked: Counter[int] = Counter()
        self.done: Counter[int] = Counter()
        self.granted: dict[tuple[int, int], tuple[int, int]] = {}

    def ready(self, rows: range, row: int, count: int) -> bool:
        """Return whether a warp of a CTA can allocate now.

        Enough columns must be free, and a warp of a pair's other CTA must allocate, too. rows: the
        rows of the CTA or pair.
        """
        number = self.done[row] + 1
        if self.asked[row] < number:
            self.asked[row] = number
            self.batch.signals.changed = True
        if any(self.asked[each] < number for each in rows):
            return False
        tensors = self.batch.kept(TensorMemory)
        if (rows[0], number) in self.granted or count > COLUMNS or not tensors.rows[row].permitted:
            return True
        return tensors.room_for(rows, count) is not None

    def grant(self, at: LaneSite, rows: range, count: int) -> int:
        """Return the first column of the allocation that a lane's warp gets."""
        row = issue.row_of(at)
        self.done[row] += 1
        key = rows[0], self.done[row]
        given = self.granted.pop(key, None)
        first = self.batch.kept(TensorMemory).room_for(rows, count) if given is None else given[0]
        if first is None:
            at.fault(
                TensorMemoryFault,
                f"{count} columns of tensor memory are not free, and warps of one CTA ask for them",
                hint="one warp allocates all that the CTA needs",
            )
        if given is None and len(rows) > 1:
            self.granted[key] = first, count
        if given is not None and given[1] != count:
            at.fault(
                TensorMemoryFault,
                f"{at.site.opcode} of {count} columns, where the other CTA of the pair has asked "
                f"for {given[1]}",
                hint="both CTAs of a pair allocate the same",
            )
        return first


def _counted(at: LaneSite, count: int) -> int:
    if count & (count - 1) or not LEAST_COLUMNS <= count <= COLUMNS:
        what = f"{at.site.opcode} of {count} columns"
        hint = f"the count is a power of two from {LEAST_COLUMNS} to {COLUMNS}"
        at.fault(TensorMemoryFault, what, hint=hint)
    return count


@instruction(
    "tcgen05.alloc", operands="[] b32",
    modifiers=f"{issue.ONE_GROUP} sync aligned shared shared::cta b32",
)  # fmt: skip
def alloc(site: Site) -> Action:
    """tcgen05.alloc.cta_group.sync.aligned{.shared::cta}.b32 [dst], nCols: waits for free columns
    and writes the address of the first one to shared memory."""
    group, together = issue.group_of(site), warp.member_gate(2)
    word = Access(site, "shared", 4, 1)

    def gate(ex: Execution, target: Array, count: Array, mask: Array) -> Array | None:
        ready = together(ex, target, count, mask)
        allocations, warps = ex.batch.kept(_Allocations), ex.batch.grid.warps
        room = np.ones((ex.batch.grid.ctas * warps, 32), np.bool_)
        wanted, present = warp.by_warp(ex.group, count), warp.present_lanes(ex).any(axis=1)
        # Those of a pair may come in one group: all have to be seen before any is let through.
        for _ in range(group):
            for which in np.flatnonzero(present).tolist():
                rows = issue.join(site.lane(ex.batch, 32 * which), group)
                room[which] = allocations.ready(rows, which // warps, int(wanted[which].max()))
        if room.all():
            return ready
        free = ex.group.spread(warp.back(ex.group, room))
        return free if ready is None else free & ready

    def run(ex: Execution, target: Array, count: Array, mask: Array) -> None:
        warp.synchronised(ex.batch, warp.present_lanes(ex))
        granted: dict[tuple[int, int], list[int]] = {}
        for at, (where, number, _) in issue.issuing_warps(site, ex, (target, count, mask)):
            tensor, row = issue.memory_of(at), issue.row_of(at)
            if not tensor.permitted:
                at.fault(TensorMemoryFault, f"{site.opcode} after tcgen05.relinquish_alloc_permit")
            allocations = ex.batch.kept(_Allocations)
            first = allocations.grant(at, issue.join(at, group), _counted(at, number))
            if tensor.allocate(first, number):
                issue.pipes_of(at).forget(row, slice(first, first + number))
            granted.setdefault((first, number), []).append(row)
            allocations.places[row, first] = at
            lanes, address = np.array([at.lane]), np.array([where], np.uint64)
            access.write(ex.batch, word, "shared", address, lanes, np.array([[first]], np.uint32))
        for columns, rows in granted.items():
            ex.batch.kept(TensorMemory).fill(np.array(rows), *columns)

    site.sources.append(Source(warp.ALL_LANES, "b32"))
    return site.action("store", run, gate=gate)


@instruction("tcgen05.dealloc", operands="b32 b32", modifiers=f"{issue.ONE_GROUP} sync aligned b32")
def dealloc(site: Site) -> Action:
    """tcgen05.dealloc.cta_group.sync.aligned.b32 taddr, nCols. Each CTA of a pair gives back its
    own."""
    group = issue.group_of(site)

    def run(ex: Execution, target: Array, count: Array, mask: Array) -> None:
        for at, (address, number, _) in issue.issuing_warps(site, ex, (target, count, mask)):
            issue.join(at, group)
            lane, column = split_address(address)
            tensor = issue.memory_of(at)
            held = tensor.allocated.get(column)
            if lane or held != _counted(at, number):
                what = "is no allocation" if held is None else f"has {held}"
                at.fault(
                    TensorMemoryFault,
                    f"tcgen05.dealloc of {number} columns from lane {lane}, column {column}, "
                    f"which {what}",
                    hint="give back the address and the count of tcgen05.alloc",
                )
            if ex.batch.shared.checked:
                columns, row = slice(column, column + number), issue.row_of(at)
                pipes = issue.pipes_of(at)
                found = pipes.conflict(at.lane, row, columns, ALL_PARTS, writes=True)
                pipes.wait(at.lane, writes=True)
                issue.note_conflict(at, "deallocation", address, found)
            tensor.free(column)
            ex.batch.kept(_Allocations).places.pop((issue.row_of(at), column), None)
        ex.batch.signals.changed = True

    site.sources.append(Source(warp.ALL_LANES, "b32"))
    return site.action("store", run, gate=warp.member_gate(2))


@instruction(
    "tcgen05.relinquish_alloc_permit", operands="", modifiers=f"{issue.ONE_GROUP} sync aligned"
)
def relinquish(site: Site) -> Action:
    """tcgen05.relinquish_alloc_permit.cta_group.sync.aligned: no more allocations."""
    group = issue.group_of(site)

    def run(ex: Execution, mask: Array) -> None:
        for at, _ in issue.issuing_warps(site, ex, (mask,)):
            issue.join(at, group)
            issue.memory_of(at).permitted = False

    return Action("special", [Source(warp.ALL_LANES, "b32")], [], run, warp.member_gate(0))


def require_freed(batch: Batch) -> None:
    """Fault if one of the CTAs, which have ended, has not given back its columns. Waits for changes
    in the background."""
    memory = batch.held(TensorMemory)
    if memory is None:
        return
    memory.words()
    for (row, first), at in batch.kept(_Allocations).places.items():
        count = memory.rows[row].allocated[first]
        at.fault(
            TensorMemoryFault,
            f"the CTA ends with {count} columns of tensor memory allocated here: the next CTA of "
            "the multiprocessor that allocates some waits for ever",
            hint="tcgen05.dealloc them, by a warp, when all have read their results",
        )
