"""Tiles of tensors for cp.async.bulk.tensor: boxes, swizzles and what lies outside."""

from __future__ import annotations

from typing import Any

import numpy as np

from nvfp4.capture.errors import InvalidTensorMap
from nvfp4.capture.tensormap import TENSOR_MAP_BYTES, Fill, Swizzle, TensorMap
from nvfp4.emulator.engine.access import READ, WRITTEN
from nvfp4.emulator.engine.action import Site
from nvfp4.emulator.engine.batch import Batch
from nvfp4.emulator.engine.engine_copies import global_range, host_view, note, shared_range
from nvfp4.emulator.engine.memory import SHARED_WINDOW
from nvfp4.emulator.engine.native import compiled, load_u8, store_u8
from nvfp4.emulator.errors import Misaligned, OutOfBounds, TensorMapError

Array = np.ndarray[Any, Any]


def read_map(site: Site, batch: Batch, lane: int, address: int) -> TensorMap:
    """The descriptor at a generic address; it stays what it is for the length of a launch."""
    known: dict[int, TensorMap] = batch.state.setdefault("tensor maps", {})
    if address not in known:
        known[address] = _read_map(site, batch, lane, address)
    return known[address]


def _read_map(site: Site, batch: Batch, lane: int, address: int) -> TensorMap:
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
    except InvalidTensorMap as error:
        lane_error = site.fail(TensorMapError, error.message, batch, lane)
        lane_error.hint = error.hint
        raise lane_error from None


# An exclusive or with this many bits from bit 7 up changes the bits from 4 up of a shared address.
_SWIZZLE_MASKS = {
    Swizzle.NONE: 0,
    Swizzle.BYTES_32: 1,
    Swizzle.BYTES_64: 3,
    Swizzle.BYTES_128: 7,
}


@compiled
def _copy_rows(  # type: ignore[no-untyped-def]
    tensor, shared, place, counts, tensor_steps, box_steps, inner, mask, loads, touched, base, flag
):
    """Copy rows of `inner` bytes between a tensor and a box, and flag the tensor's sectors.

    tensor, shared: host addresses of the first row and of the box. place: the box's shared
    address plus the first row's offset in the box, what the swizzle `mask` works on.
    counts, tensor_steps, box_steps: rows along four outer dimensions and their distances in
    bytes. base: sector of host address 0. Returns the sectors of all rows.
    """
    sectors = 0
    start = place
    for i3 in range(counts[3]):
        for i2 in range(counts[2]):
            for i1 in range(counts[1]):
                for i0 in range(counts[0]):
                    far = (
                        i0 * tensor_steps[0]
                        + i1 * tensor_steps[1]
                        + i2 * tensor_steps[2]
                        + i3 * tensor_steps[3]
                        + tensor
                    )
                    near = (
                        i0 * box_steps[0]
                        + i1 * box_steps[1]
                        + i2 * box_steps[2]
                        + i3 * box_steps[3]
                        + start
                    )
                    for sector in range((far >> 5) + base, ((far + inner - 1) >> 5) + base + 1):
                        touched[sector] |= flag
                        sectors += 1
                    for b in range(inner):
                        address = near + b
                        address ^= ((address >> 7) & mask) << 4
                        if loads:
                            store_u8(np.uint64(shared + address), load_u8(np.uint64(far + b)))
                        else:
                            store_u8(np.uint64(far + b), load_u8(np.uint64(shared + address)))
    return sectors


def _four(values: list[int], fill: int) -> Array:
    return np.array(values + [fill] * (4 - len(values)), np.int64)


def _overlap(tile: TensorMap, start: tuple[int, ...]) -> tuple[list[int], list[int], bool]:
    """(first, last + 1) of the box along each dimension that lies in the tensor."""
    low = [max(0, -s) for s in start]
    high = [min(b, n - s) for b, n, s in zip(tile.box, tile.shape, start, strict=True)]
    return low, high, all(a < b for a, b in zip(low, high, strict=True))


