"""Counts of the statements that each warp of a launch executed, and of their memory accesses.

What L1 answers depends on the order within a thread block: that is kept for a few of them, drawn
while the launch runs. A sector that its block has asked for before comes out of L1, unless more
than L1 holds has come since.
"""

import re
import secrets
from collections import Counter, defaultdict
from dataclasses import field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nvfp4.emulator.arrays import Array, begin_of_runs, distinct, halves_of, pairs_of
from nvfp4.emulator.updates import UpdateCounter, Updates
from nvfp4.records.base import Record

SECTOR_BYTES = 32
_SECTOR_SHIFT, _LINES_SHIFT = np.uint64(5), np.uint64(2)
"""Shifts from an address to its sector, and from a sector to its line of 128 bytes."""
_DRAWN_OF_A_BATCH, _MOST_DRAWN = 4, 1 << 15
TENSOR = 0
"""In place of a statement's position, for the cycles of tensor cores."""
CHAINED, CHAINED_LOADS, CHAINED_COPIES, _EMPTIED = -1, -2, -3, -4
"""The same, for instructions, loads and asynchronous copies that follow each other, and for CTAs
whose L1 is emptied."""
_COPIED_A_CYCLE = 80
"""Bytes that the copy engine of an SM moves at most, about."""
FRESH = 1 << 40
"""Added to a statement's position, for the sectors that nothing had touched before."""
_USUAL = 0.8
"""The least share of a thread block's fresh sectors that those drawn would fetch, too."""
ANYWHERE = -5
"""The same, for what has parted lanes of a warp."""
_LOADS = re.compile(
    r"(?!.*\.(shared|param|local))(ld|ldu|atom)\b|(fence|membar)(?!\.proxy).*\.(gpu|gl|sys|cluster)\b"
)
_L1_SECTORS = (256 << 10) // SECTOR_BYTES
"""The sectors that a thread block's L1 holds at most: it is emptied after so many new ones."""


def waits_for_memory(opcode: str) -> bool:
    """Return whether a load, an atomic or a fence may make its warp wait for memory beyond shared
    memory."""
    return _LOADS.match(opcode) is not None


class Sampled(Record):
    """A statement's accesses in the thread blocks that were drawn."""

    lines: float
    """Lines of 128 bytes in each request."""
    first: float
    """The share of sectors that the thread block had not requested before."""
    first_requests: float
    """The share of requests that have such sectors."""
    uneven: float = 1.0
    """Such sectors per request: the most of any thread block, over the mean."""
    again: float = 0.0
    """The share of sectors that the thread block had requested before L1 was emptied."""
    passes: float = 0.0
    """Passes of L1 in each request: the most accesses to the same place in lines of 128 bytes."""
    sharers: float = 1.0
    """Warps of the thread block that ask for a sector at the same time."""


class Asked(Record, frozen=False):
    """Memory that a statement asked for, summed over a launch."""

    requests: int = 0
    """Accesses of a warp, each counted once."""
    sectors: int = 0
    """Sectors of 32 bytes, distinct within a request."""
    fresh: int = 0
    """Those sectors that nothing in the launch had touched before."""
    shared_requests: int = 0
    """Requests of shared memory."""
    passes: int = 0
    """Passes of shared memory and constants."""
    turns: int = 0
    """Turns of atomics on shared memory: the most lanes of each request that meet at one word."""
    local_lines: int = 0
    """Lines of local memory, distinct within a request."""
    copied: int = 0
    """Bytes that the copy engine moved, in whole sectors."""
    uneven: float = 1.0
    """Cycles, or sectors, of an execution: the most of any thread block, over the mean."""
    alone: float = 0.0
    """Executions by a warp that may wait for fresh sectors where it is not so in thread blocks that
    were drawn: the most in any thread block."""
    sampled: Sampled | None = None
    """None if no thread block that was drawn has executed the statement."""

    @property
    def cost(self) -> int:
        """Cycles, or sectors, of all executions; what `uneven` is about."""
        copied = self.copied // _COPIED_A_CYCLE
        return max(self.turns, self.passes, self.local_lines, self.sectors, copied)


