#!POPCORN leaderboard nvfp4_gemv
#!POPCORN gpu NVIDIA
"""One thread a row: a loop along k in CuTe's own types, with float32 arithmetic.

The place to begin: no PTX, no shared memory, and every number has the type that it has in the
problem. A block's 16 products are summed first and scaled once. That sum is exact, since the
products are multiples of 0.25 up to 36, so only the scaled sums are rounded.

Slow on purpose: neighbouring threads read rows that are far apart, and a small m leaves most of
the GPU without work. Needs the FP4 conversions of sm_100.
"""

import functools
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float4E2M1FN, Float8E4M3FN, Float16, Float32, Int32, Int64

from task import input_t, output_t

THREADS = 128  # of a CTA, and its rows
BLOCK = 16  # values that share a scale
STEP = 64  # values of a row that a thread loads at a time


def k_major(address: Any, dtype: Any, rows: Any, columns: Any, l: Any, divby: int) -> Any:
    """The tensor [rows, columns, l] at a global address, stored as [l, rows, columns].

    divby divides columns: the compiler needs that, and the alignment, to load 16 bytes at once.
    """
    pointer = cute.make_ptr(dtype, address, cute.AddressSpace.gmem, assumed_align=16)
    columns = cute.assume(Int32(columns), divby=divby)
    layout = cute.make_layout((rows, columns, l), stride=(columns, 1, rows * columns))
    return cute.make_tensor(pointer, layout)


@cute.kernel
def gemv_kernel(
    mA: cute.Tensor,  # [m, k, l] Float4E2M1FN
    mB: cute.Tensor,  # [128, k, l] Float4E2M1FN, row 0 is the vector
    mSFA: cute.Tensor,  # [m, k / 16, l] Float8E4M3FN
    mSFB: cute.Tensor,  # [128, k / 16, l] Float8E4M3FN
    mC: cute.Tensor,  # [m, 1, l] Float16
) -> None:
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, batch = cute.arch.block_idx()
    row = bidx * THREADS + tidx

    total = Float32(0)
    for step in cutlass.range(mA.shape[1] // STEP):
        gA = cute.local_tile(mA[row, None, batch], (STEP,), (step,))
        gB = cute.local_tile(mB[0, None, batch], (STEP,), (step,))
        gSFA = cute.local_tile(mSFA[row, None, batch], (STEP // BLOCK,), (step,))
        gSFB = cute.local_tile(mSFB[0, None, batch], (STEP // BLOCK,), (step,))
        a, b = gA.load().to(Float32), gB.load().to(Float32)
        sfa, sfb = gSFA.load().to(Float32), gSFB.load().to(Float32)
        for j in cutlass.range_constexpr(STEP // BLOCK):
            inner = Float32(0)
            for i in cutlass.range_constexpr(BLOCK * j, BLOCK * (j + 1)):
                inner += a[i] * b[i]
            total += inner * (sfa[j] * sfb[j])
    mC[row, 0, batch] = total.to(Float16)


@cute.jit
def gemv(
    a: Int64,
    b: Int64,
    sfa: Int64,
    sfb: Int64,
    c: Int64,
    m: Int32,
    k_packed: Int32,
    l: Int32,
) -> None:
    """Launch the kernel on tensors at these addresses; k_packed = k / 2, the bytes of a row."""
    mA = k_major(a, Float4E2M1FN, m, 2 * k_packed, l, 64)
    mB = k_major(b, Float4E2M1FN, 128, 2 * k_packed, l, 64)
    mSFA = k_major(sfa, Float8E4M3FN, m, k_packed // 8, l, 4)
    mSFB = k_major(sfb, Float8E4M3FN, 128, k_packed // 8, l, 4)
    mC = k_major(c, Float16, m, 1, l, 1)
    gemv_kernel(mA, mB, mSFA, mSFB, mC).launch(grid=(m // THREADS, 1, l), block=(THREADS, 1, 1))


@functools.cache
def compiled() -> Any:
    """gemv, compiled once for all shapes: sizes and addresses are arguments of each call."""
    return cute.compile(gemv, *[Int64(0)] * 5, *[Int32(0)] * 3)


def custom_kernel(data: input_t) -> output_t:
    a, b, sfa, sfb, _, _, c = data
    compiled()(*(tensor.data_ptr() for tensor in (a, b, sfa, sfb, c)), *a.shape)
    return c
