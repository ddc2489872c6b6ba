"""mma.sync on integers: a warp multiplies small matrices whose elements lie spread over its lanes.

Sums of integers are exact whatever their order, so tensor cores have one result here. How they
round sums of floating-point products is not documented. Source: PTX ISA, matrix fragments of
mma.m8n8k16, mma.m16n8k16 and mma.m16n8k32 with 8-bit elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from nvfp4.emulator.arithmetic.definedness import spread
from nvfp4.emulator.instructions.action import Action, Result, Source, instruction
from nvfp4.emulator.instructions.site import Site
from nvfp4.emulator.instructions.warps import (
    ALL_LANES,
    back,
    by_warp,
    member_gate,
    present_lanes,
    synchronised,
    whole_warps,
)
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.execution import Execution

Arrays = Sequence[Array]
_SHAPES = {"m8n8k16": (8, 16), "m16n8k16": (16, 16), "m16n8k32": (16, 32)}
"""Rows of a and bytes of one; b has 8 columns."""

_COLUMNS = 8
_ELEMENTS = {"u8": np.uint8, "s8": np.int8}


@instruction("mma")
def mma(site: Site) -> Action:
    """mma.sync.aligned.shape.row.col{.satfinite}.s32.{u8,s8}.{u8,s8}.s32 d, a, b, c."""
    rows, row_bytes, types, clamps = _form(site)
    site.takes(4)
    registers = rows // 8 * row_bytes // 16, row_bytes // 16, rows // 4
    targets, *operands = (site.items(index) for index in range(4))
    for given, wanted in zip((targets, *operands), (registers[2], *registers), strict=True):
        if len(given) != wanted:
            raise site.unsupported(f"{site.opcode}: {len(given)} registers where {wanted} belong")

    def parts(ex: Execution, values: Arrays) -> tuple[Array, Array, Array]:
        """a uint8[warps, rows, bytes], b uint8[warps, bytes, 8], c uint32[warps, rows, 8]."""
        warps = whole_warps(site, ex)
        each = [by_warp(ex.group, value)[warps] for value in values]
        b, c, end = accumulate(registers)
        return (
            _matrix(each[:b], rows),
            _matrix(each[b:c], _COLUMNS).swapaxes(1, 2),
            _tile(each[c:end], rows),
        )

    def given_back(ex: Execution, tile: Array) -> tuple[Array, ...]:
        warps = whole_warps(site, ex)
        out = np.zeros((registers[2], ex.batch.grid.lane.size // 32, 32), np.uint32)
        out[:, warps] = _registers(tile)
        return tuple(back(ex.group, each) for each in out)

    def run(ex: Execution, *values: Array) -> tuple[Array, ...]:
        a, b, c = parts(ex, values)
        # float32 holds sums of 32 products of bytes, and BLAS multiplies no integers.
        products = a.view(types[0]).astype(np.float32) @ b.view(types[1]).astype(np.float32)
        sums = products.astype(np.int64) + c.view(np.int32)
        if clamps:
            sums = sums.clip(-(2**31), 2**31 - 1)
        synchronised(ex.batch, present_lanes(ex))
        return given_back(ex, sums.astype(np.uint32))

    def shadow(ex: Execution, values: Arrays, shadows: Arrays) -> tuple[Array, ...]:
        a, b, c = (each != 0 for each in parts(ex, shadows))
        bad = a.any(axis=2, keepdims=True) | b.any(axis=1, keepdims=True) | c
        return given_back(ex, spread(bad, np.dtype(np.uint32)))

    sources = [Source(each, "b32") for operand in operands for each in operand]
    sources.append(Source(ALL_LANES, "b32"))
    results = [Result(target, "b32") for target in targets]
    return Action("warp", sources, results, run, member_gate(len(sources) - 1), shadow=shadow)


def _form(site: Site) -> tuple[int, int, tuple[type, type], bool]:
    """Rows, bytes of a row, the types of a's and b's elements, and whether sums saturate."""
    shape, types = site.parts[3:4], site.parts[-4:]
    known = site.parts[1:3] == ("sync", "aligned") and shape and shape[0] in _SHAPES
    integers = types[:1] + types[-1:] == ("s32", "s32") and set(types[1:3]) <= set(_ELEMENTS)
    if not known or not integers:
        raise site.unsupported(
            f"{site.opcode}: of the tensor cores only mma.sync on 8-bit integers is emulated",
            hint="how others round is not documented; use FMA or dp4a in the emulated variant",
        )
    site.only("sync", "aligned", *_SHAPES, "row", "col", "satfinite", "s32", *_ELEMENTS)
    rows, row_bytes = _SHAPES[shape[0]]
    return rows, row_bytes, (_ELEMENTS[types[1]], _ELEMENTS[types[2]]), "satfinite" in site.parts


def _matrix(registers: Arrays, rows: int) -> Array:
    """uint8[warps, rows, bytes] of registers uint32[warps, lanes]: lane 4g + t has bytes 4t to
    4t + 3 of rows g, g + 8, then 16 bytes further of both.
    """
    words = np.stack(registers, axis=-1)  # [warps, lanes, registers]
    words = words.reshape(-1, 8, 4, len(registers) * 8 // rows, rows // 8)
    ordered = np.ascontiguousarray(words.transpose(0, 4, 1, 3, 2))  # eights of rows, g, halves, t
    return ordered.view(np.uint8).reshape(words.shape[0], rows, -1)


def _tile(registers: Arrays, rows: int) -> Array:
    """uint32[warps, rows, 8]: lane 4g + t has columns 2t and 2t + 1 of row g, then of g + 8."""
    words = np.stack(registers, axis=-1).reshape(-1, 8, 4, rows // 8, 2)
    return np.ascontiguousarray(words.transpose(0, 3, 1, 2, 4)).reshape(-1, rows, _COLUMNS)


def _registers(tile: Array) -> Array:
    """uint32[registers, warps, lanes] of a tile; the inverse of `_tile`."""
    eights = tile.shape[1] // 8
    words = tile.reshape(-1, eights, 8, 4, 2).transpose(1, 4, 0, 2, 3)
    return np.ascontiguousarray(words).reshape(2 * eights, tile.shape[0], 32)