class Work(Record, frozen=False):
    """The work of a launch by kind of warp.

    Warps that ran every basic block equally often are of one kind, and so are CTAs with the same
    kinds of warps.
    """

    warps: NDArray[np.int64]
    """How often a warp of each kind ran each block, int64[kinds, blocks]."""
    ctas: list[tuple[int, ...]]
    """For each kind of CTA, the kinds of its warps."""
    of_cta: dict[int, int]
    """Kind of each CTA that ran, by its number."""
    starts: list[dict[int, str]]
    """For each block, the positions in the PTX text of its statements, and their opcodes."""
    asked: dict[int, Asked]
    """Memory that each statement asked for, by its position."""
    waits: bool = False
    """Whether threads waited for others of the launch by flags in memory."""
    timed: bool = False
    """Whether threads read a clock, by which they can wait, too."""
    updates: tuple[dict[int, Updates], Updates | None] = field(default_factory=lambda: ({}, None))
    """See `UpdateCounter.found`."""
    update_requests: int = 0
    """Requests of sectors by atomics."""
    tensor_cycles: int = 0
    """The most that any CTA keeps a tensor core busy."""

    chained: dict[int, int] = field(default_factory=dict)
    """For each kind of CTA, the most instructions that warps execute one after the other until one
    of its warps ends, by the barriers at which they meet."""

    chained_loads: dict[int, int] = field(default_factory=dict)
    """The same, for loads that may wait for memory."""

    chained_copies: int = 0
    """The most copies of a CTA each of which began after a wait at an mbarrier for the one
    before."""

    rejoined: dict[int, set[int]] = field(default_factory=dict)
    """Blocks at which lanes of a warp met that had gone different ways, and the branches that had
    parted them, by position; ANYWHERE stands for any."""

    spread: float = 1.0
    """Sectors that memory delivers, in pairs, over those that the launch touched."""

    def by_statement(self, kind: int) -> dict[int, int]:
        """Return how often a warp of a kind executed each statement, by its position in the PTX
        text."""
        runs: dict[int, int] = defaultdict(int)
        for starts, times in zip(self.starts, self.warps[kind].tolist(), strict=True):
            for start in starts:
                runs[start] += times
        return dict(runs)

    @cached_property
    def opcodes(self) -> dict[int, str]:
        """The opcode of each statement, by its position in the PTX text."""
        return {start: opcode for block in self.starts for start, opcode in block.items()}

    def runs(self, opcode: str) -> int:
        """Return how often a warp has executed instructions with this in their opcodes, at most."""
        counts = [sum(opcode in each for each in block.values()) for block in self.starts]
        return int((self.warps @ np.array(counts, np.int64)).max(initial=0))


