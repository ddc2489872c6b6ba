"""What instructions on tensor memory have in common: who issues them, and what it may touch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nvfp4.emulator.errors import MissingTensorFence, Related, TensorMemoryFault, TensorRace
from nvfp4.emulator.instructions.action import LaneSite, Site
from nvfp4.emulator.instructions.warp import by_warp, whole_warps
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.batch import Execution
from nvfp4.emulator.state.tensor_memory import (
    LANES,
    CtaTensorMemory,
    TensorMemory,
    in_words,
)
from nvfp4.emulator.state.tensor_pipe import Conflict, CtaPipe, TensorPipe


def require_one_cta(site: Site) -> None:
    """Refuse cta_group::2."""
    if "cta_group::2" in site.parts:
        raise site.unsupported(
            f"{site.opcode}: pairs of CTAs (cta_group::2) are not emulated",
            hint="cta_group::1 is",
        )


def row_of(at: LaneSite) -> int:
    """The place of a lane's CTA in the batch."""
    return at.lane // at.batch.grid.threads


def memory_of(at: LaneSite) -> CtaTensorMemory:
    """The tensor memory of a lane's CTA."""
    return at.batch.kept(TensorMemory).of(row_of(at))


def pipes_of(at: LaneSite) -> TensorPipe:
    """The tensor pipes of a lane's batch."""
    return at.batch.kept(TensorPipe)


def pipe_of(at: LaneSite) -> CtaPipe:
    """The tensor pipe of a lane's CTA."""
    return pipes_of(at).of(row_of(at))


def issuing_lanes(
    site: Site, ex: Execution, sources: tuple[Array, ...]
) -> Iterator[tuple[LaneSite, list[int]]]:
    """(lane, its operands) of those that execute an instruction of single threads."""
    at = ex.positions()
    columns = [ex.group.spread(source)[at] for source in sources]
    for i, lane in enumerate(ex.group.lanes[at].tolist()):
        yield site.lane(ex.batch, lane), [int(column[i]) for column in columns]


def issuing_warps(
    site: Site, ex: Execution, sources: tuple[Array, ...]
) -> Iterator[tuple[LaneSite, list[int]]]:
    """(first lane, operands) of the warps that execute an instruction together. Raises where a
    warp's lanes have different operands."""
    rows = [by_warp(ex.group, source) for source in sources]
    for warp in whole_warps(site, ex).tolist():
        at = site.lane(ex.batch, 32 * warp)
        values = []
        for number, row in enumerate(rows):
            if (row[warp] != row[warp, 0]).any():
                at.fault(
                    TensorMemoryFault,
                    f"{site.opcode}: the lanes of the warp disagree about operand {number + 1}",
                )
            values.append(int(row[warp, 0]))
        yield at, values


def require_columns(at: LaneSite, what: str, column: int, count: int) -> None:
    """Fault unless these columns are allocated."""
    trouble = memory_of(at).trouble(column, count)
    if trouble is not None:
        at.fault(
            TensorMemoryFault,
            f"{what} of tensor memory reaches {trouble}",
            hint="tcgen05.alloc wrote the address of the first column to shared memory",
            arguments={"column": column, "columns": count},
        )


def note_conflict(at: LaneSite, what: str, address: int, found: Conflict | None) -> None:
    """Note that an access to tensor memory races with another one."""
    if found is None:
        return
    related = (
        [] if found.place is None else [Related("the other access is here", found.place.location())]
    )
    text = f"{what} of tensor memory at {in_words(address)}: {found.what}"
    kind = MissingTensorFence if found.unfenced else TensorRace
    at.note(kind, text, found.hint, related=related)


ALL_LANES_OF_MEMORY = np.arange(LANES)
"""Of tensor memory."""


def any_set(values: Array) -> bool:
    """Whether any entry is not 0."""
    return bool(np.any(values))
