"""Common parts of instructions on tensor memory: the issuing threads, and checks of accesses."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from nvfp4.emulator.errors import MissingTensorFence, Related, TensorMemoryFault, TensorRace
from nvfp4.emulator.instructions import shared_access
from nvfp4.emulator.instructions.action import LaneSite, Site
from nvfp4.emulator.instructions.warp import by_warp, whole_warps
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state import tensor_memory
from nvfp4.emulator.state.batch import Batch, Execution
from nvfp4.emulator.state.memory import READ
from nvfp4.emulator.state.tensor_pipe import Conflict, TensorPipe
from nvfp4.emulator.work import TENSOR

GROUPS = ("cta_group::1", "cta_group::2")
ONE_GROUP = "|".join(GROUPS)


def group_of(site: Site) -> int:
    """Return the number of CTAs that an instruction is for: 1, or 2 for a pair."""
    return 1 + GROUPS.index(site.one_of(*GROUPS))


def join(at: LaneSite, group: int) -> range:
    """Return the CTAs for which a lane executes an instruction, by their places in the batch.

    Faults if the kernel has used another cta_group, or the cluster has no pairs.
    """
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
    first = pipes.unit(row_of(at))
    return range(first, first + group)


class Team(NamedTuple):
    """Lanes of different tensor pipes that execute an instruction with the same operands."""

    site: Site
    batch: Batch
    lanes: Array

    def at(self, i: int) -> LaneSite:
        """Return the instruction at the place of the team's lane `i`."""
        return self.site.lane(self.batch, self.lanes[i])


def issuing_teams(
    site: Site, ex: Execution, sources: tuple[Array, ...], group: int
) -> Iterator[tuple[Team, list[int]]]:
    """(team, its operands) of the lanes that execute an instruction of single threads. Lanes of
    one pipe come one after the other. group: CTAs of a pipe."""
    positions = ex.positions()
    lanes = ex.group.lanes[positions]
    units = lanes // (ex.batch.grid.threads * group)
    turns = np.arange(lanes.size) - np.searchsorted(units, units)
    columns = [ex.group.spread(each)[positions].astype(np.uint64) for each in sources]
    cases = np.stack([turns.astype(np.uint64), *columns])
    if lanes.size and (cases == cases[:, :1]).all():
        yield Team(site, ex.batch, lanes), [int(each) for each in cases[1:, 0]]
        return
    distinct, which = np.unique(cases, axis=1, return_inverse=True)
    for case in range(distinct.shape[1]):
        members = lanes[which.reshape(-1) == case]
        yield Team(site, ex.batch, members), [int(each) for each in distinct[1:, case]]


def use(team: Team, group: int) -> Array:
    """Return the CTAs that take part in a team's operation, int64[lanes, CTAs of a pipe].

    The operation reads shared memory of both CTAs of a pair and writes their tensor memory. Faults
    if the other one has ended.
    """
    join(team.at(0), group)
    first = team.lanes // (team.batch.grid.threads * group) * group
    rows: Array = first[:, None] + np.arange(group)
    if group > 1:
        where = rows.reshape(-1) * team.batch.shared.stride
        shared_access.visit(team.batch, team.site, where, np.repeat(team.lanes, group), flag=READ)
    return rows


def row_of(at: LaneSite) -> int:
    """The place of a lane's CTA in the batch."""
    return at.lane // at.batch.grid.threads


def memory_of(at: LaneSite) -> tensor_memory.CtaTensorMemory:
    """The tensor memory of a lane's CTA."""
    return at.batch.kept(tensor_memory.TensorMemory).rows[row_of(at)]


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
                what = f"{site.opcode}: the lanes of the warp disagree about operand {number + 1}"
                at.fault(TensorMemoryFault, what)
            values.append(int(row[warp, 0]))
        yield at, values


def require_columns_of(team: Team, rows: Array, what: str, column: int, count: int) -> None:
    """Fault unless these columns are allocated in the CTAs of a team. rows: see `use`."""
    owners = team.batch.kept(tensor_memory.TensorMemory).owners
    last = column + count
    if last > owners.shape[1] or (owners[rows.reshape(-1), column:last] < 0).any():
        for i in range(len(rows)):
            require_columns(team.at(i), rows[i].tolist(), what, column, count)


def require_columns(at: LaneSite, rows: Iterable[int], what: str, column: int, count: int) -> None:
    """Fault unless these columns are allocated in these CTAs."""
    memory = at.batch.kept(tensor_memory.TensorMemory)
    troubles = (memory.rows[row].trouble(column, count) for row in rows)
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
    places = [] if found.place is None else [found.place.location()]
    related = [Related("the other access is here", place) for place in places]
    text = f"{what} of tensor memory at {tensor_memory.in_words(address)}: {found.what}"
    at.note(MissingTensorFence if found.unfenced else TensorRace, text, found.hint, related=related)


def note_pipe(
    team: Team, rows: Array, numbers: Array, columns: slice, lanes: Array, writes: bool, what: str,
    address: int,
) -> None:  # fmt: skip
    """Note where operations of a team's pipes, with their numbers, race with others at words of
    their CTAs. rows: see `use`."""
    pipes = team.batch.kept(TensorPipe)
    for own in rows.T:
        for i, found in pipes.note_pipe(team.lanes, own, numbers, columns, lanes, writes):
            note_conflict(team.at(i), what, address, found)


def count_products(team: Team, busy: int) -> None:
    """Count one product for each lane, which keeps a tensor core busy for `busy` cycles."""
    count, traffic, tally = team.lanes.size, team.batch.traffic, team.batch.launch.tally
    traffic.tensor_instructions += count
    traffic.tensor_cycles += busy * count
    warps, cycles = team.lanes >> 5, np.full(count, busy)
    team.batch.launch.work.spend(TENSOR, team.batch.by_cta(warps, cycles))
    if tally is not None:
        for _ in range(count):
            tally.multiplied(team.site.instruction, busy)


def count_bytes(at: LaneSite | Team, nbytes: int, reads: bool = False) -> None:
    """Count bytes written to tensor memory, or read from it."""
    at.batch.traffic.count("tensor", not reads, nbytes)
    if at.batch.launch.tally is not None:
        at.batch.launch.tally.site(at.site.instruction).tensor_bytes += nbytes
