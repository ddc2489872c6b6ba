"""A B200, by what others have measured; nothing here comes from a kernel of ours.

Sources: SA, SemiAnalysisAI/microbench-blackwell; MP, a published measurement of a B200 (latencies,
L2); EX, Hha21/execbench-test; KH, a run log of Kernel-Harness (spans by CUPTI at 1965 MHz); XLA,
its throughput table; QR, ademeure/QuickRunCUDA and its catalogue of pipes (B300).

What is not named here is the H100's, as only our own measurement of that GPU is known, or as others
have found the same: warps, CTAs, registers, shared memory and L1 of an SM (NVIDIA's Blackwell
Tuning Guide), CTAs that start every 0.55 to 0.65 ns (EX), memory_stores of 0.84 (NVIDIA/cccl, pull
request 7391, mul of 2^24 floats), fma, half, packed and imad (XLA, QR), widen and alu (QR), and xu
(CUDA C++ Programming Guide, arithmetic throughput). Spans of launches from the first to the last
cycle, 1.3 to 2.0 us (KH), lack the events; an empty kernel, which reads nothing, ends 0.3 to 0.5 us
later after the contest's flush (KH).
"""

from dataclasses import replace

from nvfp4.model.h100 import H100

_KIB = 1024

B200 = replace(
    H100,
    name="B200",
    arch="sm_100a",
    sms=148,  # two dies (SA)
    clock_mhz=1965,  # under load (SA, KH)
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
    dram_latency_ns=388,  # 762 cycles (MP)
    l2_latency=303,  # MP
    l1_latency=39,  # MP
    l2_gbps=8_400,  # H100's, as many more as there are SMs
    half_takes_both=True,  # XLA, QR
    unpack=2,  # F2FP from e2m1x2 and e4m3x2, together with LOP3 (QR)
    unpack_issue=1.4,  # beside FFMA2, 1.67 of each a cycle and SM where 2 would fit (QR)
    tensor=16,  # mma.sync
    low=0.93,  # scripts.model_error strangers, 102 cases of 35 files of two authors
    high=1.22,
)
