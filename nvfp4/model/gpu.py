"""What the model knows of a GPU. The files beside this one fill it in, a source for each number."""

from __future__ import annotations

from dataclasses import dataclass

Curve = tuple[tuple[int, float], ...]
"""(bytes in flight on each multiprocessor, GB/s of the whole GPU), in rising order."""


@dataclass(frozen=True)
class Gpu:
    """Clocks in MHz, latencies and intervals in cycles of an SM, unless the name says otherwise.

    arch: what ptxas compiles for. launch_us: what the contest's clock shows for an empty kernel.
    cta_dispatch_ns: between two CTAs of a grid, on the whole GPU. clean, dirty: achieved reads, the
    latter while the L2 has to be written back; dirty_bytes: how much is read like that at most.
    intervals: cycles for which a warp instruction keeps a pipe of a scheduler busy. xu: conversions
    and special functions. l2_port_bytes, l1_bytes: a cycle, of one SM. l1_tags: cache lines that a
    load may touch in a cycle. cold_line: what the first warp waits for 128 bytes of code.
    """

    name: str
    arch: str
    sms: int
    clock_mhz: float
    launch_us: float
    kernel_gap_us: float
    cta_dispatch_ns: float
    cta_start: int
    warps: int
    ctas: int
    registers: int
    shared_bytes: int
    reserved_shared_bytes: int
    clean: Curve
    dirty: Curve
    dirty_bytes: int
    dram_latency_ns: float
    l2_latency: int
    l1_latency: int
    shared_latency: int
    l2_port_bytes: float
    l2_gbps: float
    l1_bytes: float
    l1_tags: float
    cold_line: int
    barrier: int
    branch: int
    fma: int
    half: int
    packed: int
    imad: int
    alu: int
    unpack: int
    xu: int
    tensor: int
    uncertainty: float

    @property
    def cycles_per_ns(self) -> float:
        """Of an SM."""
        return self.clock_mhz / 1e3
