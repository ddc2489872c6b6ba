"""ldmatrix and stmatrix: a warp moves matrices between shared memory and fragments.

A matrix has 8 rows of 16 bytes in shared memory; lane 8i + r holds the address of row r of matrix
i. Of each matrix a lane has one 32-bit register. Source: PTX ISA, the figures of each instruction.
"""

from collections.abc import Sequence

import numpy as np

from nvfp4.emulator.errors import OutOfBounds
from nvfp4.emulator.instructions import access
from nvfp4.emulator.instructions import undefined as undefined_memory
from nvfp4.emulator.instructions.access_shape import Access, space_of
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
_COUNTS = {"x1": 1, "x2": 2, "x4": 4}
_ROWS = 8
_HINT = "matrices of 8 x 8 elements of 16 bits (.m8n8, .b16) are"


@instruction("ldmatrix")
def ldmatrix(site: Site) -> Action:
    """ldmatrix.sync.aligned.m8n8.{x1,x2,x4}{.trans}{.shared}.b16 r, [p]."""
    count = _matrices(site)
    site.takes(2)
    memory, targets = site.memory(1), site.items(0)
    _require_registers(site, count, len(targets))
    what = Access(site, space_of(site), 8, 2)
    transposed = "trans" in site.parts

    def run(ex: Execution, address: Array, mask: Array) -> tuple[Array, ...]:
        warps, lanes, flat = _addressed(site, ex, count, address)
        data = access.read(ex.batch, what, "shared", flat, lanes)
        synchronised(ex.batch, present_lanes(ex))
        return _spread(ex, warps, _fragments(data, count, transposed))

    def shadow(ex: Execution, values: Arrays, shadows: Arrays) -> tuple[Array, ...]:
        warps, lanes, flat = _addressed(site, ex, count, values[0])
        data = undefined_memory.fetch(ex.batch, what, "shared", lanes, flat)
        return _spread(ex, warps, _fragments(data, count, transposed))

    sources = [Source(memory, "b64"), Source(ALL_LANES, "b32")]
    results = [Result(target, "b32") for target in targets]
    return Action("load", sources, results, run, member_gate(1), shadow=shadow, loads=True)


@instruction("stmatrix")
def stmatrix(site: Site) -> Action:
    """stmatrix.sync.aligned.m8n8.{x1,x2,x4}{.trans}{.shared}.b16 [p], r."""
    count = _matrices(site)
    site.takes(2)
    memory, values = site.memory(0), site.items(1)
    _require_registers(site, count, len(values))
    what = Access(site, space_of(site), 8, 2)
    transposed = "trans" in site.parts

    def run(ex: Execution, address: Array, mask: Array, *registers: Array) -> None:
        warps, lanes, flat = _addressed(site, ex, count, address)
        data = _rows([by_warp(ex.group, each)[warps] for each in registers], transposed)
        access.write(ex.batch, what, "shared", flat, lanes, data)
        synchronised(ex.batch, present_lanes(ex))

    def shadow(ex: Execution, values: Arrays, shadows: Arrays) -> tuple[Array, ...]:
        warps, lanes, flat = _addressed(site, ex, count, values[0])
        data = _rows([by_warp(ex.group, each)[warps] for each in shadows[2:]], transposed)
        undefined_memory.keep(ex.batch, what, "shared", lanes, flat, data)
        return (np.zeros(1, np.bool_),)

    sources = [Source(memory, "b64"), Source(ALL_LANES, "b32")]
    sources += [Source(value, "b32") for value in values]
    return Action("store", sources, [], run, member_gate(1), shadow=shadow)


def _matrices(site: Site) -> int:
    """How many matrices an instruction moves, its modifiers checked."""
    for part in ("sync", "aligned", "m8n8", "b16"):
        if part not in site.parts:
            raise site.unsupported(f"{site.opcode}: without .{part} it is not emulated", _HINT)
    site.only("sync", "aligned", "m8n8", *_COUNTS, "trans", "shared", "shared::cta", "b16")
    for part, count in _COUNTS.items():
        if part in site.parts:
            return count
    raise site.unsupported(f"{site.opcode} does not say how many matrices it moves")


def _require_registers(site: Site, count: int, given: int) -> None:
    if given != count:
        raise site.unsupported(f"{site.opcode}: {given} registers for {count} matrices")


def _addressed(site: Site, ex: Execution, count: int, address: Array) -> tuple[Array, Array, Array]:
    """(warps, lanes that hold the address of a row, those addresses), row by row."""
    warps = whole_warps(site, ex)
    holders = np.arange(_ROWS * count)
    lanes = (32 * warps[:, None] + holders).reshape(-1)
    flat = np.ascontiguousarray(by_warp(ex.group, address)[warps][:, holders]).reshape(-1)
    if space_of(site) == "generic":
        for space, mask in access.split_windows(flat):
            if space != "shared":
                lane = lanes[0 if mask is None else int(mask.argmax())]
                site.lane(ex.batch, lane).fault(
                    OutOfBounds, f"{site.opcode}: the address is not in shared memory"
                )
    return warps, lanes, flat


def _fragments(data: Array, count: int, transposed: bool) -> Array:
    """uint32[warps, matrices, lanes] of rows, uint64[2, rows]."""
    elements = np.ascontiguousarray(data.T).view(np.uint16).reshape(-1, count, _ROWS, 8)
    if transposed:
        elements = elements.swapaxes(2, 3)
    return np.ascontiguousarray(elements).view(np.uint32).reshape(-1, count, 32)


def _rows(registers: Sequence[Array], transposed: bool) -> Array:
    """uint64[2, rows] of registers, each uint32[warps, lanes]; the inverse of `_fragments`."""
    elements = np.stack(registers, axis=1).view(np.uint16)
    elements = elements.reshape(-1, len(registers), _ROWS, 8)
    if transposed:
        elements = elements.swapaxes(2, 3)
    words = np.ascontiguousarray(elements).view(np.uint64).reshape(-1, 2)
    return np.ascontiguousarray(words.T)


def _spread(ex: Execution, warps: Array, fragments: Array) -> tuple[Array, ...]:
    """Registers of the group, one a matrix."""
    out = np.zeros((fragments.shape[1], ex.batch.grid.lane.size // 32, 32), np.uint32)
    out[:, warps] = fragments.swapaxes(0, 1)
    return tuple(back(ex.group, rows) for rows in out)
