"""An H100 SXM, by `python -m scripts.microbench` on one (driver 580.159.04, 2026-11-23), but where
another source is named: L, Luo et al., arXiv 2402.13499, table of latencies.
And an H200: its multiprocessors with faster memory.
"""

from dataclasses import replace

from nvfp4.model.gpu import Curve, Gpu

_KIB = 1024

H100 = Gpu(
    name="H100",
    arch="sm_90a",
    sms=132,
    clock_mhz=1980,  # clock_mhz
    launch_us=3.3,  # launches_us, empty
    kernel_gap_us=2.5,  # launches_us, two less empty
    wait_us=8.1,  # H100, cudaDeviceSynchronize between launches of 148 CTAs, 2026-11-27
    cta_dispatch_ns=0.6,  # launches_us, from grid_64x to grid_1024x
    cta_start=515,  # launches_us, a wave of spin_4000 less 4000 cycles
    warps=64,  # CUDA C++ Programming Guide, technical specifications, as the next four
    ctas=32,
    registers=65536,
    shared_bytes=228 * _KIB,
    l1_bytes=256 * _KIB,  # NVIDIA H100 white paper
    reserved_shared_bytes=_KIB,
    # read_gbps
    clean=(
        (1 * _KIB, 331),
        (2 * _KIB, 652),
        (4 * _KIB, 1260),
        (8 * _KIB, 2179),
        (12 * _KIB, 2509),
        (16 * _KIB, 2796),
        (24 * _KIB, 2994),
        (32 * _KIB, 3091),
        (64 * _KIB, 3132),
    ),
    # cold_read_us, contest, from 32 to 256 MiB; and how much later than after a clean flush
    dirty=(
        (1 * _KIB, 331),
        (2 * _KIB, 652),
        (4 * _KIB, 1258),
        (8 * _KIB, 2163),
        (16 * _KIB, 2742),
        (32 * _KIB, 2854),
        (64 * _KIB, 2870),
    ),
    dirty_us=1.4,
    dram_latency_ns=354,  # latency_cycles, memory
    l2_latency=263,  # L
    l1_latency=41,  # L
    shared_latency=23,  # latency_cycles, shared
    l2_port_bytes=80,  # l2_gbps, 4_blocks
    l2_gbps=7500,  # l2_gbps, from 8 to 24 MiB
    l2_stores=1.9,  # 3.9 TB/s where 528 CTAs store again and again (2026-11-28)
    l2_line=72,  # 18 ps where each lane stores to another line, 8 a whole sector (2026-11-28)
    memory_stores=0.86,  # 3.33 TB/s of 32 to 128 MiB after the contest's flush (2026-11-28)
    l1_lines=4,  # 8.2 to 8.5 cycles for 32 lines in 32 banks (2026-11-28)
    barrier=20,  # latency_cycles, barrier
    cluster_barrier=95,  # 770 with a fence, 200 of four CTAs of 128 threads (2026-11-28)
    fence=675,  # with or without a store before it (2026-11-28)
    bulk=5,  # 2.6 ns, copies of 16 to 128 bytes by eight warps, as the next ones (2026-11-26)
    atomic_latency=578,  # a chain of atomics (2026-11-28)
    atomic_ns=0.73,  # 32-bit and 64-bit integers, exchanges
    atomic_float_ns=1.76,  # f16x2, f32, f64
    atomic_sector_ns=0.59,  # a line, a table of 1 KiB
    atomics_ns=0.018,  # lines of each warp's own
    branch=8,  # latency_cycles, branch
    fma=2,  # pipe_cycles with 8 warps a scheduler, as the next ones
    half=2,
    half_takes_both=False,
    widen=2,
    packed=2,
    imad=2,
    alu=2,
    unpack=2.4,
    unpack_issue=1,
    xu=8,
    tensor=8,
    low=0.97,  # scripts.model_error, 276 cases of 46 kernels
    high=1.19,
)

_FASTER = 4.8 / 3.35
"""Memory bandwidth of an H200 over that of an H100, both by their datasheets."""


def _scaled(curve: Curve) -> Curve:
    """Return the curve of a memory that is faster by `_FASTER`, and needs more bytes in flight to
    saturate by the same factor."""
    return tuple((round(nbytes * _FASTER), gbps * _FASTER) for nbytes, gbps in curve)


H200 = replace(
    H100,
    name="H200",
    clean=_scaled(H100.clean),
    dirty=_scaled(H100.dirty),
    low=0.95,  # scripts.model_error, 276 cases of 46 kernels
    high=1.15,
)
