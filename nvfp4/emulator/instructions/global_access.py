"""Accesses to global memory: bounds, alignment, sectors, races."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

import numpy as np

from nvfp4.emulator import errors
from nvfp4.emulator.arrays import Array, begin_of_runs
from nvfp4.emulator.instructions.access_shape import Access, data_of, verb
from nvfp4.emulator.instructions.action import LaneSite, Site
from nvfp4.emulator.state import native
from nvfp4.emulator.state.batch import Batch
from nvfp4.emulator.state.global_races import FENCES, Found, Who, who_left
from nvfp4.emulator.state.group import Group
from nvfp4.emulator.state.memory import NULL_PAGE_BYTES, READ, READ_LATE, WINDOW_SHIFT, WRITTEN
from nvfp4.emulator.state.tally import Requests
from nvfp4.emulator.work import FRESH, DrawnCtas
from nvfp4.records.launch import Buffer, View
from nvfp4.records.texts import short_name

_RELEASES = frozenset(("release", "acq_rel", "seq_cst", "sc"))
_ACQUIRES = frozenset(("acquire", "acq_rel", "sc", "membar"))
_ONE_REQUEST = np.zeros(1, np.int64)


def locate(batch: Batch, access: Access, address: Array, lanes: Array, flag: int) -> None:
    """Check and count the accesses of these lanes, one address each; note races of reads."""
    requests = Requests(address, lanes >> 5, 1, lambda i: int(lanes[i]))
    _visit(batch, access, requests, flag, lanes.size)
    if flag == READ:
        _note_reads(batch, access, address, lanes)


def write(batch: Batch, access: Access, address: Array, lanes: Array, data: Array) -> None:
    """Write data[element, i] at address[i], which is checked, on behalf of lanes[i]."""
    if batch.launch.races is None or access.strong:
        note_atomics(batch, access, address, lanes)
        native.scatter(address, data)
    else:
        new = np.ascontiguousarray(data.T).view(np.uint8).reshape(lanes.size, -1)
        write_bytes(batch, access.site, address, lanes, new)


def write_bytes(batch: Batch, site: Site, address: Array, lanes: Array, new: Array) -> None:
    """Write new[i, byte] at address[i], which is checked, on behalf of lanes[i]."""
    races = batch.launch.races
    assert races is not None
    races.watch(address)
    site.record_access(batch, "global", address, new.shape[1], lanes, writes=True)
    found = races.writes(address, new, _who(batch, lanes))
    _note(batch, site, WRITTEN, new.shape[1], address, lanes, found)


def note_range_read(batch: Batch, site: Site, address: Array, nbytes: int, lane: int) -> None:
    """Record a lane's copy that reads `nbytes` at each address; the addresses have been checked."""
    _note_reads(batch, Access(site, "global", nbytes, 1), address, np.full(address.size, lane))


def note_atomics(batch: Batch, access: Access, address: Array, lanes: Array) -> None:
    """Record atomics and stores of flags at these addresses, which have been checked. Those that
    return the old value acquire what others have released there."""
    races = batch.launch.races
    if races is None:
        return
    races.watch(address)
    who = _who(batch, lanes)
    site, nbytes = access.site, access.nbytes
    site.record_access(batch, "global", address, nbytes, lanes, writes=True, atomic=True)
    found = races.reads(address, nbytes, who, atomic=True)
    _note(batch, site, WRITTEN, nbytes, address, lanes, found)
    parts = set(access.site.parts)
    acquires = site.parts[0] == "atom"
    releases = bool(parts & _RELEASES) and not parts & {"cta", "cluster"}
    races.exchange(races.channels(address), who, tells=True, acquires=acquires, publishes=releases)


def acquires_from_sms(site: Site) -> bool:
    """Whether threads acquire what those of other SMs have written: ptxas empties L1 behind it."""
    return not _ACQUIRES.isdisjoint(site.parts) and {"cta", "proxy"}.isdisjoint(site.parts)


def empty_l1(batch: Batch, lanes: Array) -> None:
    """Record that these threads invalidate their L1."""
    if batch.launch.work.samples:
        batch.kept(DrawnCtas).empty_l1(batch.grid.cta[lanes])


