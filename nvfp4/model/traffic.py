"""The memory level that serves the requests of each statement, from what `emulator.work` counts."""

from dataclasses import dataclass

from nvfp4.emulator.work import SECTOR_BYTES, Asked, Sampled


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


def access(asked: Asked) -> Access:
    """Return the accesses of a statement."""
    if asked.copied:
        fresh = min(asked.copied, asked.fresh * SECTOR_BYTES)
        return Access(requests=asked.requests, copied=asked.copied, copied_fresh=fresh)
    sampled = asked.sampled or Sampled(asked.sectors / 4 / max(asked.requests, 1), 1.0, 1.0)
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
