"""A B200, by what others have measured; nothing here comes from a kernel of ours.

Sources: SA, SemiAnalysisAI/microbench-blackwell; MP, a published measurement of a B200 (latencies,
L2); EX, Hha21/execbench-test; KH, a run log of Kernel-Harness (spans by CUPTI at 1965 MHz); XLA,
its throughput table; QR, ademeure/QuickRunCUDA and its catalogue of pipes (B300); BTG, NVIDIA's
Blackwell Tuning Guide. H100 stands where only our own measurement of that GPU is known.
"""

from nvfp4.model.gpu import Gpu

_KIB = 1024

B200 = Gpu(
    name="B200",
    arch="sm_100a",
    sms=148,  # two dies (SA)
    clock_mhz=1965,  # under load (SA, KH)
    launch_us=3.3,  # H100: spans from the first to the last cycle, 1.3 to 2.0 (KH), lack the events
    kernel_gap_us=2.5,  # H100
    wait_us=8.1,  # H100, cudaDeviceSynchronize between launches of 148 CTAs, 2026-11-27
    cta_dispatch_ns=0.6,  # 0.55 to 0.65 (EX)
    cta_start=515,  # H100
    warps=64,  # BTG
    ctas=32,  # BTG
    registers=65536,  # BTG
    shared_bytes=228 * _KIB,  # BTG
    l1_bytes=256 * _KIB,  # BTG
    reserved_shared_bytes=_KIB,  # BTG
    # LDGSTS of 16 bytes (SA)
    clean=(
        (8 * _KIB, 2680),
        (12 * _KIB, 3780),
        (16 * _KIB, 4790),
        (24 * _KIB, 5930),
        (32 * _KIB, 6550),
        (48 * _KIB, 6690),
    ),
    # After a fill no read is faster than this (EX)
    dirty=((8 * _KIB, 2680), (12 * _KIB, 3780), (16 * _KIB, 4790), (24 * _KIB, 5350)),
    # H100: how much later a read is answered; an empty kernel, which reads nothing, ends 0.3 to 0.5
    # later (KH)
    dirty_us=1.4,
    dram_latency_ns=388,  # 762 cycles (MP)
    l2_latency=303,  # MP
    l1_latency=39,  # MP
    shared_latency=23,  # H100
    l2_port_bytes=80,  # H100
    l2_gbps=8_400,  # H100's, as many more as there are SMs
    l2_stores=1.9,  # H100
    l2_line=72,  # H100
    memory_stores=0.86,  # H100; 0.84 by NVIDIA/cccl, pull request 7391, mul of 2^24 floats
    l1_lines=4,  # H100
    barrier=20,  # H100
    cluster_barrier=95,  # H100
    fence=675,  # H100
    bulk=5,  # H100, as the next ones
    atomic_latency=578,
    atomic_ns=0.73,
    atomic_float_ns=1.76,
    atomic_sector_ns=0.59,
    atomics_ns=0.018,
    branch=8,  # H100
    fma=2,  # 4 warps a cycle and SM, over both halves (XLA, QR)
    half=2,  # half of Hopper's (XLA, QR)
    half_takes_both=True,
    widen=2,  # QR
    packed=2,  # f32x2 (XLA)
    imad=2,  # XLA, QR
    alu=2,  # LOP3, PRMT, SHF, IADD3, SEL together (QR)
    unpack=2,  # F2FP from e2m1x2 and e4m3x2, together with LOP3 (QR)
    unpack_issue=1.4,  # beside FFMA2, 1.67 of each a cycle and SM where 2 would fit (QR)
    xu=8,  # 16 lanes a cycle and SM (CUDA C++ Programming Guide, arithmetic throughput)
    tensor=16,  # mma.sync
    low=0.91,  # scripts.model_error strangers, 96 cases of 33 files of two authors
    high=1.19,
)