class WorkCounter(Record, frozen=False):
    """Collects the work of a launch, batch by batch."""

    samples: bool = False
    """Whether CTAs are drawn at random to keep their accesses."""
    waits: bool = False
    """See `Work`."""
    timed: bool = False
    """See `Work`."""
    drawn: int = 0
    """Number of CTAs drawn so far."""
    rejoined: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    """See `Work`."""
    asked: dict[int, Asked] = field(default_factory=lambda: defaultdict(Asked))
    updates: UpdateCounter = field(default_factory=UpdateCounter)
    _kinds: dict[int, int] = field(default_factory=dict)
    _warps: list[Array] = field(default_factory=list)
    _ctas: dict[tuple[int, ...], int] = field(default_factory=dict)
    _of_cta: dict[int, int] = field(default_factory=dict)
    _looked: dict[tuple[int, int], Array] = field(default_factory=dict)
    _weights: Array | None = None
    _counts: dict[int, Array] = field(default_factory=lambda: defaultdict(lambda: np.zeros(5)))
    _order: list[tuple[int, Array, Array, Array]] = field(default_factory=list)
    _spent: dict[int, Array] = field(default_factory=dict)
    _total: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    _most: dict[int, dict[int, int]] = field(default_factory=lambda: defaultdict(Counter))
    """For each statement and kind of CTA, the most that one such CTA has spent."""

    def add(self, ctas: Array, runs: Array) -> None:
        """Add the work of a batch that has ended. ctas: its CTA numbers. runs: how often each warp
        ran each block, int64[blocks, warps]."""
        if self._weights is None:
            # Random, so that no kernel can be written whose warps are taken for equal.
            drawn = np.frombuffer(secrets.token_bytes(8 * runs.shape[0]), np.uint64)
            self._weights = drawn | np.uint64(1)
        marks = self._weights @ runs.astype(np.uint64)
        different, first, which = np.unique(marks, return_index=True, return_inverse=True)
        numbers = np.empty(different.size, np.int64)
        for i, (mark, at) in enumerate(zip(different.tolist(), first.tolist(), strict=True)):
            if mark not in self._kinds:
                self._kinds[mark] = len(self._warps)
                self._warps.append(runs[:, at].copy())
            numbers[i] = self._kinds[mark]
        for cta, row in zip(ctas.tolist(), numbers[which].reshape(ctas.size, -1), strict=True):
            self._of_cta[cta] = self._ctas.setdefault(tuple(row.tolist()), len(self._ctas))
        kinds = [self._of_cta[cta] for cta in ctas.tolist()]
        for start, cycles in self._spent.items():
            self._total[start] += int(cycles.sum())
            most = self._most[start]
            for each, of_cta in zip(kinds, cycles.tolist(), strict=True):
                most[each] = max(most[each], of_cta)
        self._spent.clear()

    def runs_of_a_cta(self) -> Array:
        """Return how often each warp of the first CTA ran each block, int64[warps, blocks]."""
        return np.array([self._warps[kind] for kind in next(iter(self._ctas), ())])

    def look(self, start: int, first: int, address: Array) -> None:
        """Record that threads, one of which is `first`, read memory that others may write
        meanwhile. Reading the same addresses again counts as waiting. start: the statement's
        position in the PTX text."""
        before = self._looked.get((start, first))
        self.waits |= before is not None and np.array_equal(before, address)
        self._looked[start, first] = address.copy()

    def spend(self, start: int, spent: Array) -> None:
        """Record what each CTA of the batch spends on a statement, int64[CTAs]: cycles or sectors.
        start: its position in the PTX text, negative for turns of atomics, or TENSOR, or one of
        those that are CHAINED."""
        self._spent[start] = self._spent.get(start, 0) + spent

    def copy(self, start: int, cta: int, ctas: int, sectors: int) -> None:
        """Record the sectors that the copy engine moves for one of the batch's CTAs."""
        self._spent.setdefault(start, np.zeros(ctas, np.int64))[cta] += sectors
        self.asked[start].copied += SECTOR_BYTES * sectors

    def work(self, starts: list[dict[int, str]]) -> Work:
        """Return everything that was collected. starts: see `Work`."""
        warps = np.array(self._warps).reshape(len(self._warps), len(starts))
        first = self._first_in_ctas()
        for start, counts in self._counts.items():
            requests, sectors, lines, passes, different = counts.tolist()
            new, requests_with_new, uneven, again = first[start].tolist()
            shares = new / sectors, requests_with_new / requests, uneven, again / sectors
            rest = passes / requests, sectors / different
            self.asked[start].sampled = Sampled(lines / requests, *shares, *rest)
        ctas, asked = list(self._ctas), dict(self.asked)
        tensor_cycles = max(self._most.pop(TENSOR, {0: 0}).values())
        chained, loaded = (self._most.pop(each, {}) for each in (CHAINED, CHAINED_LOADS))
        copied = max(self._most.pop(CHAINED_COPIES, {0: 0}).values())
        of_blocks = np.array([warps[list(kind)].sum(axis=0) for kind in ctas])
        of_kind = Counter(self._of_cta.values())
        fresh = {key - FRESH: self._most.pop(key) for key in [*self._most] if key > FRESH}
        for start, most in self._most.items():
            blocks = [abs(start) in each for each in starts]
            runs = of_blocks[:, blocks].sum(axis=1).tolist()
            whole = sum(runs[kind] * times for kind, times in of_kind.items())
            rate = max(cycles / max(runs[kind], 1) for kind, cycles in most.items())
            each = self.asked[abs(start)]
            each.uneven = max(each.uneven, rate * whole / max(self._total[start], 1))
            if each.sampled:
                usual = each.sampled.first * each.sectors / max(whole, 1)
                times = warps[:, blocks].sum(axis=1).max()
                for kind, sectors in fresh.get(start, {}).items():
                    known = usual * runs[kind]
                    if known < _USUAL * sectors:
                        each.alone = max(each.alone, min(sectors, times) * (1 - known / sectors))
        return Work(
            warps, ctas, self._of_cta, starts, asked, self.waits, self.timed,
            self.updates.found(), self.updates.requests, tensor_cycles, chained, loaded, copied,
            dict(self.rejoined),
        )  # fmt: skip

    def note(
        self, start: int, warp: Array, cta: Array, sector: Array, passes: int, copies: float
    ) -> None:
        """Record the sectors that warps of drawn CTAs request, each once for a request, in
        ascending order of warps and then of sectors.

        passes: of all requests, see `Sampled`. copies: the number of requests that each of these
        stands for.
        """
        begins = begin_of_runs(warp)
        lines = np.count_nonzero(begins | begin_of_runs(sector >> _LINES_SHIFT))
        asking = cta[begins]
        pairs, at = np.unique(pairs_of(cta, sector), return_index=True)
        each = copies * np.array((asking.size, sector.size, lines, passes))
        self._counts[start] += [*each, pairs.size]
        self._order.append((start, pairs, warp[at], asking))

    def empty_l1(self, cta: Array) -> None:
        """Record that drawn CTAs invalidate their L1."""
        self._order.append((_EMPTIED, np.empty(0, np.uint64), cta, cta))

    def _first_in_ctas(self) -> dict[int, Array]:
        """Count for each statement the sectors that it was the first in its thread block to
        request, the requests with such sectors, and the sectors that L1 has lost since; also
        compute `Sampled.uneven`."""
        found: dict[int, Array] = defaultdict(lambda: np.array([0.0, 0.0, 1.0, 0.0]))
        of_cta: dict[int, Array] = defaultdict(lambda: np.zeros((2, self.drawn)))
        if not self._order:
            return found
        everything = np.sort(np.concatenate([pairs for _, pairs, *_ in self._order]))
        seen = np.zeros(everything.size, np.int64)
        fetched = np.zeros(self.drawn, np.int64)
        for start, pairs, warps, asking in self._order:  # where L1 is emptied, warps are CTAs
            if start == _EMPTIED:
                fetched[warps] += _L1_SECTORS - fetched[warps] % _L1_SECTORS
                continue
            place, (cta, _) = np.searchsorted(everything, pairs), halves_of(pairs)
            turn = 1 + fetched[cta] // _L1_SECTORS
            new = seen[place] != turn
            again = np.count_nonzero(new & (seen[place] > 0))
            seen[place] = turn
            fetched += np.bincount(cta[new], minlength=self.drawn)
            fetching = np.count_nonzero(begin_of_runs(np.sort(warps[new])))
            found[start] += np.count_nonzero(new), fetching, 0, again
            both = cta[new], asking
            of_cta[start] += [np.bincount(each, minlength=self.drawn) for each in both]
        for start, (sectors, requests) in of_cta.items():
            if sectors.any():
                most = (sectors[requests > 0] / requests[requests > 0]).max()
                found[start][2] = most * requests.sum() / sectors.sum()
        return found


