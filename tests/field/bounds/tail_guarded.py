# expect: pass
"""96 threads a CTA, a row each: 128 is no multiple of 96, so the last CTA is guarded.

The next tile is loaded while the current one is multiplied, if there is a next one.
"""

import cutlass
import cutlass.cute as cute
from cutlass.cute.runtime import make_ptr

ROWS = 96
TILE = 32


@cute.kernel
def kernel(mA: cute.Tensor, mB: cute.Tensor, mSFA: cute.Tensor, mSFB: cute.Tensor, mC: cute.Tensor):
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, l = cute.arch.block_idx()
    m = mA.shape[0]
    tiles = mA.shape[1] // TILE
    row = bidx * ROWS + tidx
    if row < m:
        acc = cutlass.Float32(0)
        gA = cute.zipped_divide(mA[row, None, l], (TILE,))
        gB = cute.zipped_divide(mB[0, None, l], (TILE,))
        rA = cute.make_rmem_tensor((TILE,), cutlass.Float4E2M1FN)
        rA.store(gA[None, 0].load())
        for tile in range(tiles):
            a = rA.load().to(cutlass.Float32)
            if tile + 1 < tiles:
                rA.store(gA[None, tile + 1].load())
            b = gB[None, tile].load().to(cutlass.Float32)
            for j in cutlass.range_constexpr(2):
                dot = a[16 * j] * b[16 * j]
                for i in cutlass.range_constexpr(1, 16):
                    dot += a[16 * j + i] * b[16 * j + i]
                sfa = mSFA[row, 2 * tile + j, l].to(cutlass.Float32)
                sfb = mSFB[0, 2 * tile + j, l].to(cutlass.Float32)
                acc += dot * (sfa * sfb)
        mC[row, 0, l] = acc.to(cutlass.Float16)


@cute.jit
def gemv(
    pa: cute.Pointer,
    pb: cute.Pointer,
    psfa: cute.Pointer,
    psfb: cute.Pointer,
    pc: cute.Pointer,
    m: cutlass.Int32,
    k: cutlass.Int32,
    l: cutlass.Int32,
):
    k = cute.assume(k, divby=64)
    batch_a, batch_b = cute.assume(m * k, divby=64), 128 * k
    mA = cute.make_tensor(pa, cute.make_layout((m, k, l), stride=(k, 1, batch_a)))
    mB = cute.make_tensor(pb, cute.make_layout((128, k, l), stride=(k, 1, batch_b)))
    s = k // 16
    mSFA = cute.make_tensor(psfa, cute.make_layout((m, s, l), stride=(s, 1, m * s)))
    mSFB = cute.make_tensor(psfb, cute.make_layout((128, s, l), stride=(s, 1, 128 * s)))
    mC = cute.make_tensor(pc, cute.make_layout((m, 1, l), stride=(1, m, m)))
    grid = (cute.ceil_div(m, ROWS), 1, l)
    kernel(mA, mB, mSFA, mSFB, mC).launch(grid=grid, block=(ROWS, 1, 1))


compiled_gemv = None


def custom_kernel(data):
    global compiled_gemv
    a, b, sfa, sfb, sfa_permuted, sfb_permuted, c = data
    m, l, k = a.shape[0], a.shape[2], a.shape[1] * 2
    gmem = cute.AddressSpace.gmem
    pa = make_ptr(cutlass.Float4E2M1FN, a.data_ptr(), gmem, assumed_align=16)
    pb = make_ptr(cutlass.Float4E2M1FN, b.data_ptr(), gmem, assumed_align=16)
    psfa = make_ptr(cutlass.Float8E4M3FN, sfa.data_ptr(), gmem, assumed_align=16)
    psfb = make_ptr(cutlass.Float8E4M3FN, sfb.data_ptr(), gmem, assumed_align=16)
    pc = make_ptr(cutlass.Float16, c.data_ptr(), gmem, assumed_align=16)
    if compiled_gemv is None:
        compiled_gemv = cute.compile(gemv, pa, pb, psfa, psfb, pc, m, k, l)
    compiled_gemv(pa, pb, psfa, psfb, pc, m, k, l)
    return c
