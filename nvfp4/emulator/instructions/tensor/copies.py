"""tcgen05.cp: the tensor pipe copies shared memory to tensor memory.

A row of the source is 16 or 32 bytes that a descriptor leads to. Narrow elements are widened to
bytes on the way: 4 bits go to bits 2-5, 6 bits to bits 0-5. Source: PTX ISA, tcgen05.cp, and
Optional Decompression.
"""

from typing import NamedTuple

import numpy as np

from nvfp4.emulator.errors import TensorMemoryFault
from nvfp4.emulator.instructions.action import Action, Site, instruction
from nvfp4.emulator.instructions.tensor import issue
from nvfp4.emulator.instructions.tensor.sources import source_of
from nvfp4.emulator.loops import loop
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.batch import Execution
from nvfp4.emulator.state.tensor_memory import LANES, TensorMemory, split_address
from nvfp4.emulator.state.tensor_pipe import TensorPipe

_LANES_32 = np.arange(32)


class _Shape(NamedTuple):
    """A shape of tcgen05.cp: `rows` of the source, `columns` of tensor memory."""

    rows: int
    columns: int
    lanes: Array
    """The lanes to which each row of the source is copied, int64[copies, rows]."""


def _halves(*warps: tuple[int, int]) -> Array:
    """Return the lanes for rows 0-31, which go to two warps, and rows 32-63, to two others."""
    return (32 * np.array(warps).T[:, :, None] + _LANES_32).reshape(2, -1)


_SHAPES = {
    "128x256b": _Shape(128, 8, np.arange(128).reshape(1, -1)),
    "128x128b": _Shape(128, 4, np.arange(128).reshape(1, -1)),
    "4x256b": _Shape(4, 8, 32 * np.arange(4).reshape(1, -1)),
    "64x128b.warpx2::02_13": _Shape(64, 4, _halves((0, 2), (1, 3))),
    "64x128b.warpx2::01_23": _Shape(64, 4, _halves((0, 1), (2, 3))),
    "32x128b.warpx4": _Shape(32, 4, 32 * np.arange(4)[:, None] + _LANES_32),
}
"""The shapes of copies by the shape and multicast that an opcode names."""
_WIDENED = ("b4x16_p64", "b6x16_p32")


@instruction(
    "tcgen05.cp", operands="[] b64",
    modifiers=" ".join((
        issue.ONE_GROUP, "b8x16", *_WIDENED, *(name.replace(".", " ") for name in _SHAPES)
    )),
)  # fmt: skip
def copy(site: Site) -> Action:
    """tcgen05.cp.cta_group.shape{.multicast}{.b8x16.format} [taddr], s-desc. Of a pair, each CTA's
    shared memory goes to its own tensor memory."""
    group = issue.group_of(site)
    name = ".".join(part for part in site.parts if part[0].isdigit() or part.startswith("warpx"))
    if name not in _SHAPES:
        raise site.unsupported(f"{site.opcode} names no shape and multicast that are emulated")
    shape = _SHAPES[name]
    widening = next((part for part in site.parts if part in _WIDENED), None)

    def run(ex: Execution, *operands: Array) -> None:
        for team, (address, bits) in issue.issuing_teams(site, ex, operands, group):
            _issue(team, group, shape, widening, address, bits)

    return site.action("copy", run)


def _issue(
    team: issue.Team, group: int, shape: _Shape, widening: str | None, address: int, bits: int
) -> None:
    batch, (lane, column) = team.batch, split_address(address)
    last = lane + int(shape.lanes.max())
    if last >= LANES:
        what = f"copy to tensor memory lanes {lane} to {last} of {LANES}"
        team.at(0).fault(TensorMemoryFault, what)
    rows, pipes = issue.use(team, group), batch.kept(TensorPipe)
    issue.require_columns_of(team, rows, "copy", column, shape.columns)
    numbers = pipes.issue(team.site, team.lanes)
    place = (shape.rows, 4 * shape.columns, False, 1)
    sources = [(own, source_of(team, own, numbers, bits, "the source", place)) for own in rows.T]
    columns, lanes = slice(column, column + shape.columns), shape.lanes + lane
    if batch.shared.checked:
        issue.note_pipe(team, rows, numbers, columns, lanes.reshape(-1), True, "copy", address)
    issue.count_bytes(team, 4 * shape.columns * lanes.size * rows.size)
    memory = batch.kept(TensorMemory)

    def perform(which: Array) -> None:
        for own, source in sources:
            raw = source.fetch(which).reshape(-1, 4 * shape.columns)
            words = _widened(raw, widening).view(np.uint32).reshape(which.size, shape.rows, -1)
            defined = np.ones((which.size, shape.rows), np.bool_)
            if source.defined is not None:
                defined = source.defined[which]
                for row in own[which][~defined.all(axis=1)].tolist():
                    line = team.site.instruction.line
                    memory.rows[row].put_undefined(range(column, columns.stop), line)
            all_words = memory.words(columns)
            _spread(words, defined, own[which], all_words, memory.defined, column, lanes)

    pipes.submit(team.lanes, perform)


@loop
def _spread(rows, whole, ctas, words, defined, column, lanes):  # type: ignore[no-untyped-def]
    """Copy each row to a lane of its CTA, once for each row of `lanes`."""
    for i in range(ctas.shape[0]):
        for j in range(rows.shape[2]):
            into, flags = words[ctas[i], column + j], defined[ctas[i], column + j]
            for copy in range(lanes.shape[0]):
                for row in range(rows.shape[1]):
                    into[lanes[copy, row]] = rows[i, row, j]
                    flags[lanes[copy, row]] = whole[i, row]


def _widened(rows: Array, widening: str | None) -> Array:
    """Unpack the narrow elements in rows of 16-byte chunks to a byte each."""
    if widening is None:
        return rows
    chunks = rows.reshape(rows.shape[0], -1, 16)
    if widening == "b4x16_p64":
        packed = chunks[:, :, :8]
        wide = (np.stack((packed & 15, packed >> 4), axis=-1) << 2).astype(np.uint8)
    else:
        bits = np.unpackbits(chunks[:, :, :12], axis=-1, bitorder="little")
        wide = np.packbits(bits.reshape(*chunks.shape[:2], 16, 6), axis=-1, bitorder="little")
    return np.ascontiguousarray(wide.reshape(rows.shape[0], -1)).astype(np.uint8)
