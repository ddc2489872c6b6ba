"""The memory level that serves the requests of each statement.

How many sectors a statement asks for, and how many of them nothing in the launch had touched
before, is counted over the whole launch (`emulator.work`). What L1 answers depends on the
order within a thread block: it is taken from a few thread blocks that run once more. A sector that
its block has asked for before comes out of L1.
"""

import math
import secrets
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nvfp4 import emulator
from nvfp4.emulator import Launch
from nvfp4.emulator.ptx.syntax import Instruction
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.memory import GlobalMemory
from nvfp4.emulator.state.tally import Requests, Tally
from nvfp4.emulator.work import Asked

SECTOR_BYTES = 32
_LINE_SHIFT = np.uint64(7)
_SECTOR_SHIFT = np.uint64(5)
_CTA_SHIFT = 48
_MOST_CTAS = 4


@dataclass(frozen=True)
class Sampled:
    """A statement's accesses in the sampled thread blocks.

    lines: lines of 128 bytes in each request. first: the share of its sectors that the thread block
    had not requested before; first_requests: the share of its requests that have such sectors.
    """

    lines: float
    first: float
    first_requests: float


@dataclass(frozen=True)
class Access:
    """The memory accesses of a statement over a launch.

    requests: of warps. memory, l2: bytes that come from there; memory_requests, l2_requests: how
    many requests fetch some. lines: lines of 128 bytes in each request. passes: of shared memory,
    in all. copied: bytes that the copy engine moves, of which copied_fresh come from memory.
    """

    requests: int = 0
    memory: float = 0.0
    l2: float = 0.0
    memory_requests: float = 0.0
    l2_requests: float = 0.0
    lines: float = 1.0
    shared_requests: int = 0
    passes: int = 0
    copied: int = 0
    copied_fresh: int = 0


def access(asked: Asked, sampled: Sampled | None) -> Access:
    """Return the accesses of a statement. sampled: None if no sampled thread block executed it."""
    if asked.copied:
        fresh = min(asked.copied, asked.fresh * SECTOR_BYTES)
        return Access(requests=asked.requests, copied=asked.copied, copied_fresh=fresh)
    sampled = sampled or Sampled(asked.sectors / 4 / max(asked.requests, 1), 1.0, 1.0)
    first = max(sampled.first * asked.sectors, asked.fresh)
    fetching = sampled.first_requests * asked.requests
    return Access(
        requests=asked.requests,
        memory=asked.fresh * SECTOR_BYTES,
        l2=(first - asked.fresh) * SECTOR_BYTES,
        memory_requests=fetching * asked.fresh / first if first else 0.0,
        l2_requests=fetching * (1 - asked.fresh / first) if first else 0.0,
        lines=sampled.lines,
        shared_requests=asked.shared_requests,
        passes=asked.passes,
    )


class _Sample(Tally):
    """Record the sectors in the order in which they are requested."""

    def __init__(self, blocks: int, warps: int, ctas: int) -> None:
        super().__init__(blocks)
        self._warps, self._ctas = warps, ctas
        self.asked: list[tuple[int, Array, Array]] = []
        self.counts: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])

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
        """Record sectors, where Tally records bytes."""
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
        count = self.counts[instruction.start]
        count[0] += int(np.unique(request).size) * asked.copies
        count[1] += pairs.size * asked.copies
        count[2] += lines * asked.copies
        self.asked.append((instruction.start, *self._of_ctas(request, touched, asked)))

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


def sampled(launch: Launch) -> dict[int, Sampled]:
    """Sample accesses by statement (its position in the PTX text). Runs a few thread blocks, drawn
    anew in each call, and does not change memory. Raises EmulatorError."""
    threads = math.prod(launch.block)
    samples: list[_Sample] = []

    def new_sample(blocks: int, ctas: int) -> _Sample:
        samples.append(_Sample(blocks, -(-threads // 32), ctas))
        return samples[0]

    emulator.sample(launch, _drawn(launch), new_sample)
    sample = samples[0]
    first = _first_in_ctas(sample)
    return {
        start: Sampled(lines / requests, first[start][0] / sectors, first[start][1] / requests)
        for start, (requests, sectors, lines) in sample.counts.items()
    }


def _drawn(launch: Launch) -> Sequence[int]:
    """Two neighbours among the CTAs of a launch, and two others. No kernel can foresee which."""
    total = math.prod(launch.grid)
    if total <= _MOST_CTAS:
        return range(total)
    first = secrets.randbelow(total - 1)
    found = {first, first + 1}
    while len(found) < _MOST_CTAS:
        found.add(secrets.randbelow(total))
    return sorted(found)


def _first_in_ctas(sample: _Sample) -> dict[int, tuple[int, int]]:
    """Count, by statement, the sectors that it was the first in its thread block to request, and
    the requests with such sectors."""
    found: dict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))
    if not sample.asked:
        return found
    everything = np.unique(np.concatenate([pairs for _, pairs, _ in sample.asked]))
    seen = np.zeros(everything.size, bool)
    for start, pairs, warps in sample.asked:
        place = np.searchsorted(everything, pairs)
        new = ~seen[place]
        seen[place] = True
        sectors, requests = found[start]
        count = int(np.count_nonzero(new))
        fetching = int(np.unique(warps[new]).size) if count else 0
        found[start] = sectors + count, requests + fetching
    return found
