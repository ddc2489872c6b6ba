"""Loads and stores of a group: bounds, alignment, races, counters, then the bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nvfp4.emulator.engine import native, races
from nvfp4.emulator.engine.action import Site
from nvfp4.emulator.engine.batch import Batch, lanes_of
from nvfp4.emulator.engine.group import Group
from nvfp4.emulator.engine.memory import LOCAL_WINDOW, SHARED_WINDOW, WINDOW_SHIFT
from nvfp4.emulator.errors import (
    EmulatorError,
    Misaligned,
    OutOfBounds,
    ReadOnlyMemory,
    SharedRace,
    UninitialisedShared,
)

Array = np.ndarray[Any, Any]
_UINT = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
READ, WRITTEN = 1, 2
_ZERO_REQUEST = np.zeros(1, np.int64)


@dataclass(frozen=True)
class Access:
    """What an instruction reads or writes at each address: `elements` of `size` bytes.

    space: global, shared, local, or generic. counted: whether it is traffic of global memory.
    """

    site: Site
    space: str
    size: int
    elements: int
    counted: bool = True

    @property
    def nbytes(self) -> int:
        return self.size * self.elements

    @property
    def alignment(self) -> int:
        """What a global address must be a multiple of: the bytes, or the power of two in them."""
        return self.nbytes & -self.nbytes


@dataclass
class Where:
    """Flat addresses to touch, and which lanes they belong to.

    request: lanes with equal neighbours are one request of a warp. copies: how many requests of
    the group each of these stands for. lane: position in the arrays -> lane number of the batch.
    """

    address: Array
    request: Array
    copies: int
    lane: Callable[[int], int]


def load(batch: Batch, group: Group, guard: Array | None, access: Access, address: Array) -> Any:
    """Values read: `elements` arrays that broadcast to the group's shape."""
    parts = _by_space(group, guard, access, address)
    if len(parts) == 1:
        space, mask = parts[0]
        return _load(batch, group, mask, access, space, address)
    total: list[Array] | None = None
    for space, mask in parts:
        values = _load(batch, group, mask, access, space, address)
        if total is None:
            total = values
        else:
            chosen = np.ones(1, np.bool_) if mask is None else mask
            total = [np.where(chosen, v, t) for v, t in zip(values, total, strict=True)]
    assert total is not None
    return total


def store(
    batch: Batch,
    group: Group,
    guard: Array | None,
    access: Access,
    address: Array,
    values: list[Array],
) -> None:
    """Write `elements` values a lane."""
    for space, mask in _by_space(group, guard, access, address):
        chosen = lanes_of(group, mask)
        flat = group.spread(address)
        lanes = group.lanes
        spread = [group.spread(value) for value in values]
        if chosen is not None:
            if chosen.size == 0:
                continue
            flat, lanes = flat[chosen], lanes[chosen]
            spread = [value[chosen] for value in spread]
        data = np.stack(spread) if len(spread) > 1 else spread[0].reshape(1, -1)
        write(batch, access, space, flat, lanes, data)


def write(
    batch: Batch, access: Access, space: str, address: Array, lanes: Array, data: Array
) -> None:
    """Write data[element, i] at address[i] on behalf of lanes[i]."""
    if space == "global":
        locate_global(batch, access, address, lanes, WRITTEN)
        native.scatter[access.size](address, data)
    elif space == "shared":
        offset = locate_shared(batch, access, address, lanes, written=True)
        if batch.shared.checked:
            note_shared_writes(batch, access.site, access.nbytes, offset, lanes, data)
        else:
            native.scatter[access.size](offset + np.uint64(batch.shared.address), data)
    else:
        offset = _locate_local(batch, access, address, lanes)
        native.scatter[access.size](offset + np.uint64(batch.local.ctypes.data), data)


def read(batch: Batch, access: Access, space: str, address: Array, lanes: Array) -> Array:
    """data[element, i] at address[i], read on behalf of lanes[i]."""
    if space == "global":
        locate_global(batch, access, address, lanes, READ)
    elif space == "shared":
        offset = locate_shared(batch, access, address, lanes, written=False)
        if batch.shared.checked:
            note_shared_reads(batch, access.site, access.nbytes, offset, lanes)
        address = offset + np.uint64(batch.shared.address)
    else:
        offset = _locate_local(batch, access, address, lanes)
        address = offset + np.uint64(batch.local.ctypes.data)
    out = np.empty((access.elements, address.size), _UINT[access.size])
    native.gather[access.size](address, out)
    return out


def split_windows(address: Array) -> list[tuple[str, Array | None]]:
    """Generic addresses by the space they point into: (space, mask or None for all)."""
    highest = address.max()
    if highest < SHARED_WINDOW:
        return [("global", None)]
    window = address >> np.uint64(WINDOW_SHIFT)
    found: list[tuple[str, Array | None]] = []
    for number, space in ((0, "global"), (1, "shared"), (2, "local")):
        mask = window == number
        if mask.all():
            return [(space, None)]
        if mask.any():
            found.append((space, mask))
    other = window > 2
    if other.any():
        found.append(("global", other))
    return found


