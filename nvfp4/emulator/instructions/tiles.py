"""Tiles of tensors for cp.async.bulk.tensor: boxes, swizzles and elements outside the tensor. Also
tensormap, with which a kernel makes a tensor map, field by field, in shared or global memory.

The fields are those of `records.tensormap`, here counted in 32-bit words. Source: PTX ISA,
tensormap.replace and tensormap.cp_fenceproxy; values have the numbers of its tables.
"""

from bisect import bisect_right
from collections.abc import Callable

import numpy as np

from nvfp4.emulator import errors
from nvfp4.emulator.arrays import Array, distinct
from nvfp4.emulator.instructions import access, action, copy_engine, global_access
from nvfp4.emulator.instructions.access_shape import Access, spaces_of, split_windows
from nvfp4.emulator.instructions.action import Action, LaneSite, Site, Source, instruction
from nvfp4.emulator.instructions.warp import ALL_LANES, by_warp, member_gate, present_lanes
from nvfp4.emulator.loops import loop
from nvfp4.emulator.state import native
from nvfp4.emulator.state.batch import Batch, Execution
from nvfp4.emulator.state.memory import RANK_SHIFT, READ, SHARED_WINDOW, WRITTEN, host_bytes
from nvfp4.emulator.state.native import SECTOR_BYTES, load, store
from nvfp4.emulator.state.tile_swizzles import BY_ATOMS_OF_32
from nvfp4.records.launch_errors import InvalidTensorMap, UnsupportedTensorMap
from nvfp4.records.tensormap import TENSOR_MAP_BYTES, Fill, Swizzle, TensorMap