def note_fence(batch: Batch, lanes: Array) -> None:
    """Order what these threads did before the strong loads of other threads."""
    if batch.launch.races is not None and lanes.size:
        which = np.full(lanes.size, FENCES)
        batch.shared.clocks.publish(*batch.clusters.warps_of(lanes))
        who = _who(batch, lanes)
        batch.launch.races.exchange(which, who, tells=True, acquires=False, publishes=True)


def _who(batch: Batch, lanes: Array) -> Who:
    row = batch.clusters.cta[lanes]
    return batch.cluster_numbers(row), row, batch.clusters.thread[lanes], batch.shared.clocks


def _note_reads(batch: Batch, access: Access, address: Array, lanes: Array) -> None:
    site, races = access.site, batch.launch.races
    compared = site.instruction.start in batch.launch.apart.compared
    if compared or races is None or not races.concerns(address):
        return
    who = _who(batch, lanes)
    if access.strong:
        # A flag that others set: the reader knows what they did before they set it.
        races.exchange(races.channels(address), who, tells=False, acquires=True)
    site.record_access(batch, "global", address, access.nbytes, lanes, writes=False)
    found = races.reads(address, access.nbytes, who, nc="nc" in site.parts, strong=access.strong)
    _note(batch, site, READ, access.nbytes, address, lanes, found)


