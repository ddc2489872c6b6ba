"""wmma: a warp loads matrices, multiplies them and stores the sums.

Which lane has which element is unspecified, so that a kernel can only do the same to all of them.
Here it is as for mma. Source: PTX ISA, Matrix Storage for WMMA and the instructions after it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from nvfp4.emulator.instructions import access
from nvfp4.emulator.instructions import undefined as undefined_memory
from nvfp4.emulator.instructions.access_shape import Access, space_of
from nvfp4.emulator.instructions.action import Action, Result, Site, Source, instruction
from nvfp4.emulator.instructions.matrix_products import (
    ELEMENT_BITS,
    INTEGERS,
    SUM_DTYPES,
    WHAT_RUNS,
    Product,
    places_in_matrix,
    places_in_tile,
    product_action,
    sums_of,
)
from nvfp4.emulator.instructions.warp import (
    ALL_LANES,
    member_gate,
    present_lanes,
    synchronised,
    whole_warps,
)
from nvfp4.emulator.ptx.syntax import Integer
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.batch import Execution

Arrays = Sequence[Array]

_WIDE = {"m16n16k16": (16, 16, 16), "m8n32k16": (8, 32, 16), "m32n8k16": (32, 8, 16)}
_SHAPES = {
    "f16": _WIDE,
    "bf16": _WIDE,
    "u8": _WIDE,
    "s8": _WIDE,
    "tf32": {"m16n16k8": (16, 16, 8)},
}
"""By the type of a and b: rows, columns and k."""

_REGISTERS_OF_F16 = 8
"""Registers of a and of b for f16, for every shape: they hold each element several times."""


@dataclass(frozen=True)
class _Part:
    """One access of all lanes: `elements` of `size` bytes, the first of them `offset` bytes and
    `step` bytes times the stride from where the matrix starts, [lanes]. They belong to the
    registers from `register` on, from bit `shift`.
    """

    offset: Array
    step: Array
    size: int
    elements: int
    register: int
    shift: int


@instruction("wmma.load")
def load(site: Site) -> Action:
    """wmma.load.{a,b,c}.sync.aligned.layout.shape{.space}.type r, [p]{, stride}."""
    which, kind, parts, stride = _storage(site, ("a", "b", "c"))
    site.takes(2, 3)
    memory, targets = site.memory(1), site.items(0)
    held = 1 + max(part.register + part.elements - 1 for part in parts)
    copies = which != "c" and kind == "f16"
    _require(site, len(targets), _REGISTERS_OF_F16 if copies else held)

    def loaded(ex: Execution, values: Arrays, fetch: Callable[..., Arrays]) -> tuple[Array, ...]:
        whole_warps(site, ex)
        found: list[list[Array]] = [[] for _ in range(held)]
        for part in parts:
            for i, value in enumerate(fetch(ex, _access(site, part), _address(ex, part, values))):
                found[part.register + i].append(value.astype(np.uint32) << np.uint32(part.shift))
        registers = [reduce(np.bitwise_or, each) for each in found]
        return tuple(registers[i % held] for i in range(len(targets)))

    def run(ex: Execution, *values: Array) -> tuple[Array, ...]:
        registers = loaded(ex, values, access.load)
        synchronised(ex.batch, present_lanes(ex))
        return registers

    def shadow(ex: Execution, values: Arrays, shadows: Arrays) -> tuple[Array, ...]:
        return loaded(ex, values, undefined_memory.loaded)

    sources = [Source(memory, "b64"), _stride(site, 2, stride), Source(ALL_LANES, "b32")]
    results = [Result(target, "b32") for target in targets]
    if space_of(site) == "global":
        return Action("load", sources, results, run, member_gate(2))
    return Action("load", sources, results, run, member_gate(2), shadow=shadow, loads=True)


@instruction("wmma.store")
def store(site: Site) -> Action:
    """wmma.store.d.sync.aligned.layout.shape{.space}.type [p], r{, stride}."""
    _, _, parts, stride = _storage(site, ("d",))
    site.takes(2, 3)
    memory, values = site.memory(0), site.items(1)
    _require(site, len(values), 1 + max(part.register + part.elements - 1 for part in parts))

    def data(part: _Part, registers: Arrays) -> list[Array]:
        dtype = np.dtype(f"u{part.size}")
        some = registers[part.register : part.register + part.elements]
        return [(each >> each.dtype.type(part.shift)).astype(dtype) for each in some]

    def run(ex: Execution, *sources: Array) -> None:
        whole_warps(site, ex)
        for part in parts:
            address = _address(ex, part, sources)
            access.store(ex, _access(site, part), address, data(part, sources[3:]))
        synchronised(ex.batch, present_lanes(ex))

    def shadow(ex: Execution, sources: Arrays, shadows: Arrays) -> tuple[Array, ...]:
        guards = [
            undefined_memory.stored(
                ex, _access(site, part), _address(ex, part, sources), data(part, shadows[3:])
            )
            for part in parts
        ]
        return (reduce(np.bitwise_or, guards),)

    sources = [Source(memory, "b64"), _stride(site, 2, stride), Source(ALL_LANES, "b32")]
    sources += [Source(value, "b32") for value in values]
    kept = None if space_of(site) == "global" else shadow
    return Action("store", sources, [], run, member_gate(2), shadow=kept)


@instruction("wmma.mma")
def mma(site: Site) -> Action:
    """wmma.mma.sync.aligned.layouts.shape.dtype{.atype.btype}.ctype d, a, b, c."""
    named = [part for part in site.parts[2:] if part in {*ELEMENT_BITS, *SUM_DTYPES}]
    if len(named) == 2:
        named[1:1] = ["f16", "f16"]
    if len(named) != 4:
        raise _refused(site)
    d, a, b, c = named
    rows, columns, k = _known_shape(site, _SHAPES.get(a, {}))
    if a != b or not {c, d} <= set(sums_of(a)):
        raise _refused(site)
    flags = ["satfinite"] if a in INTEGERS else []
    site.only("mma", "sync", "aligned", "row", "col", *_SHAPES[a], *flags, *named)
    row_bytes = k * ELEMENT_BITS[a] // 8
    clamps = "satfinite" in site.parts
    form = Product(rows, columns, row_bytes, a, b, c, d, clamps)
    registers = (_REGISTERS_OF_F16,) * 2 if a == "f16" else form.factors
    site.takes(4)
    return product_action(site, form, registers, [site.items(index) for index in range(4)])


def _storage(site: Site, known: tuple[str, ...]) -> tuple[str, str, list[_Part], int]:
    """Which matrix, its type, its accesses, and the stride unless the text names one."""
    which, kind = site.parts[2], site.parts[-1]
    if which not in known:
        raise _refused(site)
    sums = which in ("c", "d")
    factors = [each for each in _SHAPES if kind in (sums_of(each) if sums else (each,))]
    shapes = {name: shape for each in factors for name, shape in _SHAPES[each].items()}
    rows, columns, k = _known_shape(site, shapes)
    spaces = ("global", "shared", "shared::cta")
    site.only("load", "store", which, "sync", "aligned", "row", "col", *shapes, *spaces, kind)
    by_row = "row" in site.parts
    if sums:
        parts = _parts_of_sums(rows, columns, kind, by_row)
        return which, kind, parts, columns if by_row else rows
    vectors = rows if which == "a" else columns
    along = by_row == (which == "a")  # whether the elements of a product's sum stand side by side
    return which, kind, _parts_of_factor(vectors, k, kind, along), k if along else vectors


def _parts_of_factor(vectors: int, k: int, kind: str, along: bool) -> list[_Part]:
    size = ELEMENT_BITS[kind] // 8
    vector, start = places_in_matrix(vectors, k * size)
    if along:
        return [_Part(start[i], vector[i] * size, 4, 1, i, 0) for i in range(vector.shape[0])]
    return [
        _Part(vector[i] * size, start[i] + j * size, size, 1, i, 8 * j * size)
        for i in range(vector.shape[0])
        for j in range(4 // size)
    ]


def _parts_of_sums(rows: int, columns: int, kind: str, by_row: bool) -> list[_Part]:
    size = np.dtype(SUM_DTYPES[kind]).itemsize
    row, column = places_in_tile(rows, columns)
    shared = kind == "f16"  # a register holds both of a pair
    parts = []
    for i in range(row.shape[0]):
        first = i if shared else 2 * i
        if by_row:
            size_of_both, elements = (2 * size, 1) if shared else (size, 2)
            step = row[i] * size
            parts.append(_Part(column[i] * size, step, size_of_both, elements, first, 0))
            continue
        for j in range(2):
            register, shift = (first, 16 * j) if shared else (first + j, 0)
            step = (column[i] + j) * size
            parts.append(_Part(row[i] * size, step, size, 1, register, shift))
    return parts


def _access(site: Site, part: _Part) -> Access:
    return Access(site, space_of(site), part.size, part.elements)


def _address(ex: Execution, part: _Part, values: Arrays) -> Array:
    """Where each lane's elements are. values: the address of the matrix, and its stride."""
    group = ex.group
    lane = group.lanes & 31
    stride = group.spread(values[1]).astype(np.uint64)
    further = part.offset[lane].astype(np.uint64) + stride * part.step[lane].astype(np.uint64)
    return group.fold(group.spread(values[0]) + further)


def _stride(site: Site, index: int, default: int) -> Source:
    operand = site.operands[index] if len(site.operands) > index else Integer(default)
    return Source(operand, "b32")


def _known_shape(site: Site, shapes: dict[str, tuple[int, int, int]]) -> tuple[int, int, int]:
    for name, shape in shapes.items():
        if name in site.parts:
            return shape
    raise _refused(site)


def _require(site: Site, given: int, wanted: int) -> None:
    if given != wanted:
        raise site.unsupported(f"{site.opcode}: {given} registers where {wanted} belong")


def _refused(site: Site) -> Exception:
    return site.unsupported(f"{site.opcode} is not emulated", hint=WHAT_RUNS)
