"""wgmma: a warpgroup multiplies matrices, b and mostly a in shared memory, sums in registers.

Each of its four warps has 16 of the 64 rows: fragments of a and of the sums are those of mma.sync
with 16 rows. Descriptors are those of tcgen05 but for the code of the swizzle, and a row of a or b
has 32 bytes here, too. Source: PTX ISA, Asynchronous Warpgroup Level Matrix Instructions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from nvfp4.emulator.arithmetic import fused_dots
from nvfp4.emulator.arithmetic.definedness import spread
from nvfp4.emulator.errors import BarrierMisuse, MissingTensorFence, UninitialisedShared
from nvfp4.emulator.instructions.action import Action, LaneSite, Result, Site, Source, instruction
from nvfp4.emulator.instructions.matrix_products import matrix, tile, tile_registers
from nvfp4.emulator.instructions.tensor.issue import count_product
from nvfp4.emulator.instructions.tensor.matrix_descriptor import from_hopper
from nvfp4.emulator.instructions.tensor.sources import Plan, plan_at, plan_of, read_by
from nvfp4.emulator.instructions.tensor.sources import Source as Operand
from nvfp4.emulator.instructions.warp import ALL_LANES, back, by_warp, member_gate, whole_warps
from nvfp4.emulator.ptx.program import OperandList
from nvfp4.emulator.ptx.syntax import Integer
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.batch import Execution
from nvfp4.emulator.state.launch_state import Origin
from nvfp4.emulator.state.warpgroup_pipe import WarpgroupPipe

_WARPS = 4
_ROWS = 16
"""Of a warp; a warpgroup has 64."""
_DEPTH_BYTES = 32
_TYPES = {
    "f16": ("k16", 2, ("f16", "f32")),
    "bf16": ("k16", 2, ("f32",)),
    "tf32": ("k8", 4, ("f32",)),
    "e4m3": ("k32", 1, ("f16", "f32")),
    "e5m2": ("k32", 1, ("f16", "f32")),
    "s8": ("k32", 1, ("s32",)),
    "u8": ("k32", 1, ("s32",)),
}
"""By the type of a: K, bytes of an element, types of the sums."""
_MIXED = ({"e4m3", "e5m2"}, {"s8", "u8"})
_INTEGERS = ("s8", "u8")
_HINT = "f16, bf16, tf32, e4m3, e5m2, s8 and u8 are"


@dataclass(frozen=True)
class _Form:
    """columns: N. a, b, d: types. negates: the products. transposed: a, b."""

    columns: int
    a: str
    b: str
    d: str
    saturates: bool
    negates: bool
    transposed: tuple[bool, bool]

    @property
    def element_bytes(self) -> int:
        """Of an element of a or b."""
        return _TYPES[self.a][1]

    @property
    def registers(self) -> int:
        """Of the sums in a thread."""
        return self.columns // (4 if self.d == "f16" else 2)


def _form(site: Site, a_inside: bool) -> _Form:
    """Raises UnsupportedInstruction."""
    shape = re.fullmatch(r"m64n(\d+)(k\d+)", next((p for p in site.parts if p[:3] == "m64"), ""))
    types = [p for p in site.parts[2:] if p in _TYPES or p in ("f32", "s32", "b1")]
    if shape is None or len(types) != 3 or not {*types[1:]} <= _TYPES.keys():
        raise site.unsupported(f"{site.opcode} is not emulated", hint=_HINT)
    columns, (d, a, b) = int(shape[1]), types
    depth, _, sums = _TYPES[a]
    integers = a in _INTEGERS
    right = a == b or any({a, b} <= pair for pair in _MIXED)
    step = 16 if integers and columns not in (8, 24) else 8
    if not right or d not in sums or shape[2] != depth or not 8 <= columns <= 256 or columns % step:
        raise site.unsupported(f"{site.opcode}: there is no product of this shape and these types")
    site.only("mma_async", "sync", "aligned", "satfinite", shape[0], *types)
    flags = [_flag(site, operand) for operand in site.operands[4:]]
    narrow = _TYPES[a][1] != 2
    wanted = 0 if integers else 2 + (0 if narrow else 2 - a_inside)
    if len(flags) != wanted or ("satfinite" in site.parts and not integers):
        raise site.unsupported(f"{site.opcode}: these operands are not emulated")
    signs, majors = flags[:2], flags[2:]
    if not set(signs) <= {1, -1} or not set(majors) <= {0, 1}:
        raise site.unsupported(f"{site.opcode} takes 1 or -1 as signs, 0 or 1 to transpose")
    transposed = (
        (bool(majors[0]) and len(majors) == 2, bool(majors[-1])) if majors else (False,) * 2
    )
    return _Form(
        columns, a, b, d, "satfinite" in site.parts, signs in ([1, -1], [-1, 1]), transposed
    )


def _flag(site: Site, operand: Any) -> int:
    if not isinstance(operand, Integer):
        raise site.unsupported(f"{site.opcode} takes integers behind its predicate")
    return operand.value if operand.value < 1 << 31 else operand.value - (1 << 64)


@instruction("wgmma.mma_async")
def multiply(site: Site) -> Action:
    """wgmma.mma_async.sync.aligned.shape{.satfinite}.dtype.atype.btype d, a, b-desc, scale-d{,
    imm-scale-a, imm-scale-b}{, imm-trans-a}{, imm-trans-b}; a: descriptor or four registers."""
    if "sp" in site.parts:
        raise site.unsupported(f"{site.opcode}: sparse matrices are not emulated")
    site.takes(4, 8)
    a_inside = isinstance(site.operands[1], OperandList)
    form = _form(site, a_inside)
    targets, a_registers = site.items(0), site.items(1)
    if len(targets) != form.registers or (a_inside and len(a_registers) != 4):
        raise site.unsupported(f"{site.opcode}: {len(targets)} registers of d are not emulated")
    own = [target.index for target in targets if hasattr(target, "index")]
    count = len(targets)
    undefined: list[Array] = []

    def run(ex: Execution, *values: Array) -> tuple[Array, ...]:
        warps, pipe = whole_warps(site, ex), ex.batch.kept(WarpgroupPipe)
        rows = [by_warp(ex.group, value)[warps] for value in values]
        c = tile(rows[:count], _ROWS, form.columns, form.d)
        keeps = rows[count + len(a_registers) + 1][:, 0]
        sums, bad = np.empty_like(c), np.zeros(c.shape, np.bool_)
        for i, warp in enumerate(warps.tolist()):
            work = _Part(site.lane(ex.batch, 32 * warp), form, pipe, warp)
            if a_inside:
                a = matrix([row[i : i + 1] for row in rows[count : count + 4]], _ROWS)[0]
            else:
                a = int(rows[count][i, 0])
            before = c[i] if keeps[i] else np.zeros_like(c[i])
            sums[i], bad[i] = work.product(a, int(rows[count + len(a_registers)][i, 0]), before)
            _inherit(pipe, own, warp, bool(keeps[i]))
        for register in own:
            pipe.write(register, warps)
        undefined[:] = [bad]
        return _given_back(ex, warps, sums)

    def shadow(
        ex: Execution, values: Sequence[Array], shadows: Sequence[Array]
    ) -> tuple[Array, ...]:
        warps = whole_warps(site, ex)
        rows = [by_warp(ex.group, each)[warps] for each in shadows]
        keeps = by_warp(ex.group, values[count + len(a_registers) + 1])[warps][:, 0]
        bad = undefined[0] | (
            (tile(rows[:count], _ROWS, form.columns, form.d) != 0) & keeps[:, None, None]
        )
        if a_inside:
            of_a = matrix(rows[count : count + 4], _ROWS) != 0
            bad = bad | of_a.any(axis=2)[:, :, None]
        size = 2 if form.d == "f16" else 4
        return _given_back(ex, warps, spread(bad, np.dtype(f"u{size}")))

    sources = [Source(target, "b32") for target in targets]
    sources += [Source(each, "b32" if a_inside else "b64") for each in a_registers]
    sources += [Source(site.operands[2], "b64"), Source(site.operands[3], "pred")]
    sources.append(Source(ALL_LANES, "b32"))
    results = [Result(target, "b32") for target in targets]
    gate = member_gate(len(sources) - 1)
    return Action("tensor", sources, results, run, gate, shadow=shadow, loads=True)


def _given_back(ex: Execution, warps: Array, words: Array) -> tuple[Array, ...]:
    found = tile_registers(words)
    out = np.zeros((len(found), ex.batch.grid.lane.size // 32, 32), np.uint32)
    out[:, warps] = found
    return tuple(back(ex.group, each) for each in out)


def _inherit(pipe: WarpgroupPipe, own: list[int], warp: int, keeps: bool) -> None:
    """Sums that go on from spoiled ones are spoiled."""
    if not keeps or not pipe.spoiled:
        return
    earlier = [pipe.written_by(register) for register in own[:1]]
    if any(each is not None and (warp, int(each[warp])) in pipe.spoiled for each in earlier):
        pipe.spoiled.add((warp, int(pipe.issued[warp])))


class _Part:
    """A warp's part of one instruction."""

    def __init__(self, at: LaneSite, form: _Form, pipe: WarpgroupPipe, warp: int) -> None:
        self.at, self.form, self.pipe = at, form, pipe
        self.row, self.own = divmod(warp, at.batch.grid.warps)
        if at.batch.thread_count < (self.own // _WARPS + 1) * _WARPS * 32:
            at.fault(
                BarrierMisuse,
                f"{at.site.opcode} by a warpgroup of fewer than 4 warps: the block has "
                f"{at.batch.thread_count} threads",
                hint="four warps, the first of which has a multiple of 4, execute it together",
            )
        self.number = pipe.issue(warp, at)
        if at.batch.shared.checked and not pipe.fenced[warp]:
            at.note(
                MissingTensorFence,
                f"{at.site.opcode} with no wgmma.fence before it: the product may read registers "
                "before they are written",
                "put wgmma.fence.sync.aligned before the first product",
            )
        if self.own % _WARPS == 0:
            count_product(at, cycles(form.columns))

    def product(self, a: int | Array, bits: int, c: Array) -> tuple[Array, Array]:
        """(words of the sums, which are undefined) of a, by its descriptor or as bytes [16, 32],
        and b, by its descriptor."""
        form, defined = self.form, np.ones((_ROWS, form_columns := self.form.columns), np.bool_)
        if isinstance(a, int):
            of_a = self._operand(a, "a", 64, form.transposed[0], self.own % _WARPS)
            codes = of_a.fetch()
            if of_a.defined is not None:
                defined &= of_a.defined[:, None]
        else:
            codes = a.view(f"u{form.element_bytes}")
        of_b = self._operand(bits, "b", form_columns, form.transposed[1], None)
        other = of_b.fetch()
        if of_b.defined is not None:
            defined &= of_b.defined[None, :]
        if not defined.all():
            what = "shared memory that a descriptor leads to, which nothing has written"
            self.at.batch.launch.undefined_memory.setdefault(
                self.at.site.instruction.line, Origin(UninitialisedShared, what)
            )
        start = np.ascontiguousarray(c.T).astype(np.uint32)
        return self._sums(codes, other, start).T.astype(c.dtype), ~defined

    def _operand(
        self, bits: int, name: str, rows: int, transposed: bool, part: int | None
    ) -> Operand:
        """A matrix of so many rows; part: the warp whose 16 of them are read, None for all."""
        shape = (rows, _DEPTH_BYTES, transposed, self.form.element_bytes)
        is_tf32 = self.form.a == "tf32"
        plan = plan_at(self.at, from_hopper(bits), name, shape, is_tf32)
        if part is not None:
            shared = self.at.batch.shared
            plan = _part_of(from_hopper(bits), name, shape, is_tf32, shared.base, shared.size, part)
        return read_by(self.at, plan, self.row, self.number, name, self.pipe.reads[self.own])

    def _sums(self, a: Array, b: Array, c: Array) -> Array:
        form = self.form
        if form.a in _INTEGERS:
            dtypes = [np.int8 if each == "s8" else np.uint8 for each in (form.a, form.b)]
            return fused_dots.integer_dots(a.view(dtypes[0]), b.view(dtypes[1]), c, form.saturates)
        narrow = form.element_bytes == 1
        return fused_dots.dots(
            a, b, (form.a, form.b), c, form.d == "f16", negate=form.negates, on_hopper=narrow
        )


@lru_cache(maxsize=2048)
def _part_of(
    bits: int, name: str, shape: tuple[int, int, bool, int], is_tf32: bool, base: int, size: int,
    warp: int,
) -> Plan:  # fmt: skip
    """16 rows of a plan."""
    plan = plan_of(bits, name, shape, is_tf32, base, size)
    step = _ROWS * shape[3] // 16 if plan.transposed else _ROWS
    some = slice(step * warp, step * (warp + 1))
    offsets = plan.offsets[:, some] if plan.transposed else plan.offsets[some]
    return replace(plan, offsets=np.ascontiguousarray(offsets))


def cycles(columns: int) -> int:
    """How long the tensor cores of a multiprocessor are busy with 64 rows and 32 bytes of K at the
    peak rate of an H100's data sheet, 2048 products of f16 a cycle. Few columns take longer."""
    return columns // 2


@instruction("wgmma.fence")
def fence(site: Site) -> Action:
    """wgmma.fence.sync.aligned: registers are as the products behind it are to find them."""
    site.only("fence", "sync", "aligned")
    site.takes(0)

    def run(ex: Execution, mask: Array) -> None:
        ex.batch.kept(WarpgroupPipe).fenced[whole_warps(site, ex)] = True

    return Action("special", [Source(ALL_LANES, "b32")], [], run, member_gate(0))


@instruction("wgmma.commit_group")
def commit_group(site: Site) -> Action:
    """wgmma.commit_group.sync.aligned."""
    site.only("commit_group", "sync", "aligned")
    site.takes(0)

    def run(ex: Execution, mask: Array) -> None:
        pipe = ex.batch.kept(WarpgroupPipe)
        for warp in whole_warps(site, ex).tolist():
            pipe.commit(warp)

    return Action("special", [Source(ALL_LANES, "b32")], [], run, member_gate(0))


@instruction("wgmma.wait_group")
def wait_group(site: Site) -> Action:
    """wgmma.wait_group.sync.aligned N: at most N groups of the warp stay under way."""
    site.only("wait_group", "sync", "aligned")
    site.takes(1)
    keep = site.operands[0]
    if not isinstance(keep, Integer):
        raise site.unsupported(f"{site.opcode} takes an integer")
    number = keep.value

    def run(ex: Execution, mask: Array) -> None:
        pipe = ex.batch.kept(WarpgroupPipe)
        for warp in whole_warps(site, ex).tolist():
            pipe.wait(warp, number)

    return Action("special", [Source(ALL_LANES, "b32")], [], run, member_gate(0))
