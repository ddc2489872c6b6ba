"""mma.sync: a warp multiplies small matrices whose elements lie spread over its lanes.

Lane 4g + t has words of row g, and of every eighth row after it. Of a row of a, or a column of b,
it has word t of each four; of the sums it has columns 2t and 2t + 1 of each eight. Registers go
through the rows first. Source: PTX ISA, matrix fragments of mma, which are the same in bytes for
elements of every size.

Sums of integers are exact whatever their order. Those of floating-point products are computed in
float64 and rounded once; how tensor cores round on the way is not documented, so that a GPU's last
bits may differ where the type of the sums does not hold them exactly.
"""

from functools import lru_cache
from typing import Any

import numpy as np

from nvfp4.emulator.arithmetic.definedness import spread
from nvfp4.emulator.arithmetic.formats import FORMATS, decode
from nvfp4.emulator.arrays import Array, Arrays
from nvfp4.emulator.instructions import warp
from nvfp4.emulator.instructions.action import Action, Result, Site, Source, instruction
from nvfp4.emulator.loops import loop
from nvfp4.emulator.state.batch import Execution
from nvfp4.records.base import Record

_INTEGERS = ("u8", "s8")
_ELEMENT_BITS = {"u8": 8, "s8": 8, "e4m3": 8, "e5m2": 8, "f16": 16, "bf16": 16, "tf32": 32}
_SUM_DTYPES: dict[str, Any] = {"s32": np.int32, "f16": np.float16, "f32": np.float32}


class Product(Record):
    """A matrix product with 8 columns, d = a * b + c."""

    rows: int
    """Rows of a, c and d."""
    row_bytes: int
    """Bytes of a row of a, and of a column of b."""
    a: str
    """Element type of a."""
    b: str
    """Element type of b."""
    sum: str
    """Element type of c and d."""
    clamps: bool = False
    """Whether integer sums saturate."""

    @property
    def registers(self) -> tuple[int, int, int]:
        """Number of registers that hold a, b, and c or d; two elements of f16 share one."""
        sums = self.rows // (8 if self.sum == "f16" else 4)
        return self.rows * self.row_bytes // 128, self.row_bytes // 16, sums


@instruction("mma", operands="_ _ _ _")
def mma(site: Site) -> Action:
    """mma.sync.aligned.shape.row.col{.satfinite}.dtype.atype.btype.ctype{.op.popc} d, a, b, c."""
    form = _form(site)
    d, a, b, c = (site.items(index) for index in range(4))
    a_count, b_count, sums = form.registers
    for given, number in zip((d, a, b, c), (sums, a_count, b_count, sums), strict=True):
        if len(given) != number:
            raise site.unsupported(f"{site.opcode}: {len(given)} registers where {number} belong")

    def parts(ex: Execution, values: Arrays, warps: Array) -> list[Array]:
        """Return the registers of a, b and c, [registers, warps, lanes] each."""
        words = np.stack([warp.by_warp(ex.group, value)[warps] for value in values[:-1]])
        return np.split(words, (a_count, a_count + b_count))

    def run(ex: Execution, *values: Array) -> tuple[Array, ...]:
        warps = warp.whole_warps(site, ex)
        sums = _sums(form, *parts(ex, values, warps))
        warp.synchronised(ex.batch, warp.present_lanes(ex))
        return warp.registers_of(ex, warps, sums)

    def shadow(ex: Execution, values: Arrays, shadows: Arrays) -> tuple[Array, ...]:
        warps = warp.whole_warps(site, ex)
        a, b, c = parts(ex, shadows, warps)
        one, other = ((each != 0).astype(np.float64) for each in (a, b))
        bad = _products(form, one, np.ones_like(other)) + _products(form, np.ones_like(one), other)
        mask = (bad != 0) | (_elements(form, c) != 0)
        size = np.dtype(_SUM_DTYPES[form.sum]).itemsize
        found = _registers(spread(mask, np.dtype(f"u{size}")))
        return warp.registers_of(ex, warps, found)

    sources = [Source(each, "b32") for each in (*a, *b, *c, warp.ALL_LANES)]
    results = [Result(target, "b32") for target in d]
    return Action("warp", sources, results, run, warp.member_gate(len(sources) - 1), shadow=shadow)


def _sums(form: Product, a: Array, b: Array, c: Array) -> Array:
    """Return the registers of d, given those of a, b and c; [registers, warps, lanes] each."""
    if form.a == "tf32":  # the lowest bits of the register do not count
        left, right = ((each & np.uint32(0xFFFFE000)).view(np.float32) for each in (a, b))
        products = _products(form, left.astype(np.float64), right.astype(np.float64))
    else:
        products = _products(form, a, b)
    start = _elements(form, c)
    if form.a in _INTEGERS:
        whole = products.astype(np.int64) + start.view(np.int32)
        if form.clamps:
            whole = whole.clip(-(2**31), 2**31 - 1)
        return _registers(whole.astype(np.uint32))
    dtype = _SUM_DTYPES[form.sum]
    with np.errstate(invalid="ignore", over="ignore"):
        rounded = (products + start.view(dtype).astype(np.float64)).astype(dtype)
    return _registers(rounded.view(f"u{rounded.itemsize}"))


