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
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.batch import Execution

Arrays = Sequence[Array]

INTEGERS = ("u8", "s8", "u4", "s4", "b1")
ELEMENT_BITS = {
    "b1": 1, "u4": 4, "s4": 4, "u8": 8, "s8": 8, "e4m3": 8, "e5m2": 8,
    "f16": 16, "bf16": 16, "tf32": 32, "f64": 64,
}  # fmt: skip
SUM_DTYPES: dict[str, Any] = {
    "s32": np.int32, "f16": np.float16, "f32": np.float32, "f64": np.float64,
}  # fmt: skip


@dataclass(frozen=True)
class Product:
    """d = a * b + c. rows, columns: of the sums. row_bytes: of a row of a and of a column of b. a,
    b, c, d: types of the elements. clamps: whether integer sums saturate. combine: of single bits,
    and or xor.
    """

    rows: int
    columns: int
    row_bytes: int
    a: str
    b: str
    c: str
    d: str
    clamps: bool = False
    combine: str = "and"

    @property
    def word(self) -> str:
        """The class of the registers of a and b."""
        return "b64" if self.a == "f64" else "b32"

    @property
    def factors(self) -> tuple[int, int]:
        """How many registers of a and b hold all elements."""
        in_all_lanes = 32 * (8 if self.a == "f64" else 4)
        of_a, of_b = self.rows * self.row_bytes, self.columns * self.row_bytes
        return of_a // in_all_lanes, of_b // in_all_lanes

    def sums(self, kind: str) -> int:
        """How many registers of c or d there are; two elements of f16 share one."""
        return self.rows * self.columns // (64 if kind == "f16" else 32)