def window_base(space: str) -> int:
    return {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW}.get(space, 0)


def _by_space(
    group: Group, guard: Array | None, access: Access, address: Array
) -> list[tuple[str, Array | None]]:
    if access.space != "generic":
        return [(access.space, guard)]
    chosen = lanes_of(group, guard)
    if chosen is not None:
        live = group.spread(address)[chosen]
        if live.size == 0:
            return [("global", guard)]
        spaces = split_windows(live)
        if len(spaces) == 1:
            return [(spaces[0][0], guard)]
    parts = split_windows(address)
    if guard is None:
        return parts
    return [(space, guard if mask is None else guard & mask) for space, mask in parts]


def _load(
    batch: Batch, group: Group, guard: Array | None, access: Access, space: str, address: Array
) -> list[Array]:
    chosen = lanes_of(group, guard)
    if chosen is None and space == "global":
        return _load_compact(batch, group, access, address)
    flat = group.spread(address)
    if chosen is None:
        data = read(batch, access, space, flat, group.lanes)
        return [group.fold(row) for row in data]
    out = np.zeros((access.elements, flat.size), _UINT[access.size])
    if chosen.size:
        out[:, chosen] = read(batch, access, space, flat[chosen], group.lanes[chosen])
    return [group.fold(row) for row in out]


def _load_compact(batch: Batch, group: Group, access: Access, address: Array) -> list[Array]:
    """A global load by all lanes: each distinct address of a broadcast register is read once."""
    shape = address.shape
    flat = address.reshape(-1)
    grid = group.grid
    threads = grid.threads
    if shape == group.shape:
        where = Where(flat, group.warp, 1, lambda i: int(group.lanes[i]))
    elif flat.size == 1:
        where = Where(flat, _ZERO_REQUEST, group.warps, lambda i: int(group.lanes[0]))
    elif shape[0] == 1:
        where = Where(flat, grid.warp[:threads], grid.ctas, lambda i: i)
    else:
        where = Where(flat, grid.lane[: grid.ctas], grid.warps, lambda i: i * threads)
    _visit(batch, access, where, READ, group.lanes.size)
    out = np.empty((access.elements, flat.size), _UINT[access.size])
    native.gather[access.size](flat, out)
    return [row.reshape(shape) for row in out]


def locate_global(batch: Batch, access: Access, address: Array, lanes: Array, flag: int) -> None:
    """Check and count global accesses of these lanes, one address each."""
    where = Where(address, lanes >> 5, 1, lambda i: int(lanes[i]))
    _visit(batch, access, where, flag, lanes.size)


def _visit(batch: Batch, access: Access, where: Where, flag: int, lanes: int) -> None:
    memory = batch.memory
    nbytes = access.nbytes
    while True:
        bad, sectors = native.visit_global(
            where.address,
            where.request,
            nbytes,
            access.alignment,
            memory.starts,
            memory.ends,
            memory.sector0,
            memory.touched,
            flag if access.counted else 0,
        )
        if bad < 0:
            break
        if int(where.address[bad]) % access.alignment or not memory.rescan():
            raise _global_fault(batch, access, int(where.address[bad]), where.lane(bad), flag)
    if flag == WRITTEN and memory.read_only:
        _check_writable(batch, access, where)
    if access.counted:
        traffic = batch.traffic
        traffic.sectors_requested += sectors * where.copies
        traffic.global_requests += where.copies * count_runs(where.request)
        if flag == WRITTEN:
            traffic.global_written_bytes += nbytes * lanes
        else:
            traffic.global_read_bytes += nbytes * lanes


def _check_writable(batch: Batch, access: Access, where: Where) -> None:
    for buffer in batch.memory.read_only:
        inside = (where.address >= buffer.address) & (where.address < buffer.end)
        if inside.any():
            i = int(np.flatnonzero(inside)[0])
            raise access.site.fail(
                ReadOnlyMemory,
                f"write of {access.nbytes} bytes to memory that is only for reading: "
                + batch.memory.describe(int(where.address[i])),
                batch,
                where.lane(i),
            )


def count_runs(request: Array) -> int:
    """How many runs of equal neighbours."""
    return 1 + int(np.count_nonzero(request[1:] != request[:-1]))


def _global_fault(
    batch: Batch, access: Access, address: int, lane: int, flag: int
) -> EmulatorError:
    verb = "write" if flag == WRITTEN else "read"
    place = batch.memory.describe(address)
    if address % access.alignment:
        return access.site.fail(
            Misaligned,
            f"{verb} of {access.nbytes} bytes at a misaligned address: {place}",
            batch,
            lane,
            hint=f"the address must be a multiple of {access.alignment}",
        )
    if address >> WINDOW_SHIFT:
        place = f"address {address:#x}, which no memory has"
    elif address < batch.launch.shared_bytes and access.space != "shared":
        place += " (it looks like a shared-memory offset)"
    return access.site.fail(
        OutOfBounds, f"{verb} of {access.nbytes} bytes outside every tensor: {place}", batch, lane
    )