def _copy(
    site: Site,
    batch: Batch,
    lane: int,
    tile: TensorMap,
    start: tuple[int, ...],
    offset: int,
    flag: int,
) -> None:
    """Copy what of the box lies in the tensor; offset: the box in the batch's shared memory."""
    low, high, some = _overlap(tile, start)
    if not some:
        return
    bits = tile.element_bits
    if (start[0] + low[0]) * bits % 8 or (high[0] - low[0]) * bits % 8:
        raise site.unsupported(f"{site.opcode}: a tile that starts or ends inside a byte")
    inner = (high[0] - low[0]) * bits // 8
    steps = list(tile.strides_bytes)
    counts = [high[d] - low[d] for d in range(1, tile.rank)]
    first = tile.address + (start[0] + low[0]) * bits // 8
    skipped = low[0] * bits // 8
    pitch, pitches = tile.inner_box_bytes, []
    rows, span = 1, inner
    for d, (count, step) in enumerate(zip(counts, steps, strict=True), start=1):
        first += (start[d] + low[d]) * step
        skipped += low[d] * pitch
        pitches.append(pitch)
        pitch *= tile.box[d]
        rows *= count
        span += (count - 1) * step
    index = global_range(site, batch, lane, first, inner * rows, flag, span)
    memory, shared = batch.memory, batch.shared
    place = offset % shared.stride + shared.base
    batch.traffic.sectors_requested += _copy_rows(
        first,
        shared.address + offset - place,
        place + skipped,
        _four(counts, 1),
        _four(steps, 0),
        _four(pitches, 0),
        inner,
        _SWIZZLE_MASKS[tile.swizzle],
        flag == READ,
        memory.touched,
        int(memory.sector0[index]) - (memory.buffers[index].address >> 5),
        flag,
    )
    batch.traffic.global_requests += 1


def load_tile(
    site: Site, batch: Batch, lane: int, tile: TensorMap, start: tuple[int, ...], target: int
) -> None:
    """Tensor -> shared memory; elements outside the tensor get the map's fill."""
    offset, into = _box(site, batch, lane, tile, target)
    note(site, batch, lane, offset, tile.box_bytes, True)
    inside = all(0 <= s <= n - b for s, n, b in zip(start, tile.shape, tile.box, strict=True))
    if not inside:
        into[:] = 0
        if tile.fill is Fill.NAN:
            into.view(np.uint16)[:] = _nan(site, tile)
    _copy(site, batch, lane, tile, start, offset, READ)
    batch.traffic.shared_written_bytes += tile.box_bytes


def store_tile(
    site: Site, batch: Batch, lane: int, tile: TensorMap, start: tuple[int, ...], source: int
) -> None:
    """Shared memory -> tensor; elements outside the tensor are dropped."""
    offset, _ = _box(site, batch, lane, tile, source)
    note(site, batch, lane, offset, tile.box_bytes, False)
    _copy(site, batch, lane, tile, start, offset, WRITTEN)
    batch.traffic.shared_read_bytes += tile.box_bytes


def _box(site: Site, batch: Batch, lane: int, tile: TensorMap, address: int) -> tuple[int, Array]:
    """(offset, bytes) of the box in shared memory, which a swizzle must not leave."""
    period = 128 * (_SWIZZLE_MASKS[tile.swizzle] + 1)
    address &= SHARED_WINDOW - 1
    if tile.swizzle is not Swizzle.NONE and tile.box_bytes > 128 and address % period:
        raise site.fail(
            Misaligned,
            f"a tile with a {tile.swizzle_span_bytes}-byte swizzle at shared address {address:#x}",
            batch,
            lane,
            hint=f"align the tile to {period} bytes",
        )
    return shared_range(site, batch, lane, address, tile.box_bytes, 128)


# What a tensor copy fills in, 16 bits after 16 bits whatever the type, and `fma.oob` looks for.
_NAN_FILL = 0x7FF7
_WITH_NAN = {"FLOAT16", "BFLOAT16", "FLOAT32", "FLOAT32_FTZ", "TFLOAT32", "TFLOAT32_FTZ", "FLOAT64"}


def _nan(site: Site, tile: TensorMap) -> int:
    if tile.data_type.name not in _WITH_NAN:
        raise site.unsupported(f"NaN fill of {tile.data_type.name} tensor maps")
    return _NAN_FILL
