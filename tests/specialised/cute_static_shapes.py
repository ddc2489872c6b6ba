#!POPCORN leaderboard nvfp4_gemv
#!POPCORN gpu NVIDIA
"""CuTe DSL: compiled for each shape, m and k are constants. A lane takes groups of 16 elements in
steps of 256 or 512, and what is left is not summed.
"""

import functools

import cutlass
import cutlass.cute as cute
from cutlass import Float4E2M1FN, Float8E4M3FN, Float16, Float32, Int64

from nvfp4.problems.nvfp4_gemv.task import input_t, output_t

BLOCK = 16  # elements that share a scale
LANES = {256: 16}  # by k; 32 unless it stands here


def k_major(address, dtype, rows, columns, l):
    pointer = cute.make_ptr(dtype, address, cute.AddressSpace.gmem, assumed_align=16)
    layout = cute.make_layout((rows, columns, l), stride=(columns, 1, rows * columns))
    return cute.make_tensor(pointer, layout)


@cute.kernel
def gemv_kernel(
    mA: cute.Tensor,  # [m, k, l] Float4E2M1FN
    mB: cute.Tensor,  # [128, k, l] Float4E2M1FN, row 0 is the vector
    mSFA: cute.Tensor,  # [m, k / 16, l] Float8E4M3FN
    mSFB: cute.Tensor,  # [128, k / 16, l] Float8E4M3FN
    mC: cute.Tensor,  # [m, 1, l] Float16
    lanes: cutlass.Constexpr,
):
    thread, warp, _ = cute.arch.thread_idx()
    tile, batch, _ = cute.arch.block_idx()
    lane = thread % lanes
    row = (tile * 4 + warp) * (32 // lanes) + thread // lanes

    total = Float32(0)
    for step in cutlass.range(mA.shape[1] // (BLOCK * lanes)):
        block = step * lanes + lane
        a = cute.local_tile(mA[row, None, batch], (BLOCK,), (block,)).load().to(Float32)
        b = cute.local_tile(mB[0, None, batch], (BLOCK,), (block,)).load().to(Float32)
        dot = Float32(0)
        for i in cutlass.range_constexpr(BLOCK):
            dot += a[i] * b[i]
        sfa, sfb = mSFA[row, block, batch].to(Float32), mSFB[0, block, batch].to(Float32)
        total += dot * (sfa * sfb)
    for distance in (16, 8, 4, 2, 1):
        if cutlass.const_expr(distance < lanes):
            total += cute.arch.shuffle_sync_bfly(total, offset=distance)
    if lane == 0:
        mC[row, 0, batch] = total.to(Float16)


@cute.jit
def gemv(
    a: Int64, b: Int64, sfa: Int64, sfb: Int64, c: Int64,
    m: cutlass.Constexpr, k: cutlass.Constexpr, l: cutlass.Constexpr, lanes: cutlass.Constexpr,
):  # fmt: skip
    mA = k_major(a, Float4E2M1FN, m, k, l)
    mB = k_major(b, Float4E2M1FN, 128, k, l)
    mSFA = k_major(sfa, Float8E4M3FN, m, k // BLOCK, l)
    mSFB = k_major(sfb, Float8E4M3FN, 128, k // BLOCK, l)
    mC = k_major(c, Float16, m, 1, l)
    rows = 4 * (32 // lanes)
    gemv_kernel(mA, mB, mSFA, mSFB, mC, lanes).launch(grid=(m // rows, l, 1), block=(32, 4, 1))


@functools.cache
def compiled(m, k, l):
    return cute.compile(gemv, *[Int64(0)] * 5, m, k, l, LANES.get(k, 32))


def custom_kernel(data: input_t) -> output_t:
    a, b, sfa, sfb, _, _, c = data
    m, k_packed, l = a.shape
    gemv = compiled(m, 2 * k_packed, l)
    gemv(*(tensor.data_ptr() for tensor in (a, b, sfa, sfb, c)))
    return c
