"""What each line of PTX asks of memory, and which level answers: from a few thread blocks.

A sector that a thread block has asked for before comes out of L1, one that another of the sampled
blocks wants too out of L2, all others out of memory.
"""

from __future__ import annotations

import math
import secrets
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nvfp4 import emulator
from nvfp4.emulator import Launch
from nvfp4.emulator.ptx.program import Instruction
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.memory import GlobalMemory
from nvfp4.emulator.state.tally import Requests, Tally

SECTOR_BYTES = 32
_LINE_SHIFT = np.uint64(7)
_SECTOR_SHIFT = np.uint64(5)
_CTA_SHIFT = 48
_MOST_CTAS = 4


@dataclass
class Access:
    """Of one request of a warp on the average. sectors: distinct ones; lines: of 128 bytes; own,
    shared: sectors that come out of memory because no other thread block wants them, and that
    several blocks want; the others come out of L1. own_requests, shared_requests: the share of
    requests that have such sectors. passes: of shared memory. copied: bytes that the copy engine
    moves.
    """

    requests: int = 0
    sectors: float = 0.0
    lines: float = 0.0
    own: float = 0.0
    shared: float = 0.0
    own_requests: float = 1.0
    shared_requests: float = 1.0
    passes: float = 0.0
    copied: float = 0.0


class _Sample(Tally):
    """Sectors in the order in which they were asked for."""

    def __init__(self, blocks: int, warps: int, ctas: int) -> None:
        super().__init__(blocks)
        self._warps, self._ctas = warps, ctas
        self.asked: list[tuple[int, Array, Array]] = []
        self.lines: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
        self.passes: dict[int, list[int]] = defaultdict(lambda: [0, 0])
        self.copies: dict[int, list[int]] = defaultdict(lambda: [0, 0])

    def global_access(
        self,
        instruction: Instruction,
        nbytes: int,
        memory: GlobalMemory,
        asked: Requests,
        sectors: int,
        batch: int,
        reads: bool,
    ) -> None:
        """As Tally, which remembers bytes and not sectors."""
        address = asked.address
        if not address.size:
            return
        request = np.broadcast_to(asked.request, address.shape).astype(np.uint64)
        first = address >> _SECTOR_SHIFT
        last = (address + np.uint64(nbytes - 1)) >> _SECTOR_SHIFT
        touched = first
        if (last > first).any():
            touched = np.concatenate([first, last])
            request = np.concatenate([request, request])
        shift = np.uint64(_CTA_SHIFT)
        pairs = np.unique(request << shift | touched & np.uint64((1 << _CTA_SHIFT) - 1))
        request, touched = pairs >> shift, pairs & np.uint64((1 << _CTA_SHIFT) - 1)
        lines = np.unique(request << shift | touched >> (_LINE_SHIFT - _SECTOR_SHIFT)).size
        count = self.lines[instruction.line]
        count[0] += int(np.unique(request).size) * asked.copies
        count[1] += pairs.size * asked.copies
        count[2] += lines * asked.copies
        self.asked.append((instruction.line, *self._of_ctas(request, touched, asked)))

    def _of_ctas(self, request: Array, sector: Array, asked: Requests) -> tuple[Array, Array]:
        """Each sector with the thread block that asks for it, once each; and the warp that does."""
        shift = np.uint64(_CTA_SHIFT)
        if asked.copies == 1:
            cta, warp = request // np.uint64(self._warps), request
        elif asked.copies == self._warps and asked.address.size == self._ctas:
            cta, warp = request, request
        else:
            every = np.arange(self._ctas, dtype=np.uint64)
            cta = np.repeat(every, sector.size)
            warp, sector = cta, np.tile(sector, self._ctas)
        pairs, first = np.unique(cta << shift | sector, return_index=True)
        return pairs, warp[first]

    def copied(self, instruction: Instruction, address: int, nbytes: int) -> None:
        """As Tally."""
        count = self.copies[instruction.line]
        count[0] += 1
        count[1] += nbytes

    def shared_access(
        self,
        instruction: Instruction,
        nbytes: int,
        address: Array,
        lanes: Array,
        passes: int,
        least: int,
    ) -> None:
        """As Tally."""
        count = self.passes[instruction.line]
        count[0] += int(np.count_nonzero(np.diff(lanes >> 5))) + 1 if lanes.size else 0
        count[1] += passes


def accesses(launch: Launch, drawn: bool = False) -> dict[int, Access]:
    """By line of the PTX. Runs a few thread blocks and leaves memory as it was. drawn: which ones,
    nobody can foresee."""
    ctas = _drawn(launch) if drawn else _spread(launch)
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    samples: list[_Sample] = []

    def sampled(blocks: int, ctas: int) -> _Sample:
        samples.append(_Sample(blocks, -(-threads // 32), ctas))
        return samples[0]

    emulator.sample(launch, ctas, sampled)
    sample = samples[0]
    found: dict[int, Access] = defaultdict(Access)
    for line, (requests, sectors, lines) in sample.lines.items():
        each = found[line]
        each.requests = requests
        each.sectors, each.lines = sectors / requests, lines / requests
    _levels(sample, found)
    for line, (requests, passes) in sample.passes.items():
        found[line].requests = requests
        found[line].passes = passes / max(requests, 1)
    for line, (requests, nbytes) in sample.copies.items():
        found[line].requests = requests
        found[line].copied = nbytes / max(requests, 1)
    return dict(found)


def _spread(launch: Launch) -> Sequence[int]:
    """The first CTAs of a launch, its middle one and its last."""
    total = math.prod(launch.grid)
    return sorted({0, min(1, total - 1), total // 2, total - 1})[:_MOST_CTAS]


def _drawn(launch: Launch) -> Sequence[int]:
    """Two neighbours among the CTAs of a launch, and two others."""
    total = math.prod(launch.grid)
    if total <= _MOST_CTAS:
        return _spread(launch)
    first = secrets.randbelow(total - 1)
    found = {first, first + 1}
    while len(found) < _MOST_CTAS:
        found.add(secrets.randbelow(total))
    return sorted(found)


def _levels(sample: _Sample, found: dict[int, Access]) -> None:
    """Who asks for a sector first in its thread block, and whether other blocks want it."""
    if not sample.asked:
        return
    mask = np.uint64((1 << _CTA_SHIFT) - 1)
    everything = np.unique(np.concatenate([pairs for _, pairs, _ in sample.asked]))
    sectors, wanted = np.unique(everything & mask, return_counts=True)
    seen = np.zeros(everything.size, bool)
    first: dict[int, Array] = defaultdict(lambda: np.zeros(4, np.int64))
    for line, pairs, warps in sample.asked:
        place = np.searchsorted(everything, pairs)
        new = ~seen[place]
        seen[place] = True
        many = wanted[np.searchsorted(sectors, pairs & mask)] > 1
        for kind, chosen in enumerate((new & ~many, new & many)):
            count = int(np.count_nonzero(chosen))
            first[line][kind] += count
            first[line][kind + 2] += np.unique(warps[chosen]).size if count else 0
    for line, (own, shared, owners, sharers) in first.items():
        each = found[line]
        requests = max(each.requests, 1)
        each.own, each.shared = own / requests, shared / requests
        each.own_requests = min(1.0, owners / requests)
        each.shared_requests = min(1.0, sharers / requests)
