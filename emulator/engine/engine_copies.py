"""What the copy engine does for cp.async.bulk and its tensor form, one copy at a time.

A copy is performed when it is issued; the race check learns of it when its mbarrier completes or
its bulk group is waited for, so that whoever does not wait is caught.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from emulator.engine import mbarriers, races
from emulator.engine.action import Site
from emulator.engine.batch import Batch
from emulator.engine.memory import SHARED_WINDOW
from emulator.engine.native import compiled
from emulator.engine.tensormap import TENSOR_MAP_BYTES, Fill, Swizzle, TensorMap
from emulator.errors import Misaligned, OutOfBounds, SharedRace, TensorMapError, UninitialisedShared

Array = np.ndarray[Any, Any]
READ, WRITTEN = 1, 2


@compiled
def _note(start, nbytes, thread, engine, known, writers, readers, write):  # type: ignore[no-untyped-def]
    """Stamp a range for the copy engine; `thread` issued the copy, so what it knows of is in
    order. known: [warps + 1, warps + 1] of the CTA. Returns (byte, fault, other's stamp)."""
    stamp = (np.int64(known[engine >> 5, engine >> 5]) << 32) | (engine + 1)
    for b in range(start, start + nbytes):
        writer = writers[b]
        if writer == 0 and not write:
            return b, 1, writer
        if not races._ordered(writer, thread, known):
            return b, 2, writer
        if write:
            for k in range(2):
                if not races._ordered(readers[k, b], thread, known):
                    return b, 2, readers[k, b]
                readers[k, b] = 0
            writers[b] = stamp
        elif races._ordered(readers[0, b], thread, known):
            readers[0, b] = stamp
        else:
            readers[1, b] = stamp
    return -1, 0, np.int64(0)


def host_view(address: int, nbytes: int) -> Array:
    """uint8[nbytes] of host memory; the caller has checked the range."""
    interface = {"data": (address, False), "shape": (nbytes,), "typestr": "|u1", "version": 3}
    holder = type("_Holder", (), {"__array_interface__": interface})()
    return np.asarray(holder)


def global_range(
    site: Site, batch: Batch, lane: int, address: int, nbytes: int, flag: int, span: int = 0
) -> Array:
    """Bytes of global memory from an address, all inside one buffer.

    nbytes: what is copied, for the counters; span: what is addressed, if that is more.
    """
    span = span or nbytes
    memory = batch.memory
    while True:
        found = memory.nearest(address)
        if found is not None and 0 <= found[1] and found[1] + span <= found[0].nbytes:
            break
        if not memory.rescan():
            outside = address
            if found is not None and 0 <= found[1] < found[0].nbytes:
                outside = found[0].end
            raise site.fail(
                OutOfBounds,
                f"copy of {span} bytes from or to {memory.describe(address)} reaches outside "
                f"every tensor at {memory.describe(outside)}",
                batch,
                lane,
            )
    if flag == READ:
        batch.traffic.global_read_bytes += nbytes
    else:
        batch.traffic.global_written_bytes += nbytes
    return host_view(address, span)


def touch(batch: Batch, address: Array, nbytes: int, flag: int) -> None:
    """Count the sectors of rows of `nbytes` bytes at these addresses, all in one buffer."""
    memory = batch.memory
    found = memory.nearest(int(address.reshape(-1)[0]))
    assert found is not None
    index = memory.buffers.index(found[0])
    base = int(memory.sector0[index]) - (found[0].address >> 5)
    first = (address.reshape(-1) >> 5) + base
    last = ((address.reshape(-1) + nbytes - 1) >> 5) + base
    width = int((last - first).max()) + 1
    sectors = first[:, None] + np.arange(width)
    keep = sectors <= last[:, None]
    memory.touched[sectors[keep]] |= flag
    batch.traffic.sectors_requested += int(np.count_nonzero(keep))
    batch.traffic.global_requests += 1


def shared_range(
    site: Site, batch: Batch, lane: int, address: int, nbytes: int, align: int
) -> tuple[int, Array]:
    """(offset, bytes) of a range of the lane's CTA's shared memory."""
    shared = batch.shared
    address &= SHARED_WINDOW - 1
    if address % align:
        raise site.fail(
            Misaligned,
            f"copy from or to shared address {address:#x}, which is no multiple of {align}",
            batch,
            lane,
        )
    start = address - shared.base
    if start < 0 or start + nbytes > shared.size:
        raise site.fail(
            OutOfBounds,
            f"copy of {nbytes} bytes from or to shared address {address:#x}, outside the CTA's "
            f"shared memory [{shared.base:#x}, {shared.base + shared.size:#x})",
            batch,
            lane,
        )
    offset = start + lane // batch.grid.threads * shared.stride
    return offset, shared.data[offset : offset + nbytes]


def note(site: Site, batch: Batch, lane: int, offset: int, nbytes: int, write: bool) -> None:
    """The engine touches shared bytes on behalf of a lane. Raises SharedRace."""
    shared = batch.shared
    if not shared.checked:
        return
    cta, thread = divmod(lane, batch.grid.threads)
    byte, fault, stamp = _note(
        offset,
        nbytes,
        thread,
        batch.grid.threads,
        shared.clocks.known[cta],
        shared.writers,
        shared.readers,
        write,
    )
    if not fault:
        return
    address = byte % shared.stride + shared.base
    if fault == races.UNINITIALISED:
        raise site.fail(
            UninitialisedShared,
            f"copy from shared address {address:#x}, where nothing was written",
            batch,
            lane,
        )
    other = int(stamp & 0x7FFFFFFF) - 1
    who = "another asynchronous copy"
    if other < batch.grid.threads:
        who = f"thread {batch.coordinates(cta * batch.grid.threads + other)[1]}"
    raise site.fail(
        SharedRace,
        f"asynchronous {'write' if write else 'read'} of shared address {address:#x} races with "
        f"{who}: nothing orders the copy after that access",
        batch,
        lane,
        hint="wait at a barrier before the copy is issued",
    )


def advance(batch: Batch, lane: int) -> None:
    """The engine's clock of the lane's CTA moves on after a copy."""
    engine = batch.grid.warps
    batch.shared.clocks.known[lane // batch.grid.threads, engine, engine] += 1


def complete(site: Site, batch: Batch, lane: int, mbar: int, nbytes: int) -> None:
    """complete_tx of `nbytes` at an mbarrier."""
    lanes = np.array([lane], np.int64)
    offset = mbarriers.locate(site, batch, np.array([mbar], np.uint64), lanes)
    mbarriers.engine_done(batch, int(offset[0]), lane // batch.grid.threads)
    none = np.zeros(1, np.int64)
    mbarriers.change(site, batch, offset, lanes, none, none - nbytes)


def learn(batch: Batch, lanes: Array) -> None:
    """These threads waited for their bulk groups: they know what the engine did."""
    if batch.shared.checked:
        engine = batch.grid.warps
        warp = (lanes % batch.grid.threads) >> 5
        known = batch.shared.clocks.known
        cta = lanes // batch.grid.threads
        known[cta, warp, engine] = known[cta, engine, engine]


# --- tensor tiles -----------------------------------------------------------------------------


def read_map(site: Site, batch: Batch, lane: int, address: int) -> TensorMap:
    """The descriptor at a generic address."""
    if address % 64:
        raise site.fail(
            Misaligned, f"tensor map at {address:#x}, which is no multiple of 64", batch, lane
        )
    memory = batch.memory
    while True:
        found = memory.nearest(address)
        if found is not None and 0 <= found[1] <= found[0].nbytes - TENSOR_MAP_BYTES:
            break
        if not memory.rescan():
            raise site.fail(
                OutOfBounds, f"tensor map at {memory.describe(address)}", batch, lane
            )
    try:
        return TensorMap.unpack(host_view(address, TENSOR_MAP_BYTES).tobytes())
    except TensorMapError as error:
        lane_error = site.fail(TensorMapError, error.message, batch, lane)
        lane_error.hint = error.hint
        raise lane_error from None


def swizzle(tile: TensorMap, address: int) -> Array:
    """Where byte i of a tile goes, relative to the tile's start: int64[box_bytes].

    Bits 4 and up of the shared address are changed by exclusive or with bits 7 and up: one, two
    or three of them for 32, 64 and 128 bytes.
    """
    place = np.arange(tile.box_bytes, dtype=np.int64) + address
    bits = {Swizzle.NONE: 0, Swizzle.BYTES_32: 1, Swizzle.BYTES_64: 2, Swizzle.BYTES_128: 3}
    width = bits[tile.swizzle]
    mask = (1 << width) - 1
    result: Array = place ^ (((place >> 7) & mask) << 4)
    return result - address


def _overlap(tile: TensorMap, start: tuple[int, ...]) -> tuple[list[int], list[int], bool]:
    """(first, last + 1) of the box along each dimension that lies in the tensor."""
    low = [max(0, -s) for s in start]
    high = [min(b, n - s) for b, n, s in zip(tile.box, tile.shape, start, strict=True)]
    return low, high, all(a < b for a, b in zip(low, high, strict=True))


def _rows(
    site: Site,
    batch: Batch,
    lane: int,
    tile: TensorMap,
    start: tuple[int, ...],
    low: list[int],
    high: list[int],
    flag: int,
) -> Array:
    """The part of the box inside the tensor, a strided view uint8[..., inner bytes]."""
    bits = tile.element_bits
    if (start[0] + low[0]) * bits % 8 or (high[0] - low[0]) * bits % 8:
        raise site.unsupported(f"{site.opcode}: a tile that starts or ends inside a byte")
    strides = (0, *tile.strides_bytes)
    first = tile.address + (start[0] + low[0]) * bits // 8
    first += sum((start[d] + low[d]) * strides[d] for d in range(1, tile.rank))
    inner = (high[0] - low[0]) * bits // 8
    counts = [high[d] - low[d] for d in range(1, tile.rank)]
    steps = list(strides[1:])
    span = inner + sum((n - 1) * s for n, s in zip(counts, steps, strict=True))
    total = inner * int(np.prod(counts, dtype=np.int64))
    raw = global_range(site, batch, lane, first, total, flag, span)
    shape = (*reversed(counts), inner)
    view = as_strided(raw, shape, (*reversed(steps), 1))
    grid = np.zeros((1,), np.int64) + first
    for count, step in zip(counts, steps, strict=True):
        grid = (grid[:, None] + np.arange(count, dtype=np.int64) * step).reshape(-1)
    touch(batch, grid, inner, flag)
    return view


def load_tile(
    site: Site, batch: Batch, lane: int, tile: TensorMap, start: tuple[int, ...], target: int
) -> None:
    """Tensor -> shared memory; elements outside the tensor get the map's fill."""
    offset, into = shared_range(site, batch, lane, target, tile.box_bytes, 128)
    outer = tuple(reversed(tile.box[1:]))
    box = np.zeros((*outer, tile.inner_box_bytes), np.uint8)
    if tile.fill is Fill.NAN:
        box.view(f"u{max(1, tile.element_bits // 8)}")[...] = _nan(site, tile)
    low, high, some = _overlap(tile, start)
    if some:
        bits = tile.element_bits
        part = tuple(slice(low[d], high[d]) for d in range(tile.rank - 1, 0, -1))
        inner = slice(low[0] * bits // 8, high[0] * bits // 8)
        box[(*part, inner)] = _rows(site, batch, lane, tile, start, low, high, READ)
    note(site, batch, lane, offset, tile.box_bytes, True)
    flat = box.reshape(-1)
    if tile.swizzle is Swizzle.NONE:
        into[:] = flat
    else:
        into[_aligned_swizzle(site, batch, lane, tile, target)] = flat
    batch.traffic.shared_written_bytes += tile.box_bytes


def _aligned_swizzle(site: Site, batch: Batch, lane: int, tile: TensorMap, target: int) -> Array:
    place = swizzle(tile, target & (SHARED_WINDOW - 1))
    if place.size and (place.min() < 0 or place.max() >= tile.box_bytes):
        raise site.fail(
            Misaligned,
            f"a tile with {tile.swizzle_span_bytes}-byte swizzle at shared address "
            f"{target & (SHARED_WINDOW - 1):#x} would leave its own {tile.box_bytes} bytes",
            batch,
            lane,
            hint=f"align the tile to {tile.swizzle_span_bytes * 8} bytes",
        )
    return place


def store_tile(
    site: Site, batch: Batch, lane: int, tile: TensorMap, start: tuple[int, ...], source: int
) -> None:
    """Shared memory -> tensor; elements outside the tensor are dropped."""
    offset, raw = shared_range(site, batch, lane, source, tile.box_bytes, 128)
    note(site, batch, lane, offset, tile.box_bytes, False)
    if tile.swizzle is not Swizzle.NONE:
        raw = raw[_aligned_swizzle(site, batch, lane, tile, source)]
    box = raw.reshape(*reversed(tile.box[1:]), tile.inner_box_bytes)
    low, high, some = _overlap(tile, start)
    if some:
        bits = tile.element_bits
        part = tuple(slice(low[d], high[d]) for d in range(tile.rank - 1, 0, -1))
        inner = slice(low[0] * bits // 8, high[0] * bits // 8)
        _rows(site, batch, lane, tile, start, low, high, WRITTEN)[...] = box[(*part, inner)]
    batch.traffic.shared_read_bytes += tile.box_bytes


_NAN_BITS = {"FLOAT16": 0x7FFF, "BFLOAT16": 0x7FFF, "FLOAT32": 0x7FFFFFFF, "FLOAT64": (1 << 63) - 1}


def _nan(site: Site, tile: TensorMap) -> int:
    if tile.data_type.name not in _NAN_BITS:
        raise site.unsupported(f"NaN fill of {tile.data_type.name} tensor maps")
    return _NAN_BITS[tile.data_type.name]
