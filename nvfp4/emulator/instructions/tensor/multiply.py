"""tcgen05.mma: d = a * b + d, with d in tensor memory, b and mostly a in shared memory.

Row m of d is lane m; with M = 64 the rows are lanes 0-15 of each 32. Columns are columns. Scales of
row m stand in lane m % 32 of column m / 32, in each group of 32 lanes. Source: PTX ISA, Data Path
Layout Organization, and Block Scaling.

Of a pair, the CTA with the even rank has the first half of the rows of a, its scales and d, and of
the columns of b, the other one the second; both have all scales of b. With M = 128, the second half
of d's columns lies in lanes 64-127.
"""

from collections.abc import Iterator
from functools import lru_cache, partial

import numpy as np

from nvfp4.emulator import errors
from nvfp4.emulator.arithmetic import fused_dots
from nvfp4.emulator.instructions.action import Action, Site, instruction
from nvfp4.emulator.instructions.action import Source as Operand
from nvfp4.emulator.instructions.tensor import instruction_descriptor as descriptors
from nvfp4.emulator.instructions.tensor import issue
from nvfp4.emulator.instructions.tensor.matrix_descriptor import CHUNK
from nvfp4.emulator.instructions.tensor.sources import Source, source_of
from nvfp4.emulator.loops import loop
from nvfp4.emulator.ptx.syntax import Memory, OperandList
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.batch import Execution, Origin
from nvfp4.emulator.state.tensor_memory import LANES, CtaTensorMemory, TensorMemory, split_address
from nvfp4.emulator.state.tensor_pipe import TensorPipe
from nvfp4.records.base import Record

_COLUMNS_OF_A = descriptors.DEPTH_BYTES // 4
_SCALE_ADDRESS = 0x3FFFFFFF
"""CUTLASS keeps the scale id in the two upper bits of such an address."""
_SCALE_VECTORS = {"scale_vec::1X": 1, "scale_vec::2X": 2, "scale_vec::4X": 4}
_COLLECTORS = {f"collector::a::{how}": how for how in ("fill", "use", "lastuse", "discard")}
_REFUSED = {"sp": "sparse matrices", "ashift": "a shifted a", "ws": "stationary weights"}
_SCALE_COLUMNS = 2
"""Scales of b begin at a multiple of this column. No other places are documented."""


class _Form(Record):
    """The form of an instruction, from its opcode and operands."""

    group: int
    """Number of CTAs that execute it together."""
    kind: str
    scale_vector: int | None
    """Scales of a row; None without block scales."""
    a_inside: bool
    """Whether a is in tensor memory."""
    mask: int
    """Index of the operand with disabled lanes; -1 without one."""
    accumulate: int
    """Index of the operand enable-input-d."""
    collector: str
    """How the collector buffer, which can keep a, is used: fill, use, lastuse or discard."""


@instruction("tcgen05.mma")
def multiply(site: Site) -> Action:
    """tcgen05.mma.cta_group.kind{.block_scale{.scale}}{.collector} [d], a, b, idesc{, [scales
    of a], [scales of b]}{, {disabled lanes}}, enable-input-d."""
    form = _form(site)
    scaled = form.scale_vector is not None

    def run(ex: Execution, *operands: Array) -> None:
        for team, values in issue.issuing_teams(site, ex, operands, form.group):
            d, a, b, bits, accumulate, *rest = values
            scales = (rest[0], rest[1]) if scaled else None
            if not scaled and any(rest):
                what = f"{site.opcode} with disabled lanes is not emulated"
                team.at(0).fault(errors.UnsupportedInstruction, what)
            _Product(team, form, bits, d, a, b, bool(accumulate), scales).issue()

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
    """Return the form of a product that an instruction names. Raises UnsupportedInstruction."""
    parts = site.parts
    for refused, what in _REFUSED.items():
        if refused in parts:
            raise site.unsupported(f"{site.opcode}: {what} are not emulated")
    kinds = [part[6:] for part in parts if part.startswith("kind::")]
    scaled = "block_scale" in parts
    kind = kinds[0] if len(kinds) == 1 else ""
    if kind not in descriptors.KINDS or scaled != (kind in descriptors.BLOCK_SCALED):
        raise site.unsupported(f"{site.opcode}: this kind of product is not emulated")
    group = issue.group_of(site)
    site.only(
        "mma", *issue.GROUPS, f"kind::{kind}", "block_scale", "block16", "block32",
        *_SCALE_VECTORS, *_COLLECTORS,
    )  # fmt: skip
    collector = next((how for part, how in _COLLECTORS.items() if part in parts), "discard")
    site.takes(5, 7)
    a_inside = isinstance(site.operands[1], Memory)
    if scaled:
        site.takes(7)
        return _Form(group, kind, _scale_vector(site, kind), a_inside, -1, 6, collector)
    masked = isinstance(site.operands[4], OperandList)
    accumulate = 4 + masked
    if len(site.operands) != accumulate + 1:
        raise site.unsupported(f"{site.opcode}: these operands are not emulated")
    if masked and len(site.items(4)) != 4 * group:
        raise site.unsupported(f"{site.opcode} takes {4 * group} words of disabled lanes")
    return _Form(group, kind, None, a_inside, 4 if masked else -1, accumulate, collector)