def locate_shared(
    batch: Batch, access: Access, address: Array, lanes: Array, written: bool
) -> Array:
    """Offsets in the batch's shared memory, checked and counted."""
    shared, nbytes, site = batch.shared, access.nbytes, access.site
    if address.dtype != np.uint64:
        address = address.astype(np.uint64)
    if access.space == "generic" or (address.size and address[0] >= SHARED_WINDOW):
        address = address & np.uint64(SHARED_WINDOW - 1)
    offset = np.empty(address.size, np.uint64)
    cta = batch.grid.cta[lanes]
    align = min(nbytes, 16)
    bad = native.locate_window(
        address, cta, shared.base, shared.size, shared.stride, nbytes, align, offset
    )
    if bad >= 0:
        raise _shared_fault(batch, site, nbytes, align, int(address[bad]), int(lanes[bad]), written)
    traffic = batch.traffic
    request = lanes >> 5
    passes, ideal = native.bank_wavefronts(address, request, nbytes)
    traffic.bank_conflicts += passes - ideal
    traffic.shared_requests += count_runs(request)
    if written:
        traffic.shared_written_bytes += nbytes * lanes.size
    else:
        traffic.shared_read_bytes += nbytes * lanes.size
    return offset


def _shared_fault(
    batch: Batch, site: Site, nbytes: int, align: int, address: int, lane: int, written: bool
) -> EmulatorError:
    verb = "write" if written else "read"
    if address % align:
        return site.fail(
            Misaligned,
            f"{verb} of {nbytes} bytes at misaligned shared address {address:#x}",
            batch,
            lane,
            hint=f"the address must be a multiple of {align}",
        )
    low, high = batch.shared.base, batch.shared.base + batch.shared.size
    return site.fail(
        OutOfBounds,
        f"{verb} of {nbytes} bytes at shared address {address:#x}, outside the CTA's shared "
        f"memory [{low:#x}, {high:#x}) of {high - low} bytes",
        batch,
        lane,
    )


def note_shared_reads(batch: Batch, site: Site, nbytes: int, offset: Array, lanes: Array) -> None:
    """Raise if a byte was never written, or is written by others with no barrier between."""
    shared, grid = batch.shared, batch.grid
    bad, fault, stamp = races.note_reads(
        offset,
        nbytes,
        grid.cta[lanes],
        grid.thread[lanes],
        shared.clocks.known,
        shared.writers,
        shared.readers,
    )
    if fault:
        raise _shadow_fault(batch, site, "read", nbytes, int(offset[bad]), int(lanes[bad]), stamp)


def note_shared_writes(
    batch: Batch,
    site: Site,
    nbytes: int,
    offset: Array,
    lanes: Array,
    data: Array,
    atomic: bool = False,
) -> None:
    """Write data[element, i], or for an atomic only record that; raise if it is a race."""
    shared, grid = batch.shared, batch.grid
    new = np.ascontiguousarray(data.T).view(np.uint8).reshape(lanes.size, -1)
    bad, fault, stamp = races.note_writes(
        offset,
        nbytes,
        grid.cta[lanes],
        grid.thread[lanes],
        shared.clocks.known,
        shared.writers,
        shared.readers,
        atomic,
        shared.data,
        new,
    )
    if fault:
        raise _shadow_fault(batch, site, "write", nbytes, int(offset[bad]), int(lanes[bad]), stamp)


def _shadow_fault(
    batch: Batch, site: Site, verb: str, nbytes: int, offset: int, lane: int, stamp: int
) -> EmulatorError:
    address = offset % batch.shared.stride + batch.shared.base
    if not stamp:
        return site.fail(
            UninitialisedShared,
            f"read of {nbytes} bytes at shared address {address:#x}, where nothing was written",
            batch,
            lane,
            hint="write it first, or wait for the copy that does",
        )
    thread = int(stamp & 0x7FFFFFFF) - 1
    if thread >= batch.grid.threads:
        other = "an asynchronous copy"
    else:
        first = lane // batch.grid.threads * batch.grid.threads
        other = f"thread {batch.coordinates(first + thread)[1]}"
    return site.fail(
        SharedRace,
        f"{verb} of {nbytes} bytes at shared address {address:#x} races with {other}: no barrier "
        "lies between their accesses",
        batch,
        lane,
        hint="put a barrier (or a warp-wide __syncwarp within one warp) between the two",
    )


def _locate_local(batch: Batch, access: Access, address: Array, lanes: Array) -> Array:
    address = address.astype(np.uint64) & np.uint64(LOCAL_WINDOW - 1)
    offset = np.empty(address.size, np.uint64)
    size = batch.launch.local_bytes
    bad = native.locate_window(
        address,
        lanes,
        0,
        size,
        batch.local.shape[1],
        access.nbytes,
        1,
        offset,
    )
    if bad >= 0:
        raise access.site.fail(
            OutOfBounds,
            f"access of {access.nbytes} bytes at local address {int(address[bad]):#x}, outside "
            f"the thread's {size} bytes of local memory",
            batch,
            int(lanes[bad]),
        )
    return offset