def sum_class(kind: str) -> str:
    """The class of the registers of c or d."""
    return "b64" if kind == "f64" else "b32"


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

    def parts(ex: Execution, values: Arrays) -> tuple[Array, Array, Array]:
        """uint8[warps, rows, bytes] of a, the same of b's columns, and c."""
        warps = whole_warps(site, ex)
        each = [by_warp(ex.group, value)[warps] for value in values]
        a, b = each[: form.factors[0]], each[a_end : a_end + form.factors[1]]
        c = tile(each[b_end:c_end], form.rows, form.columns, form.c)
        return matrix(a, form.rows), matrix(b, form.columns), c

    def given_back(ex: Execution, sums: Array) -> tuple[Array, ...]:
        found = tile_registers(sums)
        out = np.zeros((len(found), ex.batch.grid.lane.size // 32, 32), found.dtype)
        out[:, whole_warps(site, ex)] = found
        return tuple(back(ex.group, each) for each in out)

    def run(ex: Execution, *values: Array) -> tuple[Array, ...]:
        sums = _sums(form, *parts(ex, values))
        synchronised(ex.batch, present_lanes(ex))
        return given_back(ex, sums)

    def shadow(ex: Execution, values: Arrays, shadows: Arrays) -> tuple[Array, ...]:
        a, b, c = (each != 0 for each in parts(ex, shadows))
        bad = a.any(axis=2)[:, :, None] | b.any(axis=2)[:, None, :] | c
        size = np.dtype(SUM_DTYPES[form.d]).itemsize
        return given_back(ex, spread(bad, np.dtype(f"u{size}")))

    d, a, b, c = operands
    sources = [Source(each, form.word) for each in (*a, *b)]
    sources += [Source(each, sum_class(form.c)) for each in c]
    sources.append(Source(ALL_LANES, "b32"))
    results = [Result(target, sum_class(form.d)) for target in d]
    return Action("warp", sources, results, run, member_gate(len(sources) - 1), shadow=shadow)


def _sums(form: Product, a: Array, b: Array, c: Array) -> Array:
    """Bits of the products' sums and c, [warps, rows, columns]."""
    dtype = SUM_DTYPES[form.d]
    if form.a in INTEGERS:
        # float32 holds sums of products of bytes, and BLAS multiplies no integers.
        left, right = _whole(a, form.a), _whole(b, form.b)
        products = left @ right.swapaxes(1, 2)
        if form.combine == "xor":
            products = left.sum(axis=2)[:, :, None] + right.sum(axis=2)[:, None, :] - 2 * products
        whole = products.astype(np.int64) + c.view(np.int32)
        if form.clamps:
            whole = whole.clip(-(2**31), 2**31 - 1)
        return whole.astype(np.uint32)
    with np.errstate(invalid="ignore", over="ignore"):
        products = _values(a, form.a) @ _values(b, form.b).swapaxes(1, 2)
        rounded = (products + c.view(SUM_DTYPES[form.c]).astype(np.float64)).astype(dtype)
    return rounded.view(f"u{rounded.itemsize}")


def _whole(raw: Array, kind: str) -> Array:
    """float32 [warps, rows, k] of the bytes of integers."""
    if kind == "b1":
        return np.unpackbits(raw, axis=-1, bitorder="little").astype(np.float32)
    if kind in ("u4", "s4"):
        codes = np.stack((raw & 15, raw >> 4), axis=-1).reshape(*raw.shape[:2], -1)
        signed = codes.astype(np.int8)
        return (np.where(signed > 7, signed - 16, signed) if kind == "s4" else codes).astype("f4")
    return raw.view({"u8": np.uint8, "s8": np.int8}[kind]).astype(np.float32)


def _values(raw: Array, kind: str) -> Array:
    """float64 [warps, rows, k] of the bytes of floating-point elements."""
    codes = raw.view(f"u{ELEMENT_BITS[kind] // 8}")
    if kind == "f64":
        return codes.view(np.float64)
    if kind == "tf32":  # the lowest bits of the register do not count
        return (codes & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    return decode(codes, FORMATS[kind])


# --- layouts ----------------------------------------------------------------------------------


def matrix(registers: Arrays, rows: int) -> Array:
    """uint8[warps, rows, bytes] of registers [warps, lanes]."""
    words = np.stack(registers, axis=-1)  # [warps, lanes, registers]
    words = words.reshape(-1, 8, 4, len(registers) * 8 // rows, rows // 8)
    ordered = np.ascontiguousarray(words.transpose(0, 4, 1, 3, 2))  # eights of rows, g, fours, t
    return ordered.view(np.uint8).reshape(words.shape[0], rows, -1)


def places_in_matrix(rows: int, row_bytes: int, word_bytes: int) -> tuple[Array, Array]:
    """The row of each register, [registers, lanes], and the byte in it where its word starts."""
    row, start = np.meshgrid(np.arange(rows), np.arange(0, row_bytes, word_bytes), indexing="ij")
    eights, fours = rows // 8, row_bytes // word_bytes // 4

    def by_register(values: Array) -> Array:
        ordered = values.reshape(eights, 8, fours, 4).transpose(2, 0, 1, 3)
        return ordered.reshape(eights * fours, 32)

    return by_register(row), by_register(start)


def tile(registers: Arrays, rows: int, columns: int, kind: str) -> Array:
    """Words [warps, rows, columns] of the sums' registers, each [warps, lanes]."""
    words = np.ascontiguousarray(np.stack(registers, axis=-1))  # [warps, lanes, registers]
    if kind == "f16":
        words = words.view(np.uint16)
    words = words.reshape(-1, 8, 4, columns // 8, rows // 8, 2).transpose(0, 4, 1, 3, 2, 5)
    return np.ascontiguousarray(words).reshape(-1, rows, columns)


def tile_registers(sums: Array) -> Array:
    """[registers, warps, lanes] of words [warps, rows, columns]; the inverse of `tile`."""
    warps, rows, columns = sums.shape
    words = sums.reshape(warps, rows // 8, 8, columns // 8, 4, 2).transpose(0, 2, 4, 3, 1, 5)
    lanes = np.ascontiguousarray(words).reshape(warps, 32, -1)
    if lanes.dtype == np.uint16:
        lanes = lanes.view(np.uint32)
    return np.ascontiguousarray(lanes.transpose(2, 0, 1))


def places_in_tile(rows: int, columns: int) -> tuple[Array, Array]:
    """The row of each pair of sums, [pairs, lanes], and the column of the first of them."""
    row, column = np.meshgrid(np.arange(rows), np.arange(0, columns, 2), indexing="ij")

    def by_pair(values: Array) -> Array:
        ordered = values.reshape(rows // 8, 8, columns // 8, 4).transpose(2, 0, 1, 3)
        return ordered.reshape(-1, 32)

    return by_pair(row), by_pair(column)


WHAT_RUNS = (
    "a GPU can judge it; here mma.sync and wmma on integers, e4m3, e5m2, f16, bf16, tf32 and f64 "
    "can be (a dot of Triton becomes one with 16 rows and one warp)"
)

_SHAPES = {
    1: {"m8n8k128": (8, 16), "m16n8k128": (16, 16), "m16n8k256": (16, 32)},
    4: {"m8n8k32": (8, 16), "m16n8k32": (16, 16), "m16n8k64": (16, 32)},
    8: {"m8n8k16": (8, 16), "m16n8k16": (16, 16), "m16n8k32": (16, 32)},
    16: {"m16n8k8": (16, 16), "m16n8k16": (16, 32)},
    32: {"m16n8k4": (16, 16), "m16n8k8": (16, 32)},
    64: {"m8n8k4": (8, 32), "m16n8k4": (16, 32), "m16n8k8": (16, 64), "m16n8k16": (16, 128)},
}
"""By the bits of an element, rows of a and bytes of one; b has 8 columns."""

_FLAGS = ("satfinite", "and", "xor", "popc")


@instruction("mma")
def mma(site: Site) -> Action:
    """mma.sync.aligned.shape.row.col{.satfinite}.dtype.atype.btype.ctype{.op.popc} d, a, b, c."""
    form = _form(site)
    site.takes(4)
    return product_action(site, form, form.factors, [site.items(index) for index in range(4)])


def _form(site: Site) -> Product:
    """Raises UnsupportedInstruction."""
    shape = site.parts[3:4]
    types = [part for part in site.parts[4:] if part not in ("row", "col", *_FLAGS)]
    form = None
    if site.parts[1:3] == ("sync", "aligned") and shape and len(types) == 4:
        flags = {flag for flag in _FLAGS if flag in site.parts}
        form = _known(shape[0], types, flags)
    if form is None and any(part.startswith("kind::") for part in site.parts):
        raise site.unsupported(
            f"{site.opcode}: mma.sync on block-scaled elements, or those of 4 and 6 bits, is for "
            "sm_120a; ptxas refuses it for sm_90a and sm_100a",
            hint="on sm_100a tcgen05.mma does that",
        )
    if form is None:
        raise site.unsupported(
            f"{site.opcode}: of the tensor cores only mma.sync and wmma on integers, e4m3, e5m2, "
            "f16, bf16, tf32 and f64 are emulated",
            hint=WHAT_RUNS,
        )
    return form


def _known(shape: str, types: list[str], flags: set[str]) -> Product | None:
    d, a, b, c = types
    if not {a, b} <= set(ELEMENT_BITS) or d != c:
        return None
    bits = ELEMENT_BITS[a]
    integers = a in INTEGERS
    mixed = bits in (4, 8) and (b in INTEGERS) == integers and ELEMENT_BITS[b] == bits
    if (a != b and not mixed) or shape not in _SHAPES[bits]:
        return None
    rows, row_bytes = _SHAPES[bits][shape]
    if d not in sums_of(a) or (rows == 8 and not integers and a != "f64"):
        return None
    combine = flags & {"and", "xor"}
    if a == "b1":
        wrong = len(combine) != 1 or flags - combine != {"popc"}
    else:
        wrong = bool(flags - ({"satfinite"} if integers else set()))
    if wrong:
        return None
    return Product(rows, 8, row_bytes, a, b, c, d, "satfinite" in flags, *combine)


def sums_of(kind: str) -> tuple[str, ...]:
    """The types that sums of products of a type may have."""
    if kind in INTEGERS:
        return ("s32",)
    if kind == "f64":
        return ("f64",)
    return ("f32",) if kind in ("bf16", "tf32") else ("f32", "f16")
