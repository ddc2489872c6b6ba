"""tensormap: a kernel makes a tensor map, field by field, in shared or global memory.

The fields are those of `capture.tensormap`, here counted in 32-bit words. Source: PTX ISA,
tensormap.replace and tensormap.cp_fenceproxy; values have the numbers of its tables.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nvfp4.emulator.errors import UnsupportedInstruction
from nvfp4.emulator.instructions import access
from nvfp4.emulator.instructions.access_shape import Access, spaces_of
from nvfp4.emulator.instructions.action import Action, Source, instruction
from nvfp4.emulator.instructions.site import Site
from nvfp4.emulator.instructions.tiles import TensorMaps
from nvfp4.emulator.instructions.warp import ALL_LANES, by_warp, member_gate, present_lanes
from nvfp4.emulator.ptx.syntax import Integer
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.batch import Batch, Execution
from nvfp4.records.tensormap import TENSOR_MAP_BYTES

_MODES, _STRIDES, _UPPER, _EXTENTS, _BOX_0, _BOX = 2, 3, 7, 8, 13, 14
_KIND = 2
_FLOAT32_TYPES = {11: 7, 12: 8}  # .tf32, .tf32.ftz are .f32, .f32.ftz with a bit more
_FOUR_BITS = {13: 11}  # .b4x16


# One change of a word: the index of the word, the bits that stay, the bits that are set.
Edit = tuple[int, int, int]


def _field(word: int, shift: int, width: int, value: int) -> Edit:
    mask = (1 << width) - 1
    return word, ~(mask << shift) & 0xFFFFFFFF, (value & mask) << shift


def _mode(shift: int, width: int, value: int) -> list[Edit]:
    return [_field(_MODES, shift, width, value), _field(_MODES, 0, 4, _KIND)]


def _element_type(value: int) -> list[Edit]:
    element = _FLOAT32_TYPES.get(value, _FOUR_BITS.get(value, value))
    flag = _field(_MODES, 16, 1, value in _FLOAT32_TYPES)
    return [*_mode(7, 4, element), flag]


def _address(value: int) -> list[Edit]:
    return [_field(0, 0, 32, value), _field(1, 0, 32, value >> 32)]


def _stride(ordinal: int, value: int) -> list[Edit]:
    sixteenths = value >> 4
    upper = _field(_UPPER, 4 * ordinal, 4, sixteenths >> 32)
    return [_field(_STRIDES + ordinal, 0, 32, sixteenths), upper]


def _box(ordinal: int, value: int) -> list[Edit]:
    if ordinal == 0:
        return [_field(_BOX_0, 24, 8, value - 1)]
    return [_field(_BOX, 8 * (ordinal - 1), 8, value - 1)]


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
    memory, ordinal = site.memory(0), 0
    if indexed:
        index = site.operands[1]
        if not isinstance(index, Integer) or not 0 <= index.value < 5:
            raise site.unsupported(f"{site.opcode}: the dimension must be 0 to 4")
        ordinal = index.value
    word = Access(site, (spaces_of(site) or ["generic"])[0], 4, 1)

    def edits(ex: Execution, lane: int, value: int) -> list[Edit]:
        if field in _FIXED:
            if value != _FIXED[field]:
                what = f"{field} {value} of a tensor map is not emulated"
                site.lane(ex.batch, lane).fault(UnsupportedInstruction, what)
            return []
        if field in _SINGLE:
            return _SINGLE[field](value)
        return _BY_DIMENSION[field](ordinal, value)

    def run(ex: Execution, address: Array, value: Array) -> None:
        at = ex.positions()
        group = ex.group
        for position in at:
            lanes = group.lanes[position : position + 1]
            place = int(group.spread(address)[position])
            for index, kept, bits in edits(ex, lanes[0], int(group.spread(value)[position])):
                _edit(ex.batch, word, lanes, place + 4 * index, kept, bits)

    sources = [Source(memory, "b64"), Source(site.operands[-1], "b64")]
    return Action("store", sources, [], run)


def _edit(batch: Batch, word: Access, lanes: Array, address: int, kept: int, bits: int) -> None:
    where = np.array([address], np.uint64)
    space = word.space
    if space == "generic":
        space = access.split_windows(where)[0][0]
    old = access.read(batch, word, space, where, lanes)
    new = (old & np.uint32(kept)) | np.uint32(bits)
    access.write(batch, word, space, where, lanes, new)
    batch.kept(TensorMaps).by_address.clear()


@instruction("tensormap.cp_fenceproxy")
def tensormap_copy(site: Site) -> Action:
    """tensormap.cp_fenceproxy.global.shared::cta...sync.aligned [dst], [src], 128: by a warp."""
    site.takes(3)
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
        ex.batch.kept(TensorMaps).by_address.clear()

    sources = [Source(site.memory(0), "b64"), Source(site.memory(1), "b64")]
    return Action("store", [*sources, Source(ALL_LANES, "b32")], [], run, member_gate(2))
