"""Tiles of tensors for cp.async.bulk.tensor: boxes, swizzles and what lies outside."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from emulator.engine.access import READ, WRITTEN
from emulator.engine.action import Site
from emulator.engine.batch import Batch
from emulator.engine.engine_copies import global_range, host_view, note, shared_range, touch
from emulator.engine.memory import SHARED_WINDOW
from emulator.engine.tensormap import TENSOR_MAP_BYTES, Fill, Swizzle, TensorMap
from emulator.errors import Misaligned, OutOfBounds, TensorMapError

Array = np.ndarray[Any, Any]


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
            raise site.fail(OutOfBounds, f"tensor map at {memory.describe(address)}", batch, lane)
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


def _inside(tile: TensorMap, low: list[int], high: list[int]) -> tuple[slice, ...]:
    """That part of a box uint8[outermost, ..., inner bytes]."""
    bits = tile.element_bits
    outer = [slice(low[d], high[d]) for d in range(tile.rank - 1, 0, -1)]
    return (*outer, slice(low[0] * bits // 8, high[0] * bits // 8))


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
        box[_inside(tile, low, high)] = _rows(site, batch, lane, tile, start, low, high, READ)
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
        rows = _rows(site, batch, lane, tile, start, low, high, WRITTEN)
        rows[...] = box[_inside(tile, low, high)]
    batch.traffic.shared_read_bytes += tile.box_bytes


_NAN_BITS = {"FLOAT16": 0x7FFF, "BFLOAT16": 0x7FFF, "FLOAT32": 0x7FFFFFFF, "FLOAT64": (1 << 63) - 1}


def _nan(site: Site, tile: TensorMap) -> int:
    if tile.data_type.name not in _NAN_BITS:
        raise site.unsupported(f"NaN fill of {tile.data_type.name} tensor maps")
    return _NAN_BITS[tile.data_type.name]
