"""mma.sync: a warp multiplies small matrices whose elements lie spread over its lanes.

Lane 4g + t has words of row g, and of every eighth row after it. Of a row of a, or a column of b,
it has word t of each four; of the sums it has columns 2t and 2t + 1 of each eight. Registers go
through the rows first. Source: PTX ISA, matrix fragments of mma, which are the same in bytes for
elements of every size. Those of wmma are unspecified, and here the same as mma's.

Sums of integers are exact whatever their order. Those of floating-point products are computed in
float64 and rounded once; how tensor cores round on the way is not documented, so that a GPU's last
bits may differ where the type of the sums does not hold them exactly.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np

from nvfp4.emulator.arithmetic.definedness import spread
from nvfp4.emulator.arithmetic.formats import FORMATS, decode
from nvfp4.emulator.instructions.action import Action, Result, Site, Source, instruction
from nvfp4.emulator.instructions.warp import (
    ALL_LANES,
    back,
    by_warp,
    member_gate,
    present_lanes,
    synchronised,
    whole_warps,
)
from nvfp4.emulator.loops import loop
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.batch import Execution

Arrays = Sequence[Array]

INTEGERS = ("u8", "s8")
ELEMENT_BITS = {
    "u8": 8, "s8": 8, "e4m3": 8, "e5m2": 8,
    "f16": 16, "bf16": 16, "tf32": 32,
}  # fmt: skip
SUM_DTYPES: dict[str, Any] = {
    "s32": np.int32, "f16": np.float16, "f32": np.float32,
}  # fmt: skip


@dataclass(frozen=True)
class Product:
    """d = a * b + c. rows, columns: of the sums. row_bytes: of a row of a and of a column of b. a,
    b, c, d: types of the elements. clamps: whether integer sums saturate.
    """

    rows: int
    columns: int
    row_bytes: int
    a: str
    b: str
    c: str
    d: str
    clamps: bool = False

    @property
    def factors(self) -> tuple[int, int]:
        """How many registers of a and b hold all elements."""
        return self.rows * self.row_bytes // 128, self.columns * self.row_bytes // 128

    def sums(self, kind: str) -> int:
        """How many registers of c or d there are; two elements of f16 share one."""
        return self.rows * self.columns // (64 if kind == "f16" else 32)


def product_action(
    site: Site, form: Product, registers: tuple[int, int], operands: Sequence[Any]
) -> Action:
    """The action of an instruction that multiplies. registers: of a and b, where each may be there
    several times. operands: those of d, a, b and c.
    """
    counts = (*registers, form.sums(form.c))
    for given, number in zip(operands, (form.sums(form.d), *counts), strict=True):
        if len(given) != number:
            raise site.unsupported(f"{site.opcode}: {len(given)} registers where {number} belong")
    a_end, b_end, c_end = accumulate(counts)

    def parts(ex: Execution, values: Arrays, warps: Array) -> list[Array]:
        """The registers of a, b and c, [registers, warps, lanes] each."""
        spans = (0, form.factors[0]), (a_end, a_end + form.factors[1]), (b_end, c_end)
        return [
            np.stack([by_warp(ex.group, value)[warps] for value in values[start:stop]])
            for start, stop in spans
        ]

    def given_back(ex: Execution, found: Array, warps: Array) -> tuple[Array, ...]:
        out = np.zeros((len(found), ex.batch.grid.lane.size // 32, 32), found.dtype)
        out[:, warps] = found
        return tuple(back(ex.group, each) for each in out)

    def run(ex: Execution, *values: Array) -> tuple[Array, ...]:
        warps = whole_warps(site, ex)
        sums = _sums(form, *parts(ex, values, warps))
        synchronised(ex.batch, present_lanes(ex))
        return given_back(ex, sums, warps)

    def shadow(ex: Execution, values: Arrays, shadows: Arrays) -> tuple[Array, ...]:
        warps = whole_warps(site, ex)
        a, b, c = parts(ex, shadows, warps)
        one, other = ((each != 0).astype(np.float64) for each in (a, b))
        bad = _products(form, one, np.ones_like(other)) + _products(form, np.ones_like(one), other)
        mask = (bad != 0) | (_elements(form, c) != 0)
        size = np.dtype(SUM_DTYPES[form.d]).itemsize
        return given_back(ex, _registers(spread(mask, np.dtype(f"u{size}"))), warps)

    d, a, b, c = operands
    sources = [Source(each, "b32") for each in (*a, *b, *c, ALL_LANES)]
    results = [Result(target, "b32") for target in d]
    return Action("warp", sources, results, run, member_gate(len(sources) - 1), shadow=shadow)


def _sums(form: Product, a: Array, b: Array, c: Array) -> Array:
    """The registers of d, for those of a, b and c, [registers, warps, lanes] each."""
    if form.a == "tf32":  # the lowest bits of the register do not count
        left, right = ((each & np.uint32(0xFFFFE000)).view(np.float32) for each in (a, b))
        products = _products(form, left.astype(np.float64), right.astype(np.float64))
    else:
        products = _products(form, a, b)
    start = _elements(form, c)
    if form.a in INTEGERS:
        whole = products.astype(np.int64) + start.view(np.int32)
        if form.clamps:
            whole = whole.clip(-(2**31), 2**31 - 1)
        return _registers(whole.astype(np.uint32))
    dtype = SUM_DTYPES[form.d]
    with np.errstate(invalid="ignore", over="ignore"):
        rounded = (products + start.view(SUM_DTYPES[form.c]).astype(np.float64)).astype(dtype)
    return _registers(rounded.view(f"u{rounded.itemsize}"))


def _elements(form: Product, registers: Array) -> Array:
    """The elements of the sums' registers c: unsigned[pairs, 2, warps, lanes]."""
    pairs = form.rows * form.columns // 64
    if form.c == "f16":
        halves = registers.view(np.uint16).reshape(pairs, *registers.shape[1:], 2)
        return np.ascontiguousarray(np.moveaxis(halves, 3, 1))
    return registers.reshape(pairs, 2, *registers.shape[1:])