def _scale_vector(site: Site, kind: str) -> int:
    """Return the number of scales for a row of 32 bytes. Raises UnsupportedInstruction."""
    given = next((n for part, n in _SCALE_VECTORS.items() if part in site.parts), None)
    if given is None and "block16" in site.parts:
        given = 4
    default = {"mxf8f6f4": 1, "mxf4": 2, "mxf4nvf4": 0}[kind]
    if given is None and ("block32" in site.parts or default):
        given = default or 2
    if given is None or given not in {"mxf8f6f4": (1,), "mxf4": (2,), "mxf4nvf4": (2, 4)}[kind]:
        raise site.unsupported(f"{site.opcode}: kind::{kind} does not have these blocks of scales")
    return given


class _Plan(Record):
    """The effect of an instruction with certain operands in each CTA that executes it."""

    shape: descriptors.InstructionDescriptor
    rows: int = 0
    """Rows of d that a CTA has."""
    columns_of_b: int = 0
    """Columns of b that a CTA has."""
    spans: tuple[tuple[slice, Array, slice], ...] = ()
    """Parts of d: (columns of tensor memory, lanes, columns of d)."""
    a_lanes: Array | None = None
    """Lanes of tensor memory that hold the rows of a."""
    columns: tuple[tuple[str, int, int], ...] = ()
    """All columns of tensor memory that are accessed: (what, first, count)."""
    problem: tuple[type[errors.EmulatorError] | None, str] | None = None
    """(kind of error, message) of an invalid instruction. The kind is None if it is only not
    emulated."""


