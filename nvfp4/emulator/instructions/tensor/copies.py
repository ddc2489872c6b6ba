"""tcgen05.cp: the tensor pipe copies shared memory to tensor memory.

A row of the source is 16 or 32 bytes that a descriptor leads to. Narrow elements are widened to
bytes on the way: 4 bits go to bits 2-5, 6 bits to bits 0-5. Source: PTX ISA, tcgen05.cp, and
Optional Decompression.
"""

from dataclasses import dataclass

import numpy as np

from nvfp4.emulator.errors import TensorMemoryFault
from nvfp4.emulator.instructions.action import Action, LaneSite, Site, instruction, issuing_lanes
from nvfp4.emulator.instructions.action import Source as Operand
from nvfp4.emulator.instructions.tensor.issue import (
    GROUPS,
    count_bytes,
    group_of,
    note_conflict,
    pipes_of,
    require_columns,
    tensor_memory,
    use,
)
from nvfp4.emulator.instructions.tensor.sources import source_of
from nvfp4.emulator.loops import loop
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.batch import Execution
from nvfp4.emulator.state.tensor_memory import LANES, split_address

_LANES_32 = np.arange(32)


@dataclass(frozen=True)
class _Shape:
    """rows of the source, columns of tensor memory. lanes: int64[copies, rows], where each row of
    the source goes. multicast: the modifier that says so."""

    rows: int
    columns: int
    lanes: Array
    multicast: str | None = None


def _halves(*warps: tuple[int, int]) -> Array:
    """Rows 0-31 and 32-63, each to two warps' lanes."""
    (a, b), (c, d) = warps
    return np.array(
        [
            [*(32 * a + _LANES_32), *(32 * c + _LANES_32)],
            [*(32 * b + _LANES_32), *(32 * d + _LANES_32)],
        ]
    )


_SHAPES = (
    _Shape(128, 8, np.arange(128).reshape(1, -1)),
    _Shape(128, 4, np.arange(128).reshape(1, -1)),
    _Shape(4, 8, 32 * np.arange(4).reshape(1, -1)),
    _Shape(64, 4, _halves((0, 2), (1, 3)), "warpx2::02_13"),
    _Shape(64, 4, _halves((0, 1), (2, 3)), "warpx2::01_23"),
    _Shape(32, 4, 32 * np.arange(4)[:, None] + _LANES_32, "warpx4"),
)
_NAMES = ("128x256b", "128x128b", "4x256b", "64x128b", "64x128b", "32x128b")
_WIDENED = ("b4x16_p64", "b6x16_p32")


def _shape_of(site: Site) -> _Shape:
    for name, shape in zip(_NAMES, _SHAPES, strict=True):
        multicasts = [part for part in site.parts if part.startswith("warpx")]
        if name in site.parts and multicasts == [each for each in [shape.multicast] if each]:
            return shape
    raise site.unsupported(f"{site.opcode} names no shape and multicast that are emulated")


@instruction("tcgen05.cp")
def copy(site: Site) -> Action:
    """tcgen05.cp.cta_group.shape{.multicast}{.b8x16.format} [taddr], s-desc. Of a pair, each CTA's
    shared memory goes to its own tensor memory."""
    group = group_of(site)
    site.only(
        "cp", *GROUPS, "b8x16", *_WIDENED, *_NAMES, "warpx2::02_13", "warpx2::01_23", "warpx4"
    )
    site.takes(2)
    shape = _shape_of(site)
    widening = next((part for part in site.parts if part in _WIDENED), None)

    def run(ex: Execution, target: Array, descriptor: Array) -> None:
        for at, (address, bits) in issuing_lanes(site, ex, (target, descriptor)):
            _issue(at, group, shape, widening, address, bits)

    sources = [Operand(site.memory(0), "b64"), Operand(site.operands[1], "b64")]
    return Action("copy", sources, [], run)


def _issue(
    at: LaneSite, group: int, shape: _Shape, widening: str | None, address: int, bits: int
) -> None:
    lane, column = split_address(address)
    if lane + int(shape.lanes.max()) >= LANES:
        at.fault(
            TensorMemoryFault,
            f"copy to tensor memory lanes {lane} to {lane + int(shape.lanes.max())} of {LANES}",
        )
    rows, pipes = use(at, group), pipes_of(at)
    require_columns(at, "copy", column, shape.columns, rows)
    number = pipes.issue(at.lane, at)
    place = (shape.rows, 4 * shape.columns, False, 1)
    sources = [(row, source_of(at, row, number, bits, "the source", place)) for row in rows]
    columns, lanes = slice(column, column + shape.columns), shape.lanes + lane
    if at.batch.shared.checked:
        for row in rows:
            found = pipes.note_pipe(at.lane, row, number, columns, lanes.reshape(-1), writes=True)
            note_conflict(at, "copy", address, found)
    count_bytes(at, 4 * shape.columns * lanes.size * group)

    def perform() -> None:
        for row, source in sources:
            words = _widened(source.fetch(), widening).view(np.uint32)
            memory = tensor_memory(at, row)
            _spread(words, memory.words, column, lanes)
            if not at.batch.shared.checked:
                continue
            for each in lanes:
                memory.defined[columns, each] = True if source.defined is None else source.defined
            if source.defined is not None:
                memory.put_undefined(range(column, columns.stop), at.site.instruction.line)

    pipes.submit(at.lane, perform)


@loop
def _spread(rows, words, column, lanes):  # type: ignore[no-untyped-def]
    """Each row goes to a lane, once for each row of `lanes`."""
    for copy in range(lanes.shape[0]):
        for row in range(rows.shape[0]):
            for i in range(rows.shape[1]):
                words[column + i, lanes[copy, row]] = rows[row, i]


def _widened(rows: Array, widening: str | None) -> Array:
    """Rows of chunks of 16 bytes with narrow elements as rows of bytes."""
    if widening is None:
        return rows
    chunks = rows.reshape(rows.shape[0], -1, 16)
    if widening == "b4x16_p64":
        packed = chunks[:, :, :8]
        wide = (np.stack((packed & 15, packed >> 4), axis=-1) << 2).astype(np.uint8)
    else:
        bits = np.unpackbits(chunks[:, :, :12], axis=-1, bitorder="little")
        groups = bits.reshape(*chunks.shape[:2], 16, 6)
        wide = np.packbits(groups, axis=-1, bitorder="little")
    return np.ascontiguousarray(wide.reshape(rows.shape[0], -1)).astype(np.uint8)
