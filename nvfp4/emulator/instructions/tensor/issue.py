"""What instructions on tensor memory have in common: who issues them, and what it may touch."""

from collections.abc import Iterable, Iterator

import numpy as np

from nvfp4.emulator.errors import MissingTensorFence, Related, TensorMemoryFault, TensorRace
from nvfp4.emulator.instructions import peers
from nvfp4.emulator.instructions.action import LaneSite, Site
from nvfp4.emulator.instructions.warp import by_warp, whole_warps
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.batch import Execution
from nvfp4.emulator.state.memory import READ
from nvfp4.emulator.state.tensor_memory import (
    LANES,
    CtaTensorMemory,
    TensorMemory,
    in_words,
)
from nvfp4.emulator.state.tensor_pipe import Conflict, TensorPipe

GROUPS = ("cta_group::1", "cta_group::2")


def group_of(site: Site) -> int:
    """How many CTAs an instruction is for: 1, or 2 for a pair."""
    given = [part for part in site.parts if part in GROUPS]
    if len(given) != 1:
        raise site.unsupported(f"{site.opcode} names no cta_group")
    return 1 + GROUPS.index(given[0])


def join(at: LaneSite, group: int) -> range:
    """The CTAs for which a lane executes an instruction of a group, by their places in the batch.
    Faults where the kernel has another group, or the cluster no pairs."""
    pipes = pipes_of(at)
    if pipes.group != group:
        if pipes.group is not None:
            at.fault(
                TensorMemoryFault,
                f"{at.site.opcode} with cta_group::{group}, after instructions with "
                f"cta_group::{pipes.group}: what then happens is undefined",
                hint="all tcgen05 instructions of a kernel have the same cta_group",
            )
        if at.batch.cluster_size % group:
            at.fault(
                TensorMemoryFault,
                f"{at.site.opcode} with cta_group::2 in a cluster of {at.batch.cluster_size} CTAs, "
                "which are no pairs",
                hint="launch with an even number of CTAs in a cluster",
            )
        pipes.group = group
    return pipes.unit_rows(row_of(at))


def use(at: LaneSite, group: int) -> range:
    """The same for an operation of the pipe, which reads shared memory of both CTAs of a pair and
    writes their tensor memory. Faults where the other one has ended."""
    rows = join(at, group)
    if group > 1:
        shared = at.batch.shared
        where = np.array(rows, np.int64) * shared.stride
        peers.visit(at.batch, at.site, where, np.full(group, at.lane), flag=READ)
    return rows


def row_of(at: LaneSite) -> int:
    """The place of a lane's CTA in the batch."""
    return at.lane // at.batch.grid.threads


def tensor_memory(at: LaneSite, row: int) -> CtaTensorMemory:
    """The tensor memory of a CTA."""
    return at.batch.kept(TensorMemory).of(row)


def memory_of(at: LaneSite) -> CtaTensorMemory:
    """The tensor memory of a lane's CTA."""
    return tensor_memory(at, row_of(at))


def pipes_of(at: LaneSite) -> TensorPipe:
    """The tensor pipes of a lane's batch."""
    return at.batch.kept(TensorPipe)


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


def require_columns(
    at: LaneSite, what: str, column: int, count: int, rows: Iterable[int] | None = None
) -> None:
    """Fault unless these columns are allocated in the lane's CTA, or in all of `rows`."""
    memory = at.batch.kept(TensorMemory)
    troubles = (memory.of(row).trouble(column, count) for row in rows or (row_of(at),))
    trouble = next((each for each in troubles if each is not None), None)
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


def count_product(at: LaneSite, busy: int) -> None:
    """A product keeps a tensor core busy for so many cycles."""
    at.batch.traffic.tensor_instructions += 1
    at.batch.traffic.tensor_cycles += busy
    if at.batch.launch.tally is not None:
        at.batch.launch.tally.multiplied(at.site.instruction, busy)


def count_bytes(at: LaneSite, nbytes: int, reads: bool = False) -> None:
    """So many bytes go to tensor memory, or come from there."""
    if reads:
        at.batch.traffic.tensor_bytes_read += nbytes
    else:
        at.batch.traffic.tensor_bytes_written += nbytes
    if at.batch.launch.tally is not None:
        at.batch.launch.tally.tensor_moved(at.site.instruction, nbytes)


ALL_LANES_OF_MEMORY = np.arange(LANES)
"""Of tensor memory."""


def any_set(values: Array) -> bool:
    """Whether any entry is not 0."""
    return bool(np.any(values))
