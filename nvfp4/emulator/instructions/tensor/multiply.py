"""tcgen05.mma: d = a * b + d, with d in tensor memory, b and mostly a in shared memory.

Row m of d is lane m; with M = 64 the rows are lanes 0-15 of each 32, and weight stationary (.ws)
halves or quarters of N lie in further lanes. Columns are columns. Scales of row m stand in lane m %
32 of column m / 32, in each group of 32 lanes. Source: PTX ISA, Data Path Layout Organization, and
Block Scaling.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nvfp4.emulator.arithmetic import fused_dots
from nvfp4.emulator.errors import TensorDescriptorFault, TensorMemoryFault, UnsupportedInstruction
from nvfp4.emulator.instructions.action import Action, LaneSite, Site, instruction
from nvfp4.emulator.instructions.action import Source as Operand
from nvfp4.emulator.instructions.tensor import instruction_descriptor
from nvfp4.emulator.instructions.tensor.instruction_descriptor import (
    BLOCK_SCALED,
    DEPTH_BYTES,
    KINDS,
    Contradiction,
    NotEmulated,
)
from nvfp4.emulator.instructions.tensor.issue import (
    ALL_LANES_OF_MEMORY,
    issuing_lanes,
    memory_of,
    note_conflict,
    pipes_of,
    require_columns,
    require_one_cta,
)
from nvfp4.emulator.instructions.tensor.sources import Source, source_of
from nvfp4.emulator.ptx.program import Memory, OperandList
from nvfp4.emulator.ptx.syntax import Integer
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.batch import Execution
from nvfp4.emulator.state.tensor_memory import LANES, split_address

_COLUMNS_OF_A = DEPTH_BYTES // 4
_SCALE_ADDRESS = 0x3FFFFFFF
"""CUTLASS keeps the scale id in the two upper bits of such an address."""
_SCALE_VECTORS = {"scale_vec::1X": 1, "scale_vec::2X": 2, "scale_vec::4X": 4}
_COLLECTORS = tuple(
    f"collector::{buffer}::{use}"
    for buffer in ("a", "b0", "b1", "b2", "b3")
    for use in ("fill", "use", "lastuse", "discard")
)
_SCALE_COLUMNS = 2
"""Scales of b begin at a multiple: where else they may is not documented."""


@dataclass(frozen=True)
class _Form:
    """What the opcode and the operands say. scale_vector: scales of a row, None without. a_inside:
    whether a is in tensor memory. mask, accumulate: which operands they are, -1 where there is no
    mask. d_shift: d is divided by 2 to this power first."""

    kind: str
    ws: bool
    scale_vector: int | None
    a_inside: bool
    mask: int
    accumulate: int
    d_shift: int = 0


@instruction("tcgen05.mma")
def multiply(site: Site) -> Action:
    """tcgen05.mma{.ws}.cta_group.kind{.block_scale{.scale}}{.collector} [d], a, b, idesc{, [scales
    of a], [scales of b]}{, {disabled lanes}}, enable-input-d{, scale-input-d}."""
    require_one_cta(site)
    form = _form(site)
    scaled = form.scale_vector is not None

    def run(ex: Execution, *operands: Array) -> None:
        for at, values in issuing_lanes(site, ex, operands):
            d, a, b, bits, *rest = values
            accumulate, rest = bool(rest[0]), rest[1:]
            scales = (rest[0], rest[1]) if scaled else None
            _Product(at, form, bits, d, a, b, accumulate, scales, [] if scaled else rest).issue()

    sources = [
        Operand(site.memory(0), "b64"),
        Operand(site.memory(1) if form.a_inside else site.operands[1], "b64"),
        Operand(site.operands[2], "b64"),
        Operand(site.operands[3], "b32"),
        Operand(site.operands[form.accumulate], "pred"),
    ]
    if scaled:
        sources += [Operand(site.memory(4), "b64"), Operand(site.memory(5), "b64")]
    elif form.mask >= 0:
        sources += [Operand(each, "b32") for each in site.items(form.mask)]
    return Action("tensor", sources, [], run)


def _form(site: Site) -> _Form:
    """Raises UnsupportedInstruction."""
    parts = site.parts
    for refused, what in (("sp", "sparse matrices"), ("ashift", "a shifted a")):
        if refused in parts:
            raise site.unsupported(f"{site.opcode}: {what} are not emulated")
    kinds = [part[6:] for part in parts if part.startswith("kind::")]
    scaled = "block_scale" in parts
    if len(kinds) != 1 or kinds[0] not in KINDS or scaled != (kinds[0] in BLOCK_SCALED):
        raise site.unsupported(f"{site.opcode}: this kind of product is not emulated")
    kind, ws = kinds[0], "ws" in parts
    site.only(
        "mma", "ws", "cta_group::1", f"kind::{kind}", "block_scale", "block16", "block32",
        *_SCALE_VECTORS, *_COLLECTORS,
    )  # fmt: skip
    site.takes(5, 7)
    a_inside = isinstance(site.operands[1], Memory)
    if scaled:
        site.takes(7)
        return _Form(kind, ws, _scale_vector(site, kind), a_inside, -1, 6)
    masked = isinstance(site.operands[4], OperandList)
    accumulate = 4 + masked
    left = len(site.operands) - accumulate - 1
    if left > 1 or left < 0:
        raise site.unsupported(f"{site.opcode}: these operands are not emulated")
    if left and ws:
        raise site.unsupported(f"{site.opcode}: a mask of zero columns is not emulated")
    if masked and len(site.items(4)) != 4:
        raise site.unsupported(f"{site.opcode} takes four words of disabled lanes")
    d_shift = 0
    if left:
        operand = site.operands[-1]
        if not isinstance(operand, Integer) or kind not in ("f16", "tf32"):
            raise site.unsupported(f"{site.opcode}: this scale of d is not emulated")
        d_shift = operand.value
    return _Form(kind, ws, None, a_inside, 4 if masked else -1, accumulate, d_shift)


def _scale_vector(site: Site, kind: str) -> int:
    """Scales of a row of 32 bytes. Raises UnsupportedInstruction."""
    given = next((n for part, n in _SCALE_VECTORS.items() if part in site.parts), None)
    if given is None and "block16" in site.parts:
        given = 4
    default = {"mxf8f6f4": 1, "mxf4": 2, "mxf4nvf4": 0}[kind]
    if given is None and ("block32" in site.parts or default):
        given = default or 2
    if given is None or given not in {"mxf8f6f4": (1,), "mxf4": (2,), "mxf4nvf4": (2, 4)}[kind]:
        raise site.unsupported(f"{site.opcode}: kind::{kind} does not have these blocks of scales")
    return given


class _Product:
    """One instruction of one CTA."""

    def __init__(
        self, at: LaneSite, form: _Form, bits: int, d: int, a: int, b: int, accumulate: bool,
        scales: tuple[int, int] | None, disabled: list[int],
    ) -> None:  # fmt: skip
        self.at, self.form, self.accumulate = at, form, accumulate
        self.memory = memory_of(at)
        self.pipes = pipes_of(at)
        self.a, self.b, self.scales, self.disabled = a, b, scales, disabled
        try:
            self.shape = instruction_descriptor.decode(bits, form.kind, form.scale_vector, form.ws)
        except Contradiction as error:
            at.fault(TensorDescriptorFault, f"the instruction descriptor {bits:#010x}: {error}")
        except NotEmulated as error:
            at.fault(UnsupportedInstruction, f"{at.site.opcode} with {error} is not emulated")
        self.d = d
        self.lane, self.column = split_address(d)
        self.a_lane, self.a_column = split_address(a) if form.a_inside else (0, 0)

    def issue(self) -> None:
        """Check the operation and perform it, now or late."""
        at, shape = self.at, self.shape
        self._require_reach()
        number = self.pipes.issue(at.lane, at)
        is_tf32 = shape.kind == "tf32"
        a = None
        if not self.form.a_inside:
            a = source_of(
                at, number, self.a, "a", shape.rows, DEPTH_BYTES, shape.transpose_a,
                shape.element_bytes, is_tf32,
            )  # fmt: skip
        b = source_of(
            at, number, self.b, "b", shape.columns, DEPTH_BYTES, shape.transpose_b,
            shape.element_bytes, is_tf32,
        )  # fmt: skip
        if at.batch.shared.checked:
            self._note(number)
        traffic = at.batch.traffic
        traffic.tensor_instructions += 1
        traffic.tensor_cycles += cycles(shape.columns)
        if at.batch.launch.tally is not None:
            at.batch.launch.tally.multiplied(at.site.instruction, cycles(shape.columns))
        self.pipes.submit(at.lane, lambda: self._perform(a, b))

    # --- where it is ------------------------------------------------------------------------

    def _spans(self) -> list[tuple[slice, Array | slice, slice]]:
        """Parts of d: (columns of tensor memory, lanes, columns of d)."""
        rows, columns = self.shape.rows, self.shape.columns
        if self.form.ws and rows < LANES:
            parts = LANES // rows
            width = columns // parts
            place = slice(self.column, self.column + width)
            return [
                (place, slice(i * rows, (i + 1) * rows), slice(i * width, (i + 1) * width))
                for i in range(parts)
            ]
        whole = slice(self.column, self.column + columns)
        return [(whole, self._lanes(self.lane), slice(0, columns))]

    def _lanes(self, lane: int) -> Array | slice:
        """The lanes of all rows, from an address's lane on."""
        if self.shape.rows == LANES:
            return ALL_LANES_OF_MEMORY
        found: Array = (np.arange(64) // 16 * 32 + np.arange(64) % 16) + lane
        return found

    def _require_reach(self) -> None:
        at, shape, form = self.at, self.shape, self.form
        halves = shape.rows == 64 and not form.ws
        for name, lane in (("d", self.lane), ("a", self.a_lane)):
            if lane not in ((0, 16) if halves else (0,)):
                known = "0 or 16" if halves else "0"
                at.fault(
                    TensorMemoryFault,
                    f"{name} of {at.site.opcode} begins at lane {lane} of tensor memory, and M = "
                    f"{shape.rows} takes {known}",
                )
        if halves and form.a_inside and self.lane != self.a_lane:
            at.fault(
                TensorMemoryFault, "a and d of M = 64 begin at different lanes of tensor memory"
            )
        if form.a_inside and form.ws and shape.rows < LANES:
            raise at.site.unsupported(
                f"{at.site.opcode}: a in tensor memory with M = {shape.rows} is not emulated"
            )
        if form.a_inside and shape.transpose_a:
            at.fault(TensorDescriptorFault, "a in tensor memory is said to be transposed")
        for columns, _, _ in self._spans():
            require_columns(at, "d", columns.start, columns.stop - columns.start)
        if form.a_inside:
            require_columns(at, "a", self.a_column, _COLUMNS_OF_A)
        if self.scales is not None:
            for name, address, rows in self._scale_operands():
                lane, column = split_address(address)
                if lane:
                    at.fault(
                        TensorMemoryFault, f"the scales of {name} begin at lane {lane}, which is 0"
                    )
                if name == "b" and column % _SCALE_COLUMNS:
                    raise at.site.unsupported(
                        f"{at.site.opcode}: scales of b at an odd column are not emulated"
                    )
                require_columns(at, f"scales of {name}", column, -(-rows // 32))

    def _scale_operands(self) -> list[tuple[str, int, int]]:
        """(name, address, rows) of both."""
        assert self.scales is not None
        a, b = (each & _SCALE_ADDRESS for each in self.scales)
        return [("a", a, self.shape.rows), ("b", b, self.shape.columns)]

    def _note(self, number: int) -> None:
        """Tell the race check what the operation touches in tensor memory."""
        at, pipes = self.at, self.pipes
        for columns, lanes, _ in self._spans():
            found = pipes.note_pipe(at.lane, number, columns, lanes, writes=True)
            note_conflict(at, "d", self.d, found)
        if self.form.a_inside:
            columns = slice(self.a_column, self.a_column + _COLUMNS_OF_A)
            lanes = self._lanes(self.a_lane)
            found = pipes.note_pipe(at.lane, number, columns, lanes, writes=False)
            note_conflict(at, "read of a", self.a, found)
        if self.scales is not None:
            for name, address, rows in self._scale_operands():
                column = split_address(address)[1]
                columns = slice(column, column + -(-rows // 32))
                lanes = slice(0, min(rows, 32))
                found = pipes.note_pipe(at.lane, number, columns, lanes, writes=False)
                note_conflict(at, f"read of the scales of {name}", address, found)

    # --- what it does -----------------------------------------------------------------------

    def _perform(self, a: Source | None, b: Source) -> None:
        shape, memory = self.shape, self.memory
        one, a_defined = self._a(a)
        other = _codes(b.fetch(shape.element_bytes), shape.b, shape.kind)
        scales = None if self.scales is None else self._scales()
        for columns, lanes, part in self._spans():
            before = memory.words[columns, lanes]
            defined = b.defined[part, None] & a_defined[None, :]
            if self.accumulate:
                defined = defined & memory.defined[columns, lanes]
                c = np.ascontiguousarray(before)
            else:
                c = np.zeros(before.shape, np.uint32)
            if scales is not None:
                defined = defined & scales[0][1][None, :] & scales[1][1][part, None]
            own = None if scales is None else (scales[0][0], scales[1][0][part])
            d = self._sums(one, other[part], c, own)
            if self.disabled:
                kept = _bits(self.disabled)[lanes]
                d = np.where(kept, before, d)
                defined = np.where(kept, memory.defined[columns, lanes], defined)
            memory.words[columns, lanes] = d
            memory.defined[columns, lanes] = defined
            if not defined.all():
                line = self.at.site.instruction.line
                memory.undefined_by.update(dict.fromkeys(range(columns.start, columns.stop), line))

    def _a(self, source: Source | None) -> tuple[Array, Array]:
        """(codes [m, k], which rows are defined)."""
        shape = self.shape
        if source is not None:
            return _codes(source.fetch(shape.element_bytes), shape.a, shape.kind), source.defined
        columns = slice(self.a_column, self.a_column + _COLUMNS_OF_A)
        lanes = self._lanes(self.a_lane)
        words = np.ascontiguousarray(self.memory.words[columns, lanes].T)
        codes = words.view(f"u{shape.element_bytes}")
        defined = np.asarray(self.memory.defined[columns, lanes].all(axis=0))
        return _codes(codes, shape.a, shape.kind, inside=True), defined

    def _scales(self) -> list[tuple[Array, Array]]:
        """Of a and of b: (uint8[rows, scales of a row], which rows are defined)."""
        shape, count = self.shape, self.form.scale_vector
        assert count is not None
        found = []
        firsts = (shape.a_scale_byte, shape.b_scale_byte)
        for (name, address, rows), first in zip(self._scale_operands(), firsts, strict=True):
            column = split_address(address)[1]
            width = -(-rows // 32)
            words = self.memory.words[column : column + width].reshape(width, 4, 32)
            used = np.arange(width * 32).reshape(width, 32) < rows
            raw = np.ascontiguousarray(words.transpose(1, 0, 2)).view(np.uint8)
            chosen = raw.reshape(4, width * 32, 4)[:, :, first : first + count]
            flags = self.memory.defined[column : column + width].reshape(width, 4, 32)
            defined = flags[:, 0].reshape(-1) & used.reshape(-1)
            self._require_copies(name, chosen[:, :rows], flags.all(axis=1).reshape(-1)[:rows])
            found.append((chosen[0, :rows], defined[:rows]))
        return found

    def _require_copies(self, name: str, chosen: Array, defined: Array) -> None:
        """Fault unless all four groups of lanes hold the same scales."""
        same = (chosen == chosen[0]).all(axis=(0, 2))
        lanes_disagree = ~same
        if lanes_disagree.any():
            row = int(np.flatnonzero(lanes_disagree)[0])
            self.at.fault(
                TensorMemoryFault,
                f"the scales of row {row} of {name} differ between the four groups of 32 lanes of "
                "tensor memory",
                hint="tcgen05.cp.32x128b.warpx4 copies them to all four",
            )

    def _sums(self, a: Array, b: Array, c: Array, scales: tuple[Array, Array] | None) -> Array:
        shape = self.shape
        negate = shape.negate_a != shape.negate_b
        if shape.kind == "i8":
            return fused_dots.integer_dots(a, b, c, shape.saturates)
        if scales is None:
            types = shape.a, shape.b
            half, by = shape.d == "f16", self.form.d_shift
            return fused_dots.dots(a, b, types, c, half, negate=negate, c_shift=by)
        if shape.kind == "mxf8f6f4":
            rows = (scales[0][:, 0], scales[1][:, 0])
            return fused_dots.dots(a, b, (shape.a, shape.b), c, False, rows, negate)
        assert shape.scale_type is not None
        repeats = 4 // scales[0].shape[1]
        blocks = [np.repeat(each, repeats, axis=1) for each in scales]
        return fused_dots.block_dots(a, b, blocks[0], blocks[1], shape.scale_type, c, negate)


def cycles(columns: int) -> int:
    """How long the tensor core is busy with one instruction of M = 128 (64 takes as long) and 32
    bytes of K. Measured on a B200 by SemiAnalysis (microbench-blackwell, kind::mxf4nvf4): 48 at N =
    64; from N = 128 on the peak rate, a column of sums in half a cycle."""
    return max(columns // 2, 32 + columns // 4)


def _bits(words: list[int]) -> Array:
    """bool[lanes] of four words."""
    packed = np.array(words, np.uint32).view(np.uint8)
    found: Array = np.unpackbits(packed, bitorder="little").astype(np.bool_)
    return found


_NARROW = {"e2m1": (4, 2), "e2m3": (6, 0), "e3m2": (6, 0)}
"""Bits of an element in a byte of its own in tensor memory, and the lowest one's place."""


def _codes(raw: Array, name: str, kind: str, inside: bool = False) -> Array:
    """The elements of rows as they lie in shared memory, or inside tensor memory."""
    if name == "s8":
        return raw.view(np.int8)
    if kind in ("mxf4", "mxf4nvf4"):
        pairs = np.stack((raw & 15, raw >> 4), axis=-1)
        return pairs.reshape(raw.shape[0], -1)
    if name not in _NARROW:
        return raw
    bits, lowest = _NARROW[name]
    if inside:
        return raw >> np.uint8(lowest) & np.uint8((1 << bits) - 1)
    # 16 elements side by side in 16 bytes, and padding behind them.
    chunks = raw.reshape(raw.shape[0], -1, 16)[:, :, : 2 * bits]
    flat = np.unpackbits(np.ascontiguousarray(chunks), axis=-1, bitorder="little")
    groups = flat.reshape(raw.shape[0], -1, bits)
    packed: Array = np.packbits(groups, axis=-1, bitorder="little")
    return packed.reshape(raw.shape[0], -1)
