"""Parameters of a GPU in the model, and the error of a prediction that is not possible. Each GPU
has its own file, with a source for each number."""

from nvfp4.records.base import Record

Curve = tuple[tuple[int, float], ...]
"""(bytes in flight on each multiprocessor, GB/s of the whole GPU), in ascending order."""


class Gpu(Record):
    """Latencies and intervals are in cycles of an SM, unless the name says otherwise.

    The pipe for multiplications has a heavy and a light half. An interval is the number of cycles
    for which a warp instruction keeps its pipe, or its half of that pipe, busy in one of four
    schedulers.
    """

    name: str
    arch: str  # that ptxas compiles for
    sms: int
    clock_mhz: float
    launch_us: float  # what the contest's clock shows for an empty kernel
    kernel_gap_us: float  # for one more launch
    wait_us: float  # more, where the host has waited for the device before
    cta_dispatch_ns: float  # between two CTAs of a grid, on the whole GPU
    cta_start: int  # from the end of a CTA until the next one on its SM runs
    warps: int  # that an SM holds, as ctas
    ctas: int
    registers: int  # of an SM
    shared_bytes: int  # of an SM
    reserved_shared_bytes: int  # of each CTA, for the system
    l1_bytes: int  # of L1 and shared memory together
    clean: Curve  # achieved reads
    dirty: Curve  # while the L2 has to be written back
    dirty_us: float  # by which that delays the first reads
    dram_latency_ns: float
    l2_latency: int
    l1_latency: int
    shared_latency: int
    l2_port_bytes: float  # of one SM, a cycle
    l2_gbps: float  # of the GPU
    l2_stores: float  # bytes that are loaded from the L2 in the time in which one is stored
    l2_line: float  # bytes of a line for which a store takes time at least
    memory_stores: float  # from memory, where the line was not in the L2
    l1_lines: float  # of 128 bytes that a load touches in different banks, a cycle
    barrier: int  # from the last warp's arrival
    cluster_barrier: int  # as well, without the fence before it
    fence: int  # of all threads of a GPU or a cluster
    bulk: int  # of an SM, between two copies by the copy engine
    atomic_latency: int  # until its result is there
    atomic_ns: float  # between two updates of a word by atomics
    atomic_float_ns: float  # that add to a float
    atomic_sector_ns: float  # between two requests of sectors in the same 512 bytes
    atomics_ns: float  # between two requests of the whole GPU
    branch: int  # of a branch that is taken, beyond its own stall
    fma: float  # either half
    half: float  # f16x2: either half, or both
    half_takes_both: bool
    widen: float  # f16 to f32, the heavy half
    packed: float  # f32x2, both halves
    imad: float  # the heavy half
    alu: float
    unpack: float  # FP4 or FP8 to f16x2, in the ALU
    unpack_issue: float  # for which it keeps the scheduler itself busy
    xu: float  # special functions
    tensor: float  # mma.sync
    low: float  # first decile of measured over predicted times
    high: float  # last decile

    @property
    def cycles_per_ns(self) -> float:
        """Clock of an SM, in cycles per ns."""
        return self.clock_mhz / 1e3


class NoPrediction(Exception):
    """A call has no predicted time; the message says why in a sentence."""
