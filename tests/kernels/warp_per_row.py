"""A warp a row: each lane takes every 32nd group of 64 values, and shuffles add the lanes up."""

from typing import Any

import cutlass
import cutlass.cute as cute

from kernels.parts import FP4_AS_WORDS, product_sum, run, scaled, word_tensors

WARPS = 4
WORDS = 8  # 64 values, four blocks: before 4.6, E4M3 converts four at a time only


@cute.kernel
def warp_per_row_kernel(
    mA: cute.Tensor,  # [m, k / 8, l] Uint32
    mB: cute.Tensor,  # [128, k / 8, l] Uint32
    mSFA: cute.Tensor,  # [m, k / 16, l] Float8E4M3FN
    mSFB: cute.Tensor,  # [128, k / 16, l] Float8E4M3FN
    mC: cute.Tensor,  # [m, 1, l] Float16
) -> None:
    lane, warp, _ = cute.arch.thread_idx()
    bidx, _, batch = cute.arch.block_idx()
    row = bidx * WARPS + warp
    total = cutlass.Float32(0)
    for group in cutlass.range(lane, mA.shape[1] // WORDS, 32):
        a = cute.local_tile(mA[row, None, batch], (WORDS,), (group,)).load()
        b = cute.local_tile(mB[0, None, batch], (WORDS,), (group,)).load()
        sfa = cute.local_tile(mSFA[row, None, batch], (4,), (group,)).load().to(cutlass.Float32)
        sfb = cute.local_tile(mSFB[0, None, batch], (4,), (group,)).load().to(cutlass.Float32)
        for j in cutlass.range_constexpr(4):
            inner = product_sum(a[2 * j], b[2 * j]) + product_sum(a[2 * j + 1], b[2 * j + 1])
            total += scaled(inner, sfa[j], sfb[j])
    for distance in (16, 8, 4, 2, 1):
        total += cute.arch.shuffle_sync_bfly(total, offset=distance)
    if lane == 0:
        mC[row, 0, batch] = (total * 0.25).to(cutlass.Float16)


@cute.jit
def warp_per_row_gemv(
    a: cute.Pointer,
    b: cute.Pointer,
    sfa: cute.Pointer,
    sfb: cute.Pointer,
    c: cute.Pointer,
    m: cutlass.Int32,
    k: cutlass.Int32,
    l: cutlass.Int32,
) -> None:
    warp_per_row_kernel(*word_tensors(a, b, sfa, sfb, c, m, k, l)).launch(
        grid=(m // WARPS, 1, l), block=(32, WARPS, 1)
    )


def custom_kernel(data: Any) -> Any:
    return run(warp_per_row_gemv, data, FP4_AS_WORDS)