def _note(
    batch: Batch, site: Site, flag: int, nbytes: int, address: Array, lanes: Array, found: Found
) -> None:
    """Note the findings of GlobalRaces."""
    if found.early >= 0:
        _note_unpublished(batch, site, nbytes, address, lanes, found)
    bad, stamp, count = found.first, found.other, found.lanes
    if bad < 0:
        return
    at = site.lane(batch, lanes[bad])
    cta, thread = batch.member(*who_left(stamp))
    there, other = batch.place(cta, thread)
    seen = at.seen("global", int(address[bad]), nbytes, (cta, thread))
    place = batch.memory.describe(int(address[bad]))
    what = f"{verb(flag)} of {nbytes} bytes at {place} races with thread {other} of CTA {there}"
    kind: type[errors.EmulatorError] = errors.GlobalRace
    if cta != batch.numbers[at.lane // batch.grid.threads]:
        why = ": nothing orders the accesses of two CTAs"
        hint = "use atomics, or a counter that the CTAs add to after __threadfence()"
    elif thread >> 5 == at.lane % batch.grid.threads >> 5:
        kind, hint = errors.UnorderedLanes, "put a __syncwarp between the two"
        why = ", of the same warp: no __syncwarp lies between their accesses"
    else:
        why, hint = ": no barrier lies between their accesses", "put a barrier between the two"
    at.note(kind, what + why, hint, count, seen)


def _note_unpublished(
    batch: Batch, site: Site, nbytes: int, address: Array, lanes: Array, found: Found
) -> None:
    at = site.lane(batch, lanes[found.early])
    where = int(address[found.early])
    cta, thread = batch.member(*who_left(found.writer_of_early))
    there, other = batch.place(cta, thread)
    seen = at.seen("global", where, nbytes, (cta, thread))
    what = (
        f"of {nbytes} bytes at {batch.memory.describe(where)}, which thread {other} of CTA {there}"
    )
    if "nc" in site.parts:
        what = f"ld.global.nc {what} has written in this launch: that load is for memory that the "
        what += "kernel never writes, and may get what was there before"
        hint = "leave out __ldg, and const __restrict__ of a pointer to what the kernel writes"
        at.note(errors.ReadOnlyLoad, what, hint, seen=seen)
        return
    what = f"read {what} has written: no fence lies between the write and the atomic or flag that "
    what += "tells of it, which may be seen first"
    hint = "put a __threadfence() between the write and the atomic, or make the atomic a release"
    at.note(errors.MissingFence, what, hint, seen=seen)


def load_by_all(batch: Batch, group: Group, access: Access, address: Array) -> list[Array]:
    """Load for all lanes. An address that several lanes share through a broadcast register is read
    once."""
    shape = address.shape
    flat = address.reshape(-1)
    grid = group.grid
    threads = grid.threads
    if shape == group.shape:
        requests = Requests(flat, group.warp, 1, lambda i: int(group.lanes[i]))
    elif flat.size == 1:
        requests = Requests(flat, _ONE_REQUEST, group.warps, lambda i: int(group.lanes[0]))
    elif shape[0] == 1:
        requests = Requests(flat, grid.warp[:threads], grid.ctas, lambda i: i)
    else:
        requests = Requests(flat, grid.warp[::threads], grid.warps, lambda i: i * threads)
    _visit(batch, access, requests, READ, group.lanes.size)
    races = batch.launch.races
    if races is not None and races.concerns(flat):
        _note_reads(batch, access, group.spread(address), group.lanes)
    out = data_of(access, flat.size)
    native.gather(flat, out)
    return [row.reshape(shape) for row in out]


def _visit(batch: Batch, access: Access, requests: Requests, flag: int, lanes: int) -> None:
    memory, nbytes, address = batch.memory, access.nbytes, requests.address
    mark = flag | READ_LATE if flag == READ and batch.triggered else flag
    spent = np.zeros((2, batch.grid.ctas), np.int64)
    bad = native.visit_global(
        address, requests.request, nbytes, access.alignment, memory.starts, memory.ends,
        memory.sector0, memory.touched, mark if access.counted else 0, batch.grid.warps, spent
    )  # fmt: skip
    if bad >= 0:
        _fault(batch, access, int(address[bad]), requests.lane(bad), flag)
    if access.only is not None:
        # Elsewhere a device would read its own parameters or constants.
        outside = ~_inside(memory.own(access.only), address)
        text = f"at {{}}, which does not lie in .{access.only}"
        _refuse(batch, access, requests, flag, outside, errors.OutOfBounds, text)
    if flag == WRITTEN:
        if memory.read_only:
            inside, text = _inside(memory.read_only, address), "to read-only memory: {}"
            _refuse(batch, access, requests, flag, inside, errors.ReadOnlyMemory, text)
        if address.size:
            memory.keep_contents(int(address.min()), int(address.max()))
    if batch.launch.hazards:
        check_order_of_launches(batch, access.site, address, nbytes, requests.lane, flag)
    if access.counted:
        traffic, work, start = batch.traffic, batch.launch.work, access.site.instruction.start
        sectors, fresh = spent.sum(axis=1).tolist()
        traffic.sectors_requested += sectors * requests.copies
        count = requests.copies * int(np.count_nonzero(begin_of_runs(requests.request)))
        traffic.global_requests += count
        asked = work.asked[start]
        if flag == READ and access.strong and address.size:
            first = int(batch.numbers[0]) << 32 | requests.lane(0)
            work.look(start, first, address)
        asked.requests += count
        asked.sectors += sectors * requests.copies
        asked.fresh += fresh
        if requests.copies > 1:  # all CTAs do the same
            spent[0] = sectors * requests.copies // spent.shape[1]
        work.spend(start, spent[0])
        work.spend(start + FRESH, spent[1])
        if work.samples:
            drawn, copies = batch.kept(DrawnCtas), requests.copies
            drawn.note(start, nbytes, address, requests.request, copies)
            if acquires_from_sms(access.site):
                ctas = np.arange(batch.grid.ctas)
                drawn.empty_l1(requests.request // batch.grid.warps if copies == 1 else ctas)
        traffic.count("global", flag == WRITTEN, nbytes * lanes)
        if (tally := batch.launch.tally) is not None:
            reads = flag == READ and not access.strong
            instruction, first = access.site.instruction, int(batch.numbers[0])
            tally.global_access(instruction, nbytes, memory, requests, sectors, first, reads)


def _refuse(
    batch: Batch, access: Access, requests: Requests, flag: int, wrong: Array,
    kind: type[errors.EmulatorError], text: str,
) -> None:  # fmt: skip
    """Raise for the first wrong address, if any; text: says what is wrong, with {} for the address
    in words."""
    for i in np.flatnonzero(wrong)[:1].tolist():
        address = int(requests.address[i])
        place = text.format(batch.memory.describe(address))
        access.site.lane(batch, requests.lane(i)).fault(
            kind,
            f"{verb(flag)} of {access.nbytes} bytes {place}",
            arguments=_arguments(batch, access, address, flag),
        )


def _inside(buffers: Sequence[Buffer], address: Array) -> Array:
    """Return which of these addresses one of the buffers holds."""
    found = [(address >= buffer.address) & (address < buffer.end) for buffer in buffers]
    return np.any([np.zeros(address.size, np.bool_), *found], axis=0)


def _fault(batch: Batch, access: Access, address: int, lane: int, flag: int) -> NoReturn:
    at = access.site.lane(batch, lane)
    what = f"{verb(flag)} of {access.nbytes} bytes"
    place = batch.memory.describe(address)
    arguments = _arguments(batch, access, address, flag)
    if address % access.alignment:
        at.fault(
            errors.Misaligned,
            f"{what} at a misaligned address: {place}",
            hint=f"the address must be a multiple of {access.alignment}",
            arguments={**arguments, "alignment": access.alignment},
        )
    if address >> WINDOW_SHIFT:
        what = f"{what} outside every tensor: an address that no memory has"
        at.fault(errors.OutOfBounds, what, arguments=arguments)
    if address < NULL_PAGE_BYTES:
        if 0 < address < batch.launch.shared_bytes and access.space != "shared":
            place += " (it looks like a shared-memory offset)"
        at.fault(errors.OutOfBounds, f"{what} at {place}", hint=_NULL_HINT, arguments=arguments)
    found = batch.memory.nearest(address)
    why, hint = "", None
    if found is not None:
        buffer, offset = found
        # The first byte that is outside.
        why, hint = overrun(at, buffer, max(offset, buffer.nbytes) if offset >= 0 else offset)
    if place.endswith("freed"):
        why, hint = "", "keep it until the kernel has run; another call's tensors lie elsewhere"
    if why:
        place = f"{batch.memory.describe(address, element=False)}: {why}"
    at.fault(errors.OutOfBounds, f"{what} outside every tensor, {place}", hint, arguments)


_NULL_HINT = "the pointer was never set: look at what the launch passes"


def _arguments(batch: Batch, access: Access, address: int, flag: int) -> dict[str, int | str]:
    """Return the arguments of an access's fault. offset: in bytes, from the start of the nearest
    tensor."""
    arguments: dict[str, int | str] = {"access": verb(flag), "bytes": access.nbytes}
    found = batch.memory.nearest(address)
    if found is not None:
        buffer, offset = found
        arguments |= {"tensor": buffer.name, "tensor_bytes": buffer.nbytes, "offset": offset}
    return arguments


_AXES = "xyz"


def overrun(at: LaneSite, buffer: Buffer, offset: int) -> tuple[str, str | None]:
    """Return the index that is too large with its cause, and a hint; both empty if unknown.

    offset: the first byte outside, from the buffer's start.
    """
    view = buffer.view
    index = view.index(offset) if view else None
    if view is None or index is None or not buffer.name.isidentifier():
        return "", None
    index, formulas = _as_meant(at, view, index)
    wrong = [d for d, size in enumerate(view.shape) if not 0 <= index[d] < size]
    if not wrong:
        return "", None
    d = wrong[0]
    what, extent = view.dimensions[d] if view.dimensions else (f"index {d}", "")
    size = view.shape[d]
    has = f"{extent} = {size}" if extent and extent != str(size) else f"{size}"
    plural = _plural(what)
    said = f"{buffer.name}[{', '.join(map(str, index))}], "
    said += f"but {buffer.name} has {has} {plural}"
    if index[d] < 0:
        return said, None
    short = extent if extent and extent != str(size) else str(size)
    for formula, cover, axis in formulas:
        needed = -(-size // cover)
        grid = at.batch.launch.asked.grid[_AXES.index(axis)]
        said += f"; {what} = {formula}"
        by = f"{short} / {cover}" if cover > 1 else short
        if grid > needed:
            rest = "" if size % cover == 0 else ", rounded up,"
            said += f"; grid.{axis} is {grid}, {by}{rest} = {needed}"
            hint = f"launch {by} CTAs in {axis}, or return where {what} >= {short}"
        else:
            hint = f"{by} is no whole number: return where {what} >= {short}"
            if size % cover == 0:
                hint = f"guard the access with {what} < {short}"
        return said, hint
    return said, f"guard the access with {what} < {short}"


Formula = tuple[str, int, str]
"""The origin of an index in words, how many indices a CTA covers, and the axis of the grid."""


def _as_meant(
    at: LaneSite, view: View, index: tuple[int, ...]
) -> tuple[tuple[int, ...], list[Formula]]:
    """Return the index that the kernel probably meant, and how it was computed if that is clear.

    An index one batch too far is the same place as a row past the end of the last batch. The latter
    is more common; it is certain if another of the CTA's numbers equals that of the batch.
    """
    order = view.outermost_first()
    cta = at.batch.coordinates(at.lane)[0]
    if len(order) > 1 and view.dimensions and view.dimensions[order[0]][0] == "batch":
        first, second = order[:2]
        if index[first] != view.shape[first]:
            return index, []
        carried = list(index)
        carried[first] -= 1
        carried[second] += view.shape[second]
        formulas = [
            (formula, cover, axis)
            for formula, cover, axis in _formulas(at, carried[second])
            if carried[first] in (n for name, n in zip(_AXES, cta, strict=True) if name != axis)
        ]
        if not formulas and index[first] in cta[1:]:
            axis = _AXES[cta.index(index[first], 1)]
            return index, [(f"CTA {axis}", 1, axis)]
        return tuple(carried), formulas
    wrong = [d for d, size in enumerate(view.shape) if not 0 <= index[d] < size]
    return index, list(_formulas(at, index[wrong[0]])) if wrong else []


def _formulas(at: LaneSite, value: int) -> Iterator[Formula]:
    """Yield the usual formulas of CTA and thread numbers that give an index."""
    cta, thread = at.batch.coordinates(at.lane)
    block = at.batch.launch.asked.block
    warps = math.ceil(math.prod(block) / 32)
    warp = at.lane % at.batch.grid.threads // 32
    parts = (block[0], thread[0], "thread x"), (block[1], thread[1], "thread y")
    for i, axis in enumerate(_AXES):
        for count, own, name in (*parts, (warps, warp, "warp")):
            if count > 1 and value == cta[i] * count + own:
                yield f"{cta[i]} * {count} + {own} (CTA {axis}, {name})", count, axis
        if value == cta[i]:
            yield f"CTA {axis}", 1, axis


def _plural(what: str) -> str:
    if what == "batch":
        return "batches"
    head, of, rest = what.partition(" of ")
    return f"{head}s{of}{rest}"


class LaunchWaits:
    """Lanes that have waited for the previous launch, and the clock at which each warp first did; 0
    if it has not."""

    def __init__(self, batch: Batch) -> None:
        self.lanes = np.zeros(batch.grid.lane.size, np.bool_)
        self.clocks = np.zeros((batch.clusters.ctas, batch.clusters.warps), np.int32)


def check_order_of_launches(
    batch: Batch, site: Site, address: Array, nbytes: int, lane: Callable[[int], int], flag: int
) -> None:
    """Note an access to what an earlier launch may still write, or a write of what it may still
    read. lane: by position."""
    hazards = batch.launch.hazards
    if not hazards or not batch.launch.check:
        return
    lanes = np.array([lane(i) for i in range(address.size)], np.int64)
    waited = have_waited(batch, lanes)
    found, its = hazards.find(address, nbytes, waited), "writes"
    does = "reads" if flag == READ else "also writes"
    if found is None and flag == WRITTEN:
        found, its, does = hazards.find_read(address, nbytes, waited), "reads", "writes"
    if found is None:
        return
    first, kernel = found
    at: LaneSite = site.lane(batch, lanes[first])
    at.note(
        errors.EarlyAccess,
        f"{verb(flag)} of {nbytes} bytes at {batch.memory.describe(int(address[first]))}, which "
        f"{short_name(kernel)}, launched before this in the stream, {its}: that may still run, as "
        f"this launch may begin early and {does} it with no griddepcontrol.wait before",
        "put cudaGridDependencySynchronize() (griddepcontrol.wait) before the access, in each "
        "launch of the chain",
    )


def have_waited(batch: Batch, lanes: Array) -> Array:
    """Return for each lane, as bool, whether it has waited, or learned through a barrier that
    another thread of its cluster has."""
    waits, clusters = batch.kept(LaunchWaits), batch.clusters
    cluster, warp = clusters.cta[lanes], clusters.thread[lanes] >> 5
    since = waits.clocks[cluster]
    known = batch.shared.clocks.known[cluster, warp, : clusters.warps]
    others = known >= since
    own = np.arange(lanes.size), warp
    others[own] = known[own] > since[own] + 1
    return waits.lanes[lanes] | (others & (since > 0)).any(axis=1)
