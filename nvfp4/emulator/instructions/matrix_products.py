"""mma.sync: a warp multiplies small matrices whose elements lie spread over its lanes.

Sums of integers are exact whatever their order. Those of floating-point products are computed in
float64 and rounded once; how tensor cores round on the way is not documented, so that a GPU's last
bits may differ where float32 does not hold the sums exactly. Source: PTX ISA, matrix fragments of
mma.m8n8k16 to mma.m16n8k32, which are the same in bytes for elements of 8, 16 and 32 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from nvfp4.emulator.arithmetic.definedness import spread
from nvfp4.emulator.arithmetic.formats import FORMATS, decode
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

WHAT_RUNS = (
    "a GPU can judge it; here mma.sync on 8-bit integers, e4m3, e5m2, f16, bf16 and tf32 can be (a "
    "dot of Triton becomes one with 16 rows and one warp)"
)

Arrays = Sequence[Array]
_COLUMNS = 8

_INTEGERS: dict[str, type] = {"u8": np.uint8, "s8": np.int8}
_ELEMENT_BYTES = {"u8": 1, "s8": 1, "e4m3": 1, "e5m2": 1, "f16": 2, "bf16": 2, "tf32": 4}
_SHAPES = {
    1: {"m8n8k16": (8, 16), "m16n8k16": (16, 16), "m16n8k32": (16, 32)},
    2: {"m16n8k8": (16, 16), "m16n8k16": (16, 32)},
    4: {"m16n8k4": (16, 16), "m16n8k8": (16, 32)},
}
"""By the bytes of an element, rows of a and bytes of one; b has 8 columns."""

_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32}


@dataclass(frozen=True)
class _Form:
    """a, b: types of the elements; sums: of c and d. clamps: whether integer sums saturate."""

    rows: int
    row_bytes: int
    a: str
    b: str
    sums: str
    clamps: bool

    @property
    def registers(self) -> tuple[int, int, int]:
        """Of a, b, and c or d."""
        of_sums = self.rows // 8 * (1 if self.sums == "f16" else 2)
        return self.rows // 8 * self.row_bytes // 16, self.row_bytes // 16, of_sums


@instruction("mma")
def mma(site: Site) -> Action:
    """mma.sync.aligned.shape.row.col{.satfinite}.dtype.atype.btype.ctype d, a, b, c."""
    form = _form(site)
    site.takes(4)
    targets, *operands = (site.items(index) for index in range(4))
    wanted = form.registers[2], *form.registers
    for given, number in zip((targets, *operands), wanted, strict=True):
        if len(given) != number:
            raise site.unsupported(f"{site.opcode}: {len(given)} registers where {number} belong")

    def parts(ex: Execution, values: Arrays) -> tuple[Array, Array, Array]:
        """uint8[warps, rows, bytes] of a, uint8[warps, 8, bytes] of b's columns, and c."""
        warps = whole_warps(site, ex)
        each = [by_warp(ex.group, value)[warps] for value in values]
        b, c, end = accumulate(form.registers)
        a_bytes, b_bytes = _matrix(each[:b], form.rows), _matrix(each[b:c], _COLUMNS)
        return a_bytes, b_bytes, _tile(each[c:end], form)

    def given_back(ex: Execution, tile: Array) -> tuple[Array, ...]:
        warps = whole_warps(site, ex)
        out = np.zeros((form.registers[2], ex.batch.grid.lane.size // 32, 32), np.uint32)
        out[:, warps] = _registers(tile)
        return tuple(back(ex.group, each) for each in out)

    def run(ex: Execution, *values: Array) -> tuple[Array, ...]:
        a, b, c = parts(ex, values)
        sums = _sums(form, a, b, c)
        synchronised(ex.batch, present_lanes(ex))
        return given_back(ex, sums)

    def shadow(ex: Execution, values: Arrays, shadows: Arrays) -> tuple[Array, ...]:
        a, b, c = (each != 0 for each in parts(ex, shadows))
        bad = a.any(axis=2)[:, :, None] | b.any(axis=2)[:, None, :] | c
        dtype = np.dtype(np.uint16 if form.sums == "f16" else np.uint32)
        return given_back(ex, spread(bad, dtype))

    sources = [Source(each, "b32") for operand in operands for each in operand]
    sources.append(Source(ALL_LANES, "b32"))
    results = [Result(target, "b32") for target in targets]
    return Action("warp", sources, results, run, member_gate(len(sources) - 1), shadow=shadow)


def _sums(form: _Form, a: Array, b: Array, c: Array) -> Array:
    """Bits of the products' sums and c, [warps, rows, 8]."""
    if form.a in _INTEGERS:
        # float32 holds sums of 32 products of bytes, and BLAS multiplies no integers.
        left = a.view(_INTEGERS[form.a]).astype(np.float32)
        right = b.view(_INTEGERS[form.b]).astype(np.float32)
        whole = (left @ right.swapaxes(1, 2)).astype(np.int64) + c.view(np.int32)
        if form.clamps:
            whole = whole.clip(-(2**31), 2**31 - 1)
        return whole.astype(np.uint32)
    dtype: Any = np.float16 if form.sums == "f16" else np.float32
    with np.errstate(invalid="ignore", over="ignore"):
        products = _values(a, form.a) @ _values(b, form.b).swapaxes(1, 2)
        rounded = (products + c.view(dtype).astype(np.float64)).astype(dtype)
    return rounded.view(c.dtype)


def _values(raw: Array, kind: str) -> Array:
    """float64 [warps, rows, k] of the bytes of floating-point elements."""
    codes = raw.view(_UNSIGNED[_ELEMENT_BYTES[kind]])
    if kind == "f16":
        return codes.view(np.float16).astype(np.float64)
    if kind == "bf16":
        return (codes.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if kind == "tf32":  # the lowest bits of the register do not count
        return (codes & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    return decode(codes, FORMATS[kind])


def _form(site: Site) -> _Form:
    """Raises UnsupportedInstruction."""
    shape, types = site.parts[3:4], site.parts[-4:]
    form = None
    if site.parts[1:3] == ("sync", "aligned") and shape and len(types) == 4:
        form = _known(shape[0], *types, clamps="satfinite" in site.parts)
    if form is None:
        raise site.unsupported(
            f"{site.opcode}: of the tensor cores only mma.sync on 8-bit integers and on e4m3, "
            "e5m2, f16, bf16 and tf32 is emulated",
            hint=WHAT_RUNS,
        )
    known = {name for shapes in _SHAPES.values() for name in shapes}
    flags = ("satfinite",) if form.sums == "s32" else ()
    site.only("sync", "aligned", *known, "row", "col", *flags, *_ELEMENT_BYTES, form.sums)
    return form


def _known(shape: str, d: str, a: str, b: str, c: str, clamps: bool) -> _Form | None:
    if not {a, b} <= set(_ELEMENT_BYTES) or d != c:
        return None
    nbytes = _ELEMENT_BYTES[a]
    integers = a in _INTEGERS
    mixed = nbytes == 1 and (b in _INTEGERS) == integers and _ELEMENT_BYTES[b] == 1
    if (a != b and not mixed) or shape not in _SHAPES[nbytes]:
        return None
    rows, row_bytes = _SHAPES[nbytes][shape]
    sums = ("s32",) if integers else ("f32", "f16") if a not in ("bf16", "tf32") else ("f32",)
    if d not in sums or (rows == 8 and not integers):
        return None
    return _Form(rows, row_bytes, a, b, d, clamps)


def _matrix(registers: Arrays, rows: int) -> Array:
    """uint8[warps, rows, bytes] of registers uint32[warps, lanes]: lane 4g + t has bytes 4t to
    4t + 3 of rows g, g + 8, then 16 bytes further of both.
    """
    words = np.stack(registers, axis=-1)  # [warps, lanes, registers]
    words = words.reshape(-1, 8, 4, len(registers) * 8 // rows, rows // 8)
    ordered = np.ascontiguousarray(words.transpose(0, 4, 1, 3, 2))  # eights of rows, g, halves, t
    return ordered.view(np.uint8).reshape(words.shape[0], rows, -1)


def _tile(registers: Arrays, form: _Form) -> Array:
    """Words [warps, rows, 8] of 16 bits for f16, else of 32: lane 4g + t has columns 2t and 2t + 1
    of row g, then of g + 8.
    """
    words = np.ascontiguousarray(np.stack(registers, axis=-1))  # [warps, lanes, registers]
    if form.sums == "f16":
        words = words.view(np.uint16)
    words = words.reshape(-1, 8, 4, form.rows // 8, 2)
    return np.ascontiguousarray(words.transpose(0, 3, 1, 2, 4)).reshape(-1, form.rows, _COLUMNS)


def _registers(tile: Array) -> Array:
    """uint32[registers, warps, lanes] of a tile; the inverse of `_tile`."""
    eights = tile.shape[1] // 8
    words = tile.reshape(-1, eights, 8, 4, 2).transpose(0, 2, 3, 1, 4)
    lanes = np.ascontiguousarray(words).reshape(tile.shape[0], 32, -1).view(np.uint32)
    return np.ascontiguousarray(lanes.transpose(2, 0, 1))