def read_map(at: LaneSite, address: int) -> TensorMap:
    """The descriptor at a generic address."""
    if address % 64:
        at.fault(errors.Misaligned, f"tensor map at {address:#x}, which is not a multiple of 64")
    hint = "as a parameter of the kernel it is a const __grid_constant__ CUtensorMap"
    buffer = copy_engine.buffer_of(at, "tensor map", address, TENSOR_MAP_BYTES, hint)
    first = (address >> 5) - (buffer.address >> 5)
    flags = at.batch.memory.flags(buffer)[first : first + TENSOR_MAP_BYTES // SECTOR_BYTES]
    fenced = at.batch.launch.fenced_maps
    if address not in fenced and (flags & WRITTEN).any():
        fenced.add(address)
        what = f"the tensor map at {address:#x} was changed by this kernel, with no fence since"
        hint = "put a fence.proxy.tensormap::generic.acquire of the map before the copy"
        at.note(errors.MissingProxyFence, what, hint)
    try:
        return TensorMap.unpack(host_bytes(address, TENSOR_MAP_BYTES).tobytes())
    except UnsupportedTensorMap as error:
        at.fault(errors.UnsupportedInstruction, error.message)
    except InvalidTensorMap as error:
        at.fault(errors.TensorMapError, error.message, hint=error.hint)


@instruction("fence.proxy.tensormap::generic.acquire")
def acquire_map(site: Site) -> Action:
    """fence.proxy.tensormap::generic.acquire.scope [addr], 128."""
    site.takes(2)

    def run(ex: Execution, address: Array) -> None:
        ex.batch.launch.fenced_maps.update(ex.group.spread(address)[ex.positions()].tolist())

    return Action("special", [Source(site.memory(0), "b64")], [], run)


_BOX_ALIGNMENT = 128
"""Alignment of a box in shared memory, in bytes."""
# Bytes of the lines within which a swizzle moves bytes; an exclusive or with this many bits from
# bit 7 up changes those of a shared address from a bit up.
_SWIZZLES = {
    Swizzle.NONE: (16, 0, 4),
    Swizzle.BYTES_32: (32, 1, 4),
    Swizzle.BYTES_64: (64, 3, 4),
    Swizzle.BYTES_128: (128, 7, 4),
    Swizzle.BYTES_128_ATOM_32: (BY_ATOMS_OF_32, 3, 5),
}


@loop
def _copy_rows(  # type: ignore[no-untyped-def]
    tensor, shared, place, counts, tensor_steps, box_steps, inner, mask, low, loads, touched, base,
    flag
):  # fmt: skip
    """Copy rows of `inner` bytes between a tensor and a box, and flag the tensor's sectors.

    tensor: host address of the first row. shared: host address that corresponds to shared address
    0. place: the box's shared address plus the first row's offset in the box; `mask` and `low`, the
    swizzle, apply to such addresses. counts, tensor_steps, box_steps: rows along four outer
    dimensions and their distances in bytes. base: sector of host address 0. Returns the sectors of
    all rows, and how many of them had no flag.
    """
    sectors = 0
    fresh = 0
    start = place
    for i3 in range(counts[3]):
        for i2 in range(counts[2]):
            for i1 in range(counts[1]):
                for i0 in range(counts[0]):
                    far = tensor + i0 * tensor_steps[0] + i1 * tensor_steps[1]
                    far += i2 * tensor_steps[2] + i3 * tensor_steps[3]
                    near = start + i0 * box_steps[0] + i1 * box_steps[1]
                    near += i2 * box_steps[2] + i3 * box_steps[3]
                    for sector in range((far >> 5) + base, ((far + inner - 1) >> 5) + base + 1):
                        fresh += touched[sector] == 0
                        touched[sector] |= flag
                        sectors += 1
                    wide = (near | far | shared | inner) & 7 == 0
                    for b in range(0, inner, 8 if wide else 1):
                        address = near + b
                        inside = np.uint64((address ^ ((address >> 7) & mask) << low) + shared)
                        outside = np.uint64(far + b)
                        source, target = (outside, inside) if loads else (inside, outside)
                        if wide:
                            store(target, load(source, np.uint64))
                        else:
                            store(target, load(source, np.uint8))
    return sectors, fresh


def _four(values: list[int], fill: int) -> Array:
    return np.array(values + [fill] * (4 - len(values)), np.int64)


def _row_addresses(first: int, counts: list[int], steps: list[int]) -> Array:
    """Where the rows of a box in the tensor are: uint64[rows]."""
    address = np.array([first], np.uint64)
    for count, step in zip(counts, steps, strict=True):
        address = (address + (np.arange(count) * step).astype(np.uint64)[:, None]).reshape(-1)
    return address


def _rows(address: Array, nbytes: int) -> Array:
    """The bytes at each address: uint8[nbytes, rows]."""
    out = np.empty((nbytes, address.size), np.uint8)
    native.gather(address, out)
    return out


def _overlap(tile: TensorMap, start: tuple[int, ...]) -> tuple[list[int], list[int], bool]:
    """Return (first, last + 1) along each dimension of the part of the box that lies in the tensor,
    and whether there is such a part."""
    low = [max(0, -s) for s in start]
    high = [min(b, n - s) for b, n, s in zip(tile.box, tile.shape, start, strict=True)]
    return low, high, all(a < b for a, b in zip(low, high, strict=True))


def _copy(at: LaneSite, tile: TensorMap, start: tuple[int, ...], offset: int, flag: int) -> None:
    """Copy the part of the box that lies in the tensor; offset: the box in `SharedMemory.data`."""
    low, high, some = _overlap(tile, start)
    if not some:
        return
    bits = tile.element_bits
    if (start[0] + low[0]) * bits % 8 or (high[0] - low[0]) * bits % 8:
        raise at.site.unsupported(f"{at.site.opcode}: a tile that starts or ends inside a byte")
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
    index = copy_engine.global_range(at, first, inner * rows, flag, span)
    if at.batch.launch.hazards:
        rows_at = _row_addresses(first, counts, steps)
        global_access.check_order_of_launches(
            at.batch, at.site, rows_at, inner, lambda _: at.lane, flag
        )
    races = at.batch.launch.races
    address = before = None
    # All rows are in one buffer.
    if races and (flag == WRITTEN or races.concerns(np.array([first], np.uint64))):
        address = _row_addresses(first, counts, steps)
        before = _rows(address, inner) if flag == WRITTEN else None
    memory, shared = at.batch.memory, at.batch.shared
    place = offset % shared.stride + shared.base
    sectors, fresh = _copy_rows(
        first, shared.host_address + offset - place, place + skipped, _four(counts, 1),
        _four(steps, 0), _four(pitches, 0), inner, *_SWIZZLES[tile.swizzle][1:], flag == READ,
        memory.touched, memory.sector_base(index), flag,
    )  # fmt: skip
    at.batch.traffic.sectors_requested += sectors
    work, place, grid = at.batch.launch.work, at.site.instruction.start, at.batch.grid
    work.asked[place].fresh += fresh
    work.copy(place, at.lane // grid.threads, grid.ctas, sectors)
    if address is not None and before is None:
        global_access.note_range_read(at.batch, at.site, address, inner, at.lane)
    elif address is not None:
        # The race check compares what is there with what comes.
        new = _rows(address, inner)
        native.scatter(address, before)
        global_access.write_bytes(at.batch, at.site, address, np.full(rows, at.lane), new.T.copy())
    at.batch.traffic.global_requests += 1


@loop
def _copy_boxes(  # type: ignore[no-untyped-def]
    tensor, shared, place, counts, tensor_steps, box_steps, inner, mask, low, touched, base, flag
):
    """Load whole boxes, each by `_copy_rows`. tensor, shared, place: for each box, the host address
    of its start in the tensor, its host address in shared memory and its shared address. Returns
    the sums over all boxes."""
    sectors = fresh = 0
    for i in range(tensor.shape[0]):
        more = _copy_rows(
            tensor[i], shared[i] - place[i], place[i], counts, tensor_steps, box_steps, inner, mask,
            low, True, touched, base, flag
        )  # fmt: skip
        sectors += more[0]
        fresh += more[1]
    return sectors, fresh


def load_together(site: Site, batch: Batch, lanes: Array, operands: list[Array]) -> int:
    """Load boxes for lanes of different CTAs together in the common case: no clusters, one tensor
    map, and all boxes inside the tensor.

    operands: descriptor, target, coordinates and mbarrier of each. Returns the bytes of a box; 0 in
    any other case, with nothing done.
    """
    descriptor, target, *coordinates, mbarrier = operands
    launch, shared, memory = batch.launch, batch.shared, batch.memory
    special = batch.cluster_size > 1 or launch.order.shifts_copies or launch.hazards
    apart = distinct(batch.grid.cta[lanes]).size == lanes.size
    if special or launch.tally is not None or not apart or (descriptor != descriptor[0]).any():
        return 0
    tile = read_map(site.lane(batch, lanes[0]), int(descriptor[0]))
    others = ((target ^ mbarrier) >> RANK_SHIFT & 0xFF).any()
    if tile.rank != len(coordinates) or others or any(tile.converts):
        return 0
    start = np.stack(coordinates).astype(np.int32).astype(np.int64)
    box, extents = np.array(tile.box)[:, None], np.array(tile.shape)[:, None]
    bits, steps = tile.element_bits, list(tile.strides_bytes)
    inner, counts, nbytes = tile.inner_box_bytes, list(tile.box[1:]), tile.box_bytes
    address = (target & np.uint64(SHARED_WINDOW - 1)).astype(np.int64)
    outside = (start < 0) | (start + box > extents)
    odd = (start[0] * bits % 8).any() or tile.box[0] * bits % 8 or (address % _BOX_ALIGNMENT).any()
    last = shared.base + shared.size - nbytes
    if outside.any() or odd or (address < shared.base).any() or (address > last).any():
        return 0
    first = tile.address + start[0] * bits // 8 + np.array(steps, np.int64) @ start[1:]
    span = inner + sum((count - 1) * step for count, step in zip(counts, steps, strict=True))
    found = memory.nearest(int(first.min()))
    watched = launch.races is not None and launch.races.concerns(first.astype(np.uint64))
    if found is None or found[1] < 0 or int(first.max()) + span > found[0].end or watched:
        return 0
    offset = address - shared.base + batch.grid.cta[lanes] * shared.stride
    width, mask, low = _SWIZZLES[tile.swizzle]
    copy_engine.choose(batch, mbarrier)
    copy_engine.note_all(site, batch, offset, lanes, nbytes, WRITTEN, swizzle=width)
    pitches = [inner]
    for count in counts[:-1]:
        pitches.append(pitches[-1] * count)
    base = memory.sector_base(bisect_right(memory.addresses, found[0].address) - 1)
    sectors, fresh = _copy_boxes(
        first, offset + shared.host_address, address, _four(counts, 1), _four(steps, 0),
        _four(pitches, 0), inner, mask, low, memory.touched, base, READ
    )  # fmt: skip
    asked, traffic = launch.work.asked[site.instruction.start], batch.traffic
    spent = batch.by_cta(lanes >> 5, np.full(lanes.size, sectors // lanes.size))
    launch.work.spend(site.instruction.start, spent)
    asked.requests += lanes.size
    asked.copied += SECTOR_BYTES * sectors
    asked.fresh += fresh
    traffic.global_read_bytes += nbytes * lanes.size
    traffic.sectors_requested += sectors
    traffic.global_requests += lanes.size
    return nbytes


def load_tile(at: LaneSite, tile: TensorMap, start: tuple[int, ...], target: int) -> None:
    """Copy from a tensor to shared memory; elements outside the tensor get the map's fill."""
    abroad = copy_engine.goes_abroad(at.site)
    offset, into = copy_engine.shared_range(at, target, tile.box_bytes, _BOX_ALIGNMENT, abroad)
    copy_engine.note(at, offset, tile.box_bytes, WRITTEN, swizzle=_SWIZZLES[tile.swizzle][0])
    if not all(0 <= s <= n - b for s, n, b in zip(start, tile.shape, tile.box, strict=True)):
        into[:] = 0
        if tile.fill is Fill.NAN:
            into.view(np.uint16)[:] = _NAN_FILL
    _copy(at, tile, start, offset, READ)
    if any(tile.converts):
        words = into.view(np.uint32)
        words[:] = _converted(words, *tile.converts)


def _converted(words: Array, rounds: bool, flushes: bool) -> Array:
    """Return float32 numbers as a tensor map brings them: rounded to TF32, here to the nearest, or
    with zeros in place of denormal numbers."""
    exponent = words & np.uint32(0x7F800000)
    if rounds:
        up = (exponent != 0x7F800000) * (0xFFF + (words >> np.uint32(13) & 1))
        words = (words + up).astype(np.uint32) & ~np.uint32(0x1FFF)
    return np.where(exponent, words, words & np.uint32(1 << 31)) if flushes else words


def store_tile(at: LaneSite, tile: TensorMap, start: tuple[int, ...], source: int) -> None:
    """Copy from shared memory to a tensor; elements outside the tensor are dropped."""
    offset, _ = copy_engine.shared_range(at, source, tile.box_bytes, _BOX_ALIGNMENT)
    copy_engine.note(at, offset, tile.box_bytes, READ)
    _copy(at, tile, start, offset, WRITTEN)


# What a tensor copy fills in, 16 bits after 16 bits whatever the type, and `fma.oob` looks for.
_NAN_FILL = 0x7FF7


_MODES, _STRIDES, _UPPER, _EXTENTS, _BOX_0, _BOX = 2, 3, 7, 8, 13, 14
_KIND = 2
_FLOAT32_TYPES = {11: 7, 12: 8}  # .tf32, .tf32.ftz are .f32, .f32.ftz with a bit more
_ELEMENTS = {**_FLOAT32_TYPES, 13: 11}  # .b4x16


# One change of a word: the index of the word, the bits that stay, the bits that are set.
Edit = tuple[int, int, int]


def _field(word: int, shift: int, width: int, value: int) -> Edit:
    mask = (1 << width) - 1
    return word, ~(mask << shift) & 0xFFFFFFFF, (value & mask) << shift


def _mode(shift: int, width: int, value: int) -> list[Edit]:
    return [_field(_MODES, shift, width, value), _field(_MODES, 0, 4, _KIND)]


def _element_type(value: int) -> list[Edit]:
    flag = _field(_MODES, 16, 1, value in _FLOAT32_TYPES)
    return [*_mode(7, 4, _ELEMENTS.get(value, value)), flag]


def _address(value: int) -> list[Edit]:
    return [_field(0, 0, 32, value), _field(1, 0, 32, value >> 32)]


def _stride(ordinal: int, value: int) -> list[Edit]:
    sixteenths = value >> 4
    upper = _field(_UPPER, 4 * ordinal, 4, sixteenths >> 32)
    return [_field(_STRIDES + ordinal, 0, 32, sixteenths), upper]


def _box(ordinal: int, value: int) -> list[Edit]:
    place = (_BOX, 8 * (ordinal - 1)) if ordinal else (_BOX_0, 24)
    return [_field(*place, 8, value - 1)]


_SINGLE: dict[str, Callable[[int], list[Edit]]] = {
    "global_address": _address,
    "rank": lambda value: _mode(4, 3, value),
    "elemtype": _element_type,
    "swizzle_mode": lambda value: _mode(13, 2, value),
    "fill_mode": lambda value: _mode(15, 1, value),
}
_BY_DIMENSION: dict[str, Callable[[int, int], list[Edit]]] = {
    "box_dim": _box,
    "global_dim": lambda i, value: [_field(_EXTENTS + i, 0, 32, value - 1)],
    "global_stride": _stride,
}
# Field, and the one value of it that is emulated.
_FIXED = {"interleave_layout": 0, "element_stride": 1, "swizzle_atomicity": 0}


@instruction("tensormap.replace")
def tensormap_replace(site: Site) -> Action:
    """tensormap.replace.tile.field{.ss}.b1024.type [addr], {ordinal,} new_value."""
    fields = (*_SINGLE, *_BY_DIMENSION, *_FIXED)
    field = next((part for part in site.parts if part in fields), None)
    if field is None:
        raise site.unsupported(f"{site.opcode}: this field is not emulated")
    site.only("replace", "tile", field, "global", "shared", "shared::cta", "b1024", "b32", "b64")
    indexed = field in _BY_DIMENSION or field == "element_stride"
    site.takes(3 if indexed else 2)
    memory, ordinal = site.memory(0), site.integer(1) if indexed else 0
    if not 0 <= ordinal < 5:
        raise site.unsupported(f"{site.opcode}: the dimension must be 0 to 4")
    word = Access(site, (spaces_of(site) or ["generic"])[0], 4, 1)

    def edits(at: LaneSite, value: int) -> list[Edit]:
        if field in _FIXED:
            if value != _FIXED[field]:
                what = f"{field} {value} of a tensor map is not emulated"
                at.fault(errors.UnsupportedInstruction, what)
            return []
        single = _SINGLE.get(field)
        return _BY_DIMENSION[field](ordinal, value) if single is None else single(value)

    def run(ex: Execution, address: Array, value: Array) -> None:
        for at, (place, new) in action.issuing_lanes(site, ex, (address, value)):
            for index, kept, bits in edits(at, new):
                _edit(ex.batch, word, np.array([at.lane]), place + 4 * index, kept, bits)

    return Action("store", [Source(memory, "b64"), Source(site.operands[-1], "b64")], [], run)


def _edit(batch: Batch, word: Access, lanes: Array, address: int, kept: int, bits: int) -> None:
    where = np.array([address], np.uint64)
    space = split_windows(where)[0][0] if word.space == "generic" else word.space
    old = access.read(batch, word, space, where, lanes)
    access.write(batch, word, space, where, lanes, (old & np.uint32(kept)) | np.uint32(bits))
    batch.launch.fenced_maps.difference_update((where & ~np.uint64(TENSOR_MAP_BYTES - 1)).tolist())


@instruction("tensormap.cp_fenceproxy", operands="[] [] _")
def tensormap_copy(site: Site) -> Action:
    """tensormap.cp_fenceproxy.global.shared::cta...sync.aligned [dst], [src], 128: by a warp."""
    if spaces_of(site) != ["global", "shared"]:
        raise site.unsupported(f"{site.opcode}: only copies from shared to global are emulated")
    what = {space: Access(site, space, 8, TENSOR_MAP_BYTES // 8) for space in ("global", "shared")}

    def run(ex: Execution, target: Array, source: Array, mask: Array) -> None:
        present = present_lanes(ex)
        warps = np.flatnonzero(present.any(axis=1))
        first = present[warps].argmax(axis=1)
        lanes = 32 * warps + first
        data = access.read(
            ex.batch, what["shared"], "shared", by_warp(ex.group, source)[warps, first], lanes
        )
        where = np.ascontiguousarray(by_warp(ex.group, target)[warps, first])
        access.write(ex.batch, what["global"], "global", where, lanes, data)
        ex.batch.launch.fenced_maps.difference_update(where.tolist())

    site.sources.append(Source(ALL_LANES, "b32"))
    return site.action("store", run, gate=member_gate(2))
