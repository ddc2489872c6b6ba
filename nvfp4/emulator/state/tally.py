"""Memory requests of each instruction of a launch, and where warps diverge. Kept on request.

Lines of source, not instructions, remember which bytes they have touched: an unrolled loop has
hundreds of loads at one line.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import field
from itertools import pairwise

import numpy as np

from nvfp4.emulator.loops import loop
from nvfp4.emulator.ptx.syntax import Instruction
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.memory import GlobalMemory
from nvfp4.emulator.state.native import BANKS, Visited
from nvfp4.records.base import Record

WARP = 32

Place = tuple[str, int] | int
"""(file, line) of the user's source, or the line of PTX where that is not known."""


class BankConflict(Record):
    """The bank conflicts of one request to shared memory."""

    ways: int
    """Passes of the request's widest part."""
    bank: int
    """The bank that was hit most often."""
    lanes: tuple[int, ...]


class SiteTally(Record, frozen=False):
    """Counts of one instruction."""

    nbytes: int = 0
    """Bytes at each address."""
    requests: int = 0
    """Accesses of a warp, each counted once."""
    sectors: int = 0
    """Distinct 32-byte sectors within each request."""
    least_sectors: int = 0
    """Sectors that as many contiguous bytes would need."""
    passes: int = 0
    """Passes of shared memory."""
    least_passes: int = 0
    """Passes of shared memory without bank conflicts."""
    repeats: int = 0
    """Requests for the addresses that the same threads requested the last time."""
    moves: int = 0
    """Requests for other addresses than the last time."""
    stride_bytes: int | None = None
    """Distance between the addresses of neighbouring threads; None if no two neighbours access
    memory."""
    divergences: int = 0
    """Warps whose threads went different ways."""
    tensor_products: int = 0
    """Products of tensor cores."""
    tensor_cycles: int = 0
    """Cycles for which these keep tensor cores busy."""
    tensor_bytes: int = 0
    """Bytes to and from tensor memory."""
    conflict: BankConflict | None = None
    last: tuple[int, Array] | None = field(default=None, repr=False)


class Requests(Record, frozen=False):
    """Flat addresses, and the requests of warps that they belong to."""

    address: Array
    request: Array
    """The request of each address; equal neighbours belong to one request."""
    copies: int
    """Number of requests of the group that each of these stands for."""
    lane: Callable[[int], int]
    """Converts a position in the arrays to a lane number of the batch."""


class Touched(Record, frozen=False):
    """The bytes of a buffer that a line reads."""

    name: str
    bits: Array
    """A bit for each byte of the buffer: whether it was read."""
    requested: int = 0
    """Bytes read by all requests, where a request counts each byte once."""

    @property
    def distinct(self) -> int:
        """Number of bytes read at least once."""
        return int(np.bitwise_count(self.bits).sum())