@lru_cache(maxsize=2048)
def _plan(form: _Form, bits: int, d: int, a: int, scales: tuple[int, int] | None) -> _Plan:
    """Return the plan for these operands, without matrices in shared memory. Raises Contradiction
    and NotEmulated."""
    shape = descriptors.decode(bits, form.kind, form.scale_vector, form.group)
    own_rows, pair = shape.rows // form.group, form.group > 1
    lane, column = split_address(d)
    a_lane, a_column = split_address(a) if form.a_inside else (0, 0)
    halves = shape.rows == 64
    if pair and own_rows < LANES and (form.a_inside or scales is not None):
        what = "a in tensor memory" if form.a_inside else "block scales"
        return _Plan(shape, problem=(None, f"{what} with M = {shape.rows} of a pair"))
    for name, first in (("d", lane), ("a", a_lane)):
        if first not in ((0, 16) if halves else (0,)):
            known = "0 or 16" if halves else "0"
            what = f"{name} begins at lane {first} of tensor memory, not at {known}"
            return _Plan(shape, problem=(errors.TensorMemoryFault, what))
    if halves and form.a_inside and lane != a_lane:
        what = "a and d of M = 64 begin at different lanes of tensor memory"
        return _Plan(shape, problem=(errors.TensorMemoryFault, what))
    if form.a_inside and shape.transpose_a:
        what = "a in tensor memory is transposed"
        return _Plan(shape, problem=(errors.TensorDescriptorFault, what))
    parts = LANES // own_rows if pair else 1
    spans = tuple(_spans(own_rows, shape.columns, parts, lane, column))
    columns = [("d", place.start, place.stop - place.start) for place, _, _ in spans]
    if form.a_inside:
        columns.append(("a", a_column, _COLUMNS_OF_A))
    if scales is not None:
        for name, address, rows in (("a", scales[0], own_rows), ("b", scales[1], shape.columns)):
            scale_lane, first = split_address(address & _SCALE_ADDRESS)
            if scale_lane:
                what = f"the scales of {name} begin at lane {scale_lane} of tensor memory, not at 0"
                return _Plan(shape, problem=(errors.TensorMemoryFault, what))
            if name == "b" and first % _SCALE_COLUMNS:
                return _Plan(shape, problem=(None, "scales of b at an odd column"))
            columns.append((f"the scales of {name}", first, -(-rows // 32)))
    return _Plan(
        shape, own_rows, shape.columns // form.group, spans, _row_lanes(own_rows, a_lane),
        tuple(columns),
    )  # fmt: skip


def _spans(
    rows: int, columns: int, parts: int, lane: int, column: int
) -> Iterator[tuple[slice, Array, slice]]:
    width = columns // parts
    place = slice(column, column + width)
    for i in range(parts):
        lanes = np.arange(i * rows, (i + 1) * rows) if parts > 1 else _row_lanes(rows, lane)
        yield place, lanes, slice(i * width, (i + 1) * width)


def _row_lanes(rows: int, lane: int) -> Array:
    """Return the lanes of all rows, from a lane on."""
    order = np.arange(rows)
    return order // 16 * 32 + order % 16 + lane if rows == 64 else order


class _Product:
    """A product that some CTAs, or pairs, execute together."""

    def __init__(
        self, team: issue.Team, form: _Form, bits: int, d: int, a: int, b: int, accumulate: bool,
        scales: tuple[int, int] | None,
    ) -> None:  # fmt: skip
        self.team, self.form, self.accumulate = team, form, accumulate
        self.rows = issue.use(team, form.group)
        self.pipes, self.memory = team.batch.kept(TensorPipe), team.batch.kept(TensorMemory)
        self.d, self.a, self.b, self.scales = d, a, b, scales
        at = team.at(0)
        try:
            self.plan = _plan(form, bits, d, a if form.a_inside else 0, scales)
        except descriptors.Contradiction as error:
            what = f"the instruction descriptor {bits:#010x}: {error}"
            at.fault(errors.TensorDescriptorFault, what)
        except descriptors.NotEmulated as error:
            what = f"{at.site.opcode} with {error} is not emulated"
            at.fault(errors.UnsupportedInstruction, what)
        self.shape = self.plan.shape
        if self.plan.problem is not None:
            kind, what = self.plan.problem
            if kind is None:
                raise at.site.unsupported(f"{at.site.opcode}: {what} is not emulated")
            at.fault(kind, f"{at.site.opcode} ({self.shape}): {what}")

    def issue(self) -> None:
        """Check the operations and perform them, now or late."""
        team, shape = self.team, self.shape
        for what, first, count in self.plan.columns:
            issue.require_columns_of(team, self.rows, what, first, count)
        self._collect()
        numbers = self.pipes.issue(team.site, team.lanes, (shape.rows, shape.columns, shape.depth))
        is_tf32, size = shape.kind == "tf32", shape.element_bytes
        of_a = (self.plan.rows, descriptors.DEPTH_BYTES, shape.transpose_a, size)
        of_b = (self.plan.columns_of_b, descriptors.DEPTH_BYTES, shape.transpose_b, size)
        a: list[Source | None] = [None] * self.form.group
        from_a = partial(source_of, data_bytes=_data_bytes(shape.a, shape.kind))
        from_b = partial(source_of, data_bytes=_data_bytes(shape.b, shape.kind))
        if not self.form.a_inside:
            a = [from_a(team, own, numbers, self.a, "a", of_a, is_tf32) for own in self.rows.T]
        b = [from_b(team, own, numbers, self.b, "b", of_b, is_tf32) for own in self.rows.T]
        if team.batch.shared.checked:
            self._note(numbers)
        # Both multiprocessors of a pair are busy.
        issue.count_products(team, cycles(shape.columns) * self.form.group)
        self.pipes.submit(team.lanes, partial(self._perform, a, b))

    def _collect(self) -> None:
        """Follow which a the collector buffers hold. Faults if another one is to be used."""
        held, a = self.pipes.collected, self.a + 1 & (1 << 63) - 1
        if "use" in self.form.collector and (held[self.rows] != a).any():
            self.team.at(0).fault(
                errors.TensorDescriptorFault,
                f"{self.team.site.opcode}: the collector buffer does not hold this a",
                hint="the product before it with collector::a::fill or ::use has the same a",
            )
        held[self.rows] = a if self.form.collector in ("fill", "use") else 0

    def _note(self, numbers: Array) -> None:
        """Tell the race check what the operations access in the tensor memory of their CTAs."""
        team, plan = self.team, self.plan
        for columns, lanes, _ in plan.spans:
            issue.note_pipe(team, self.rows, numbers, columns, lanes, True, "d", self.d)
        for what, first, count in plan.columns[len(plan.spans) :]:
            of_a = plan.a_lanes if what == "a" else None
            reached = _SCALE_LANES if of_a is None else of_a
            columns, name = slice(first, first + count), f"read of {what}"
            issue.note_pipe(team, self.rows, numbers, columns, reached, False, name, first)

    # --- execution --------------------------------------------------------------------------

    def _perform(self, a: list[Source | None], b: list[Source], which: Array) -> None:
        """Multiply in the CTAs, or pairs of CTAs, selected by `which`."""
        shape = self.shape
        parts = [_codes(each.fetch(which), shape.b, shape.kind) for each in b]
        other = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
        defined: Array | None = None
        if any(each.defined is not None for each in b):
            every = np.ones((which.size, self.plan.columns_of_b), np.bool_)
            flags = [every if each.defined is None else each.defined[which] for each in b]
            defined = np.concatenate(flags, axis=1)
        for number, of_a in enumerate(a):
            self._perform_in(self.rows[which, number], of_a, other, defined, which)

    def _perform_in(
        self, rows: Array, a: Source | None, other: Array, b_defined: Array | None, which: Array
    ) -> None:
        """Compute d in the CTAs of these rows. other: b."""
        shape = self.shape
        one = self._a_inside(rows) if a is None else _codes(a.fetch(which), shape.a, shape.kind)
        scales = None if self.scales is None else self._scales(rows)
        if self.team.batch.shared.checked:
            of_rows = None if a is None or a.defined is None else a.defined[which]
            self._define(rows, of_rows, b_defined)
        for columns, lanes, part in self.plan.spans:
            if scales is not None and shape.kind != "mxf8f6f4":
                operands, factors = (one, other[:, part]), (scales[0], scales[1][:, part])
                add = partial(self._add, rows, columns, operands, factors)
                self.memory.change_later(rows, columns, add)
                continue
            words = self.memory.words(columns)
            for i, row in enumerate(rows.tolist()):
                before = words[row][columns, lanes]
                c = before if self.accumulate else np.zeros(before.shape, np.uint32)
                by_row = None if scales is None else (scales[0][i, :, 0], scales[1][i, part, 0])
                words[row][columns, lanes] = self._sums(one[i], other[i, part], c, by_row)

    def _add(
        self, rows: Array, columns: slice, operands: tuple[Array, Array],
        scales: tuple[Array, Array], words: Array, which: slice,
    ) -> None:  # fmt: skip
        """Add products of FP4 to these columns in some of the CTAs."""
        a, b, of_a, of_b = (np.ascontiguousarray(each[which]) for each in (*operands, *scales))
        assert self.shape.scale_type is not None
        fused_dots.add_block_products(
            words, rows[which], columns.start, self.accumulate, (a, b), (of_a, of_b),
            self.shape.scale_type, self.shape.negate_a != self.shape.negate_b
        )  # fmt: skip

    def _define(self, rows: Array, of_rows: Array | None, of_columns: Array | None) -> None:
        """Note which words of d are defined: those whose operands all are. of_rows, of_columns:
        which rows of a and b in shared memory are."""
        flags, plan = self.memory.defined, self.plan
        simple = np.full(rows.size, of_rows is None and of_columns is None)
        read = [
            (first, first + count, plan.a_lanes if what == "a" else _ALL_LANES)
            for what, first, count in plan.columns[len(plan.spans) :]
        ]
        if self.accumulate:
            read += [(columns.start, columns.stop, lanes) for columns, lanes, _ in plan.spans]
        by_eights, whole = flags.view(np.uint64), self.memory.whole
        for first, last, lanes in read:
            assert lanes is not None
            eights = lanes[::8] // 8  # lanes come in groups of 16
            _clear_unless_set(simple, by_eights, whole, rows, first, last, eights)
        if not self.accumulate:
            for columns, lanes, _ in plan.spans:
                flags[rows[simple][:, None], columns, lanes] = True
        for i in np.flatnonzero(~simple).tolist():
            parts = [None if each is None else each[i] for each in (of_rows, of_columns)]
            self._define_in(int(rows[i]), *parts)

    def _define_in(self, row: int, of_rows: Array | None, of_columns: Array | None) -> None:
        """Note which words of d are defined in one CTA, where some operand may be undefined."""
        memory, plan = self.memory.rows[row], self.plan
        origin: Origin | None = None
        by_row, by_column = [of_rows], [of_columns]
        for what, first, count in plan.columns[len(plan.spans) :]:
            columns = slice(first, first + count)
            if what == "a":
                assert plan.a_lanes is not None
                flags = memory.defined[columns, plan.a_lanes]
                by_row.append(np.asarray(flags.all(axis=0)))
                origin = origin or self._origin(memory, first, plan.a_lanes, flags)
                continue
            flags = memory.defined[columns]
            origin = origin or self._origin(memory, first, np.arange(LANES), flags)
            of_scales = flags.reshape(count, 4, 32).all(axis=1).reshape(-1)
            into, size = (by_row, plan.rows) if what.endswith("a") else (by_column, None)
            into.append(of_scales[: size or self.shape.columns])
        for columns, lanes, part in plan.spans:
            before = memory.defined[columns, lanes]
            if self.accumulate:
                origin = origin or self._origin(memory, columns.start, lanes, before)
            defined = before if self.accumulate else np.ones(before.shape, np.bool_)
            for each in by_row:
                defined = defined if each is None else defined & each[None, :]
            for each in by_column:
                defined = defined if each is None else defined & each[part, None]
            memory.defined[columns, lanes] = defined
            if not defined.all():
                line = self.team.site.instruction.line
                memory.put_undefined(range(columns.start, columns.stop), line, origin)

    def _origin(
        self, memory: CtaTensorMemory, first: int, lanes: Array, defined: Array
    ) -> Origin | None:
        """Return the origin of undefined words among those that the operation reads, [column from
        the first on, lane]; None if all are defined."""
        if defined.all():
            return None
        column, i = (int(each[0]) for each in np.nonzero(~defined))
        found = memory.origins.get(first + column)
        if found is not None:
            return found
        text = f"where PTX line {self.team.site.instruction.line} has put a product with lane "
        text += f"{int(lanes[i])}, column {first + column}, which nothing has written"
        related = errors.Related("that product is here", self.team.at(0).location())
        return Origin(errors.UnwrittenTensor, text, related=(related,))

    def _a_inside(self, rows: Array) -> Array:
        """The codes of a in tensor memory, [CTAs, m, k]."""
        first = split_address(self.a)[1]
        assert self.plan.a_lanes is not None
        columns = slice(first, first + _COLUMNS_OF_A)
        words = self.memory.words(columns)[rows, columns][:, :, self.plan.a_lanes]
        codes = np.ascontiguousarray(words.swapaxes(1, 2)).view(f"u{self.shape.element_bytes}")
        return _codes(codes, self.shape.a, self.shape.kind, inside=True)

    def _scales(self, rows: Array) -> list[Array]:
        """The scales of a and of b: uint8[CTAs, rows, scales of a row]."""
        shape, count = self.shape, self.form.scale_vector
        assert count is not None
        found = []
        places = self.plan.columns[-2:]
        for (what, column, width), size, first in (
            (places[0], self.plan.rows, shape.a_scale_byte),
            (places[1], shape.columns, shape.b_scale_byte),
        ):
            codes = np.empty((rows.size, size, count), np.uint8)
            words = self.memory.words(slice(column, column + width))
            bad, differs = _read_scales(words, rows, column, first, codes)
            if differs >= 0:
                self.team.at(bad).fault(
                    errors.TensorMemoryFault,
                    f"{what} of row {differs} differ between the four groups of 32 lanes of "
                    "tensor memory",
                    hint="tcgen05.cp.32x128b.warpx4 copies them to all four",
                )
            found.append(codes)
        return found

    def _sums(self, a: Array, b: Array, c: Array, scales: tuple[Array, Array] | None) -> Array:
        """Return the sums of one CTA, except those of FP4. scales: scales of rows for
        kind::mxf8f6f4."""
        shape = self.shape
        if shape.kind == "i8":
            return fused_dots.integer_dots(a, b, c, shape.saturates)
        negate = shape.negate_a != shape.negate_b
        return fused_dots.dots(a, b, (shape.a, shape.b), c, shape.d == "f16", scales, negate)


_SCALE_LANES, _ALL_LANES = np.arange(32), np.arange(LANES)


@loop
def _clear_unless_set(all_set, flags, whole, rows, start, stop, eights):  # type: ignore[no-untyped-def]
    """Clear all_set[i] unless all flags of the i-th CTA at these columns and lanes are set.

    flags: [CTA, column, eight lanes]. whole: columns all of whose flags are known to be set.
    eights: which lanes."""
    every = np.uint64(0x0101010101010101)
    for i in range(rows.shape[0]):
        for column in range(start, stop if all_set[i] else start):
            if whole[rows[i], column]:
                continue
            some = True
            for j in range(eights.shape[0]):
                some &= flags[rows[i], column, eights[j]] == every
            all_set[i] &= some
            whole[rows[i], column] = some and eights.shape[0] == flags.shape[2]


@loop
def _read_scales(words, ctas, column, first, codes):  # type: ignore[no-untyped-def]
    """Set codes[i, row, j] to byte first + j of the word of each row in each CTA.

    Returns the first (i, row) for which these bytes differ between the four groups of 32 lanes, or
    -1.
    """
    mask = np.uint32((1 << 8 * codes.shape[2]) - 1) << np.uint32(8 * first)
    for i in range(ctas.shape[0]):
        for row in range(codes.shape[1]):
            lanes, at = words[ctas[i], column + row // 32], row % 32
            word, differs = lanes[at], np.uint32(0)
            for group in range(1, 4):
                differs |= word ^ lanes[32 * group + at]
            if differs & mask:
                return i, row
            for j in range(codes.shape[2]):
                codes[i, row, j] = word >> np.uint32(8 * (first + j))
    return -1, -1


def cycles(columns: int) -> int:
    """Return the cycles for which one instruction with M = 128 (64 takes as long) and 32 bytes of K
    occupies the tensor core. Measured on a B200 by SemiAnalysis (microbench-blackwell,
    kind::mxf4nvf4): 48 at N = 64; from N = 128 on the peak rate, a column of sums in half a
    cycle."""
    return max(columns // 2, 32 + columns // 4)


_NARROW = {"e2m1": (4, 2), "e2m3": (6, 0), "e3m2": (6, 0)}
"""For narrow elements that take a byte each in tensor memory: their bits, and the position of the
lowest."""


def _data_bytes(name: str, kind: str) -> int:
    """Return how many bytes of a chunk of 16 in shared memory hold elements; padding follows."""
    return CHUNK if kind in ("mxf4", "mxf4nvf4") else 2 * _NARROW.get(name, (8, 0))[0]


def _codes(raw: Array, name: str, kind: str, inside: bool = False) -> Array:
    """Return the elements of matrices [CTAs, rows, k] from shared or tensor memory; pairs of them
    if all are FP4."""
    if name == "s8":
        return raw.view(np.int8)
    data_bytes = _data_bytes(name, kind)
    if data_bytes == CHUNK:
        return raw
    bits, lowest = _NARROW[name]
    if inside:
        return raw >> np.uint8(lowest) & np.uint8((1 << bits) - 1)
    chunks = raw.reshape(*raw.shape[:2], -1, CHUNK)[..., :data_bytes]  # 16 elements side by side
    flat = np.unpackbits(np.ascontiguousarray(chunks), axis=-1, bitorder="little")
    groups = flat.reshape(*raw.shape[:2], -1, bits)
    packed: Array = np.packbits(groups, axis=-1, bitorder="little")
    return packed.reshape(*raw.shape[:2], -1)