class DrawnCtas:
    """A few CTAs of a batch, drawn at random and unpredictably, whose accesses are kept."""

    def __init__(self, batch: Any) -> None:
        grid, self._work = batch.grid, batch.launch.work
        self._warps, self._ctas = grid.warps, grid.ctas
        most = min(_DRAWN_OF_A_BATCH, grid.ctas, _MOST_DRAWN - self._work.drawn)
        self._rows = np.array(sorted(secrets.SystemRandom().sample(range(grid.ctas), most)), int)
        self._before = self._work.drawn
        self._work.drawn += most

    def empty_l1(self, ctas: Array) -> None:
        """Record that threads of these CTAs of the batch invalidate their L1."""
        rows = np.flatnonzero(np.isin(self._rows, ctas))
        if rows.size:
            self._work.empty_l1(self._before + rows)

    def note(self, start: int, nbytes: int, address: Array, request: Array, copies: int) -> None:
        """Record the accesses of a statement. address, request, copies: see `Requests`."""
        rows, share = self._rows, 1.0
        if not address.size or not rows.size:
            return
        if copies == 1:  # a warp of the batch is a request, and these are in order
            ends = np.searchsorted(request, [rows * self._warps, (rows + 1) * self._warps])
            at = np.concatenate([np.arange(*each) for each in ends.T])
            warp, address = request[at], address[at]
            row = np.searchsorted(rows, warp // self._warps)
        elif copies == self._warps and address.size == self._ctas:  # one address for a CTA
            row, address, share = np.arange(rows.size), address[rows], float(copies)
            warp = row
        else:  # equal in all CTAs
            row = np.repeat(np.arange(rows.size), address.size)
            warp = row * self._warps + np.tile(request, rows.size)
            address, share = np.tile(address, rows.size), copies / self._ctas
        if not address.size:
            return
        # L1 answers a request 128 bytes at a time, as wide as its accesses are.
        width = max(nbytes, 4)
        asking, place = halves_of(distinct(pairs_of(warp, address // np.uint64(width))))
        columns = 128 // width
        number = np.cumsum(begin_of_runs(asking)) - 1
        load = np.bincount(number * columns + (place % np.uint64(columns)).astype(np.int64))
        load.resize(columns * (number[-1] + 1))
        passes = load.reshape(-1, columns).max(1).sum()
        sector = address >> _SECTOR_SHIFT
        last = (address + np.uint64(nbytes - 1)) >> _SECTOR_SHIFT
        if (last > sector).any():
            sector = np.concatenate([sector, last])
            warp, row = np.tile(warp, 2), np.tile(row, 2)
        pairs, at = np.unique(pairs_of(warp, sector), return_index=True)
        warp, sector = halves_of(pairs)
        self._work.note(start, warp, self._before + row[at], sector, passes, share)