class Tally:
    """Counts by instruction (`sites`, by identity), and what lines have read of each buffer.

    lanes: active lanes, summed over the warps that ran each block: int64[blocks].
    """

    def __init__(self, blocks: int) -> None:
        self.lanes = np.zeros(blocks, np.int64)
        self.read: dict[tuple[Place, int], Touched] = {}
        self._sites: dict[int, SiteTally] = defaultdict(SiteTally)

    def site(self, instruction: Instruction) -> SiteTally:
        """Return the counts of an instruction, which must live as long as the tally."""
        return self._sites[id(instruction)]

    def global_access(
        self, instruction: Instruction, nbytes: int, memory: GlobalMemory, asked: Requests,
        sectors: int, batch: int, reads: bool
    ) -> None:  # fmt: skip
        """Record accesses of `nbytes` each. sectors: of all requests together. batch: identifies
        the batch."""
        address, request, copies = asked.address, asked.request, asked.copies
        if not address.size:
            return
        site = self.site(instruction)
        requests, least, distinct = _request_totals(address, request, nbytes)
        site.nbytes = nbytes
        site.requests += requests * copies
        site.sectors += sectors * copies
        site.least_sectors += least * copies
        if site.stride_bytes is None:
            site.stride_bytes = _stride(address, request)
        if not reads:
            return
        if site.last is not None and site.last[0] == batch:
            same = bool(np.array_equal(site.last[1], address))
            site.repeats += requests * copies * same
            site.moves += requests * copies * (not same)
        site.last = (batch, address.copy())
        first, last = (memory.nearest(int(each)) for each in (address.min(), address.max()))
        if first is None or last is None or first[0] is not last[0]:
            return  # one load that reads several buffers: nothing is said about it
        buffer = first[0]
        key = (place_of(instruction), buffer.address)
        if key not in self.read:
            bits = np.zeros((buffer.nbytes + 63) // 8, np.uint8)
            self.read[key] = Touched(buffer.name, bits)
        self.read[key].requested += distinct * copies
        _mark_bytes(self.read[key].bits, address, np.uint64(buffer.address), nbytes)

    def copied(self, instruction: Instruction, address: int, nbytes: int) -> None:
        """Count a copy of `nbytes` contiguous bytes of global memory by the copy engine."""
        site = self.site(instruction)
        sectors = ((address + nbytes - 1) >> 5) - (address >> 5) + 1
        site.nbytes = nbytes
        site.requests += 1
        site.sectors += sectors
        site.least_sectors += sectors

    def multiplied(self, instruction: Instruction, cycles: int) -> None:
        """Count a product that keeps a tensor core busy for `cycles`."""
        site = self.site(instruction)
        site.tensor_products += 1
        site.tensor_cycles += cycles

    def shared_access(
        self, instruction: Instruction, nbytes: int, address: Array, lanes: Array, visited: Visited
    ) -> None:
        """Record accesses to shared memory by these lanes of the batch, and the passes they
        took."""
        site = self.site(instruction)
        site.nbytes = nbytes
        site.requests += visited.requests
        site.passes += visited.passes
        site.least_passes += visited.least_passes
        if visited.passes > visited.least_passes and site.conflict is None:
            site.conflict = _worst(address, lanes, nbytes)


def place_of(instruction: Instruction) -> Place:
    """(file, line) of the user's source, or the line of PTX where that is not known."""
    user = instruction.user
    return (user.file, user.line) if user else instruction.line


def _stride(address: Array, request: Array) -> int | None:
    """The usual distance of neighbours in the first request."""
    first = address[request == request[0]][:WARP]
    if first.size < 2:
        return None
    values, counts = np.unique(np.abs(np.diff(first.astype(np.int64))), return_counts=True)
    if values[0] == 0 and values.size > 1:
        values, counts = values[1:], counts[1:]
    return int(values[np.argmax(counts)])


def _worst(address: Array, lanes: Array, nbytes: int) -> BankConflict | None:
    """Return the conflict of the request with the most passes among the first few."""
    found: list[BankConflict] = []
    lanes_a_pass = 32 if nbytes <= 4 else 16 if nbytes <= 8 else 8
    stops = np.flatnonzero(np.diff(lanes >> 5, append=-1)) + 1
    for start, stop in pairwise([0, *stops[:16].tolist()]):
        for begin in range(start, stop, lanes_a_pass):
            part = slice(begin, min(begin + lanes_a_pass, stop))
            found += _conflict(address[part].tolist(), (lanes[part] & 31).tolist(), nbytes)
    return max(found, key=lambda each: each.ways, default=None)


def _conflict(address: Sequence[int], lanes: Sequence[int], nbytes: int) -> list[BankConflict]:
    """Return the bank conflict of one pass of shared memory; none if each bank serves one word."""
    words: list[dict[int, int]] = [{} for _ in range(BANKS)]
    for at, lane in zip(address, lanes, strict=True):
        for word in range(at >> 2, (at + nbytes + 3) >> 2):
            words[word % BANKS].setdefault(word, lane)
    bank = max(range(BANKS), key=lambda number: len(words[number]))
    ways = len(words[bank])
    conflict = BankConflict(ways, bank, tuple(sorted(set(words[bank].values()))))
    return [conflict] if ways > 1 else []


@loop
def _request_totals(address, request, nbytes):  # type: ignore[no-untyped-def]
    """Return the number of requests, the fewest sectors that could hold their bytes, and those
    bytes, which each request counts once.

    Different addresses of a request do not overlap, since they are multiples of the size.
    """
    seen = np.empty(32, np.uint64)
    requests = 0
    least = 0
    total = 0
    i = 0
    n = address.shape[0]
    while i < n:
        current = request[i]
        count = 0
        while i < n and request[i] == current:
            known = False
            for j in range(count - 1, -1, -1):
                if seen[j] == address[i]:
                    known = True
                    break
            if not known and count < 32:
                seen[count] = address[i]
                count += 1
            i += 1
        requests += 1
        least += (count * nbytes + 31) // 32
        total += count * nbytes
    return requests, least, total


@loop
def _mark_bytes(bits, address, start, nbytes):  # type: ignore[no-untyped-def]
    """Set a bit for each byte of the accesses."""
    for i in range(address.shape[0]):
        first = np.int64(address[i] - start)
        for byte in range(first, first + nbytes):
            bits[byte >> 3] |= np.uint8(1 << (byte & 7))