def _elements(form: Product, registers: Array) -> Array:
    """The elements of the sums' registers c: unsigned[pairs, 2, warps, lanes]."""
    pairs = form.rows // 8
    if form.sum == "f16":
        halves = registers.view(np.uint16).reshape(pairs, *registers.shape[1:], 2)
        return np.ascontiguousarray(np.moveaxis(halves, 3, 1))
    return registers.reshape(pairs, 2, *registers.shape[1:])


def _registers(elements: Array) -> Array:
    """The registers that hold elements [pairs, 2, warps, lanes]; the inverse of `_elements`."""
    if elements.dtype == np.uint16:
        return np.ascontiguousarray(np.moveaxis(elements, 1, 3)).view(np.uint32)[..., 0]
    return elements.reshape(2 * len(elements), *elements.shape[2:])


def _products(form: Product, a: Array, b: Array) -> Array:
    """Sums of products, float64[pairs, 2, warps, lanes], of registers [registers, warps, lanes]:
    words that hold elements, or float64, one element each."""
    out = np.empty((form.rows // 8, 2, *a.shape[1:]))
    if a.dtype == np.float64:
        bits, tables = 64, [np.zeros(1, np.float32)] * 2
        words, values = [np.zeros((1, 1, 1), np.uint32)] * 2, [a, b]
    else:
        bits = _ELEMENT_BITS[form.a]
        tables = [_values_of_codes(kind) for kind in (form.a, form.b)]
        words, values = [a, b], [np.zeros((1, 1, 1))] * 2
    _multiply(*words, *values, bits, *tables, form.rows, a.shape[0], b.shape[0], out)
    return out


@lru_cache(maxsize=16)
def _values_of_codes(kind: str) -> Array:
    """Return the values of all codes of a type of at most 16 bits, as float32."""
    codes = np.arange(1 << _ELEMENT_BITS[kind])
    if kind in FORMATS:
        with np.errstate(invalid="ignore"):  # signalling NaNs
            return decode(codes, FORMATS[kind]).astype(np.float32)
    return codes.astype(np.uint8).view("i1" if kind == "s8" else "u1").astype("f4")


@loop
def _spread_words(words, values, bits, table, warp, eights, registers, out):  # type: ignore[no-untyped-def]
    """Spread the elements of a warp's words, or its values, to out[row, k]."""
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
    a, b, a_values, b_values, bits, a_table, b_table, rows, a_registers, b_registers, out
):
    """Set `out` to the sums of `_products`.

    Row 8i + g of a is in register i of each group of `rows` / 8 registers, in lanes 4g to 4g + 3.
    The 8 columns of b are laid out likewise.
    """
    depth = a_registers * 8 // rows * 4 * (1 if bits == 64 else 32 // bits)
    left, right = np.empty((rows, depth)), np.empty((8, depth))
    across, sums = np.empty((depth, 8)), np.empty(8)
    for which in range(out.shape[2]):
        _spread_words(a, a_values, bits, a_table, which, rows // 8, a_registers, left)
        _spread_words(b, b_values, bits, b_table, which, 1, b_registers, right)
        across[:] = right.T
        for row in range(rows):
            sums[:] = 0
            for k in range(depth):
                factor = left[row, k]
                for column in range(8):
                    sums[column] += factor * across[k, column]
            for column in range(8):
                lane = (row & 7) * 4 + (column >> 1)
                out[row >> 3, column & 1, which, lane] = sums[column]


_WHAT_RUNS = (
    "a GPU can judge it; here mma.sync on integers, e4m3, e5m2, f16, bf16 and tf32 can "
    "be (a dot of Triton becomes one with 16 rows and one warp)"
)

_SHAPES = {
    8: {"m8n8k16": (8, 16), "m16n8k16": (16, 16), "m16n8k32": (16, 32)},
    16: {"m16n8k8": (16, 16), "m16n8k16": (16, 32)},
    32: {"m16n8k4": (16, 16), "m16n8k8": (16, 32)},
}
"""For each width of an element in bits, rows of a and bytes of a row; b has 8 columns."""


def _form(site: Site) -> Product:
    """Return the product that an instruction names. Raises UnsupportedInstruction."""
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
            f"{site.opcode}: of the tensor cores only mma.sync on integers, e4m3, e5m2, "
            "f16, bf16 and tf32 are emulated",
            hint=_WHAT_RUNS,
        )
    return form


def _known(shape: str, types: list[str], clamps: bool) -> Product | None:
    d, a, b, c = types
    if not {a, b} <= set(_ELEMENT_BITS) or d != c:
        return None
    bits = _ELEMENT_BITS[a]
    integers = a in _INTEGERS
    mixed = bits == 8 == _ELEMENT_BITS[b] and (b in _INTEGERS) == integers
    if (a != b and not mixed) or shape not in _SHAPES[bits]:
        return None
    rows, row_bytes = _SHAPES[bits][shape]
    sums = ("s32",) if integers else ("f32",) if a in ("bf16", "tf32") else ("f32", "f16")
    if d not in sums or ((rows == 8 or clamps) and not integers):
        return None
    return Product(rows, row_bytes, a, b, d, clamps)


@instruction("wmma")
def wmma(site: Site) -> Action:
    """Refuse wmma, whose fragments have no layout that the manual names."""
    raise site.unsupported(f"{site.opcode} is not emulated", hint=_WHAT_RUNS)
