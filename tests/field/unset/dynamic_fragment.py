#!POPCORN leaderboard nvfp4_gemv
#!POPCORN gpu NVIDIA
# expect: pass may=unset_register
"""Partial sums in a register tensor with an index known only at run time: it lies in local memory.

Eight places, of which k decides how many are ever written; only those are added up.
"""

import cutlass
import cutlass.cute as cute
from cutlass.cute.runtime import make_ptr

SLOTS = 8


@cute.kernel
def kernel(
    mA: cute.Tensor,
    mB: cute.Tensor,
    mSFA: cute.Tensor,
    mSFB: cute.Tensor,
    mC: cute.Tensor,
    k: cutlass.Int32,
):
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, bidz = cute.arch.block_idx()
    row = bidx * cute.arch.block_dim()[0] + tidx

    partial = cute.make_rmem_tensor((SLOTS,), cutlass.Float32)
    tiles = k // 64
    used = cutlass.min(tiles - 3, SLOTS)
    for i in range(used):
        partial[i] = cutlass.Float32(0)
    for tile in range(tiles):
        a = cute.local_tile(mA[row, None, bidz], (64,), (tile,)).load().to(cutlass.Float32)
        b = cute.local_tile(mB[0, None, bidz], (64,), (tile,)).load().to(cutlass.Float32)
        sfa = cute.local_tile(mSFA[row, None, bidz], (4,), (tile,)).load().to(cutlass.Float32)
        sfb = cute.local_tile(mSFB[0, None, bidz], (4,), (tile,)).load().to(cutlass.Float32)
        value = cutlass.Float32(0)
        for j in cutlass.range_constexpr(4):
            dot = cutlass.Float32(0)
            for i in cutlass.range_constexpr(16):
                dot = dot + a[16 * j + i] * b[16 * j + i]
            value = value + dot * (sfa[j] * sfb[j])
        partial[tile % used] = partial[tile % used] + value

    total = cutlass.Float32(0)
    for i in range(used):
        total += partial[i]
    mC[row, 0, bidz] = total.to(cutlass.Float16)


@cute.jit
def run(
    a_ptr, b_ptr, sfa_ptr, sfb_ptr, c_ptr, m: cutlass.Int32, k: cutlass.Int32, l: cutlass.Int32
):
    k64 = cute.assume(k, divby=64)
    ks = cute.assume(k // 16, divby=4)
    mk, nk = cute.assume(m * k, divby=64), cute.assume(128 * k, divby=64)
    ms, ns = cute.assume(m * ks, divby=4), cute.assume(128 * ks, divby=4)
    mA = cute.make_tensor(a_ptr, cute.make_layout((m, k64, l), stride=(k64, 1, mk)))
    mB = cute.make_tensor(b_ptr, cute.make_layout((128, k64, l), stride=(k64, 1, nk)))
    mSFA = cute.make_tensor(sfa_ptr, cute.make_layout((m, ks, l), stride=(ks, 1, ms)))
    mSFB = cute.make_tensor(sfb_ptr, cute.make_layout((128, ks, l), stride=(ks, 1, ns)))
    mC = cute.make_tensor(c_ptr, cute.make_layout((m, 1, l), stride=(1, m, m)))
    kernel(mA, mB, mSFA, mSFB, mC, k).launch(grid=(m // 64, 1, l), block=(64, 1, 1))


gemv = None


def custom_kernel(data):
    global gemv
    a, b, sfa, sfb, _, _, c = data
    fp4, fp8, fp16 = cutlass.Float4E2M1FN, cutlass.Float8E4M3FN, cutlass.Float16
    args = [
        make_ptr(dtype, x.data_ptr(), cute.AddressSpace.gmem, assumed_align=32)
        for dtype, x in [(fp4, a), (fp4, b), (fp8, sfa), (fp8, sfb), (fp16, c)]
    ]
    args += [a.shape[0], 2 * a.shape[1], a.shape[2]]
    if gemv is None:
        gemv = cute.compile(run, *args)
    gemv(*args)
    return c
