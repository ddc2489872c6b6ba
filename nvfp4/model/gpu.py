"""What the model knows of a GPU. The files beside this one fill it in, a source for each number."""

from __future__ import annotations

from dataclasses import dataclass

Curve = tuple[tuple[int, float], ...]
"""(bytes in flight on each multiprocessor, GB/s of the whole GPU), in rising order."""


@dataclass(frozen=True)
class Gpu:
    """Clocks in MHz, latencies and intervals in cycles of an SM, unless the name says otherwise.

    arch: what ptxas compiles for. launch_us: what the contest's clock shows for an empty kernel;
    kernel_gap_us: for one more. cta_dispatch_ns: between two CTAs of a grid, on the whole GPU;
    cta_start: until one that follows another on an SM runs. clean, dirty: achieved reads, the
    latter while the L2 has to be written back, which costs dirty_us at first. l2_port_bytes: of one
    SM, a cycle; l2_gbps: of all. l1_lines: of 128 bytes that a load touches, a cycle.
    shared_passes: that an access to shared memory takes beyond those that it needs. barrier: from
    the last warp's arrival. branch: beyond its own stall, if it is taken.

    The rest: for how many cycles a warp instruction keeps a pipe of a scheduler busy. half: f16x2;
    widen: f16 to f32; packed: f32x2; unpack: FP4 or FP8 to f16x2; xu: special functions; tensor:
    mma.sync. tcgen05: how many cycles an NVFP4 product of 128 x 64 x 64 takes an SM.

    low, high: the first and last decile of measured over predicted times, the interval that is
    printed.
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
    dirty_us: float
    dram_latency_ns: float
    l2_latency: int
    l1_latency: int
    shared_latency: int
    l2_port_bytes: float
    l2_gbps: float
    l1_lines: float
    shared_passes: int
    barrier: int
    branch: int
    fma: float
    half: float
    widen: float
    packed: float
    imad: float
    alu: float
    unpack: float
    xu: float
    tensor: float
    tcgen05: float
    low: float
    high: float

    @property
    def cycles_per_ns(self) -> float:
        """Of an SM."""
        return self.clock_mhz / 1e3