def _registers(elements: Array) -> Array:
    """The registers that hold elements [pairs, 2, warps, lanes]; the inverse of `_elements`."""
    if elements.dtype == np.uint16:
        halves = np.ascontiguousarray(np.moveaxis(elements, 1, 3))
        return halves.view(np.uint32)[..., 0]
    return elements.reshape(-1, *elements.shape[2:])


def _products(form: Product, a: Array, b: Array) -> Array:
    """Sums of products, float64[pairs, 2, warps, lanes], of registers [registers, warps, lanes]:
    words that hold elements, or float64, one element each."""
    out = np.empty((form.rows * form.columns // 64, 2, *a.shape[1:]))
    if a.dtype == np.float64:
        bits, tables = 64, [np.zeros(1, np.float32)] * 2
        words, values = [np.zeros((1, 1, 1), np.uint32)] * 2, [a, b]
    else:
        bits = ELEMENT_BITS[form.a]
        tables = [_values_of_codes(kind) for kind in (form.a, form.b)]
        words, values = [a, b], [np.zeros((1, 1, 1))] * 2
    _multiply(
        *words, *values, bits, *tables, form.rows, form.columns, a.shape[0], b.shape[0], out
    )  # fmt: skip
    return out


@lru_cache(maxsize=16)
def _values_of_codes(kind: str) -> Array:
    """The values of all codes of a type of at most 16 bits, which float32 holds."""
    codes = np.arange(1 << ELEMENT_BITS[kind])
    if kind in FORMATS:
        with np.errstate(invalid="ignore"):  # signalling NaNs
            return decode(codes, FORMATS[kind]).astype(np.float32)
    return codes.astype(np.uint8).view("i1" if kind == "s8" else "u1").astype("f4")


@loop
def _spread_words(words, values, bits, table, warp, eights, registers, out):  # type: ignore[no-untyped-def]
    """The elements of a warp's words, or its values, as out[row, k]."""
    per = 1 if bits == 64 else 32 // bits
    mask = np.uint32((1 << min(bits, 31)) - 1)
    for register in range(registers):
        group, four = register % eights, register // eights
        for lane in range(32):
            row, first = 8 * group + (lane >> 2), (4 * four + (lane & 3)) * per
            if bits == 64:
                out[row, first] = values[register, warp, lane]
                continue
            word = words[register, warp, lane]
            for i in range(per):
                out[row, first + i] = table[(word >> np.uint32(bits * i)) & mask]


@loop
def _multiply(  # type: ignore[no-untyped-def]
    a, b, a_values, b_values, bits, a_table, b_table, rows, columns, a_registers, b_registers, out
):
    """Set `out` to the sums of `_products`. Row 8i + g of a, or of b's columns, is in register i of
    each `rows` / 8, lanes 4g to 4g + 3."""
    depth = a_registers * 8 // rows * 4 * (1 if bits == 64 else 32 // bits)
    left, right = np.empty((rows, depth)), np.empty((columns, depth))
    across, sums = np.empty((depth, columns)), np.empty(columns)
    for warp in range(out.shape[2]):
        _spread_words(a, a_values, bits, a_table, warp, rows // 8, a_registers, left)
        _spread_words(b, b_values, bits, b_table, warp, columns // 8, b_registers, right)
        across[:] = right.T
        for row in range(rows):
            sums[:] = 0
            for k in range(depth):
                factor = left[row, k]
                for column in range(columns):
                    sums[column] += factor * across[k, column]
            for column in range(columns):
                pair = (column >> 3) * (rows >> 3) + (row >> 3)
                lane = (row & 7) * 4 + ((column & 7) >> 1)
                out[pair, column & 1, warp, lane] = sums[column]


# --- layouts, of wmma's loads and stores ----------------------------------------------------------


def places_in_matrix(rows: int, row_bytes: int) -> tuple[Array, Array]:
    """The row of each register, [registers, lanes], and the byte in it where its word starts."""
    row, start = np.meshgrid(np.arange(rows), np.arange(0, row_bytes, 4), indexing="ij")
    eights, fours = rows // 8, row_bytes // 16

    def by_register(values: Array) -> Array:
        ordered = values.reshape(eights, 8, fours, 4).transpose(2, 0, 1, 3)
        return ordered.reshape(eights * fours, 32)

    return by_register(row), by_register(start)


def places_in_tile(rows: int, columns: int) -> tuple[Array, Array]:
    """The row of each pair of sums, [pairs, lanes], and the column of the first of them."""
    row, column = np.meshgrid(np.arange(rows), np.arange(0, columns, 2), indexing="ij")

    def by_pair(values: Array) -> Array:
        ordered = values.reshape(rows // 8, 8, columns // 8, 4).transpose(2, 0, 1, 3)
        return ordered.reshape(-1, 32)

    return by_pair(row), by_pair(column)


WHAT_RUNS = (
    "a GPU can judge it; here mma.sync and wmma on integers, e4m3, e5m2, f16, bf16 and tf32 can "
    "be (a dot of Triton becomes one with 16 rows and one warp)"
)

_SHAPES = {
    8: {"m8n8k16": (8, 16), "m16n8k16": (16, 16), "m16n8k32": (16, 32)},
    16: {"m16n8k8": (16, 16), "m16n8k16": (16, 32)},
    32: {"m16n8k4": (16, 16), "m16n8k8": (16, 32)},
}
"""By the bits of an element, rows of a and bytes of one; b has 8 columns."""


@instruction("mma")
def mma(site: Site) -> Action:
    """mma.sync.aligned.shape.row.col{.satfinite}.dtype.atype.btype.ctype{.op.popc} d, a, b, c."""
    form = _form(site)
    site.takes(4)
    return product_action(site, form, form.factors, [site.items(index) for index in range(4)])


def _form(site: Site) -> Product:
    """Raises UnsupportedInstruction."""
    shape = site.parts[3:4]
    types = [part for part in site.parts[4:] if part not in ("row", "col", "satfinite")]
    form = None
    if site.parts[1:3] == ("sync", "aligned") and shape and len(types) == 4:
        form = _known(shape[0], types, "satfinite" in site.parts)
    if form is None and any(part.startswith("kind::") for part in site.parts):
        raise site.unsupported(
            f"{site.opcode}: mma.sync on block-scaled elements, or those of 4 and 6 bits, is for "
            "sm_120a; ptxas refuses it for sm_90a and sm_100a",
            hint="on sm_100a tcgen05.mma does that",
        )
    if form is None:
        raise site.unsupported(
            f"{site.opcode}: of the tensor cores only mma.sync and wmma on integers, e4m3, e5m2, "
            "f16, bf16 and tf32 are emulated",
            hint=WHAT_RUNS,
        )
    return form


def _known(shape: str, types: list[str], clamps: bool) -> Product | None:
    d, a, b, c = types
    if not {a, b} <= set(ELEMENT_BITS) or d != c:
        return None
    bits = ELEMENT_BITS[a]
    integers = a in INTEGERS
    mixed = bits == 8 == ELEMENT_BITS[b] and (b in INTEGERS) == integers
    if (a != b and not mixed) or shape not in _SHAPES[bits]:
        return None
    rows, row_bytes = _SHAPES[bits][shape]
    if d not in sums_of(a) or ((rows == 8 or clamps) and not integers):
        return None
    return Product(rows, 8, row_bytes, a, b, c, d, clamps)


def sums_of(kind: str) -> tuple[str, ...]:
    """The types that sums of products of a type may have."""
    if kind in INTEGERS:
        return ("s32",)
    return ("f32",) if kind in ("bf16", "tf32") else ("f32", "f16")
