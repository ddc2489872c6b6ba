# expect: pass
"""TMA with a swizzle of 128 bytes into a tile that is aligned to 128 bytes, not to 1024.

The swizzle is made of address bits, in the copy and in the reads alike, so that is enough.
"""

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import make_ptr
from cutlass.utils import SmemAllocator

ROWS = 64
WORDS = 32  # 128 bytes, 256 values
ALIGNMENT = 128


@cute.kernel
def kernel(
    load_a: cute.CopyAtom,
    tma_a: cute.Tensor,
    mB: cute.Tensor,
    mSFA: cute.Tensor,
    mSFB: cute.Tensor,
    mC: cute.Tensor,
    smem_layout: cute.ComposedLayout,
):
    tidx, _, _ = cute.arch.thread_idx()
    bidx, l, _ = cute.arch.block_idx()
    row = bidx * ROWS + tidx
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    smem = SmemAllocator()
    bar = smem.allocate_array(cutlass.Int64, 1)
    sA = smem.allocate_tensor(
        cutlass.Uint32, smem_layout.outer, byte_alignment=ALIGNMENT, swizzle=smem_layout.inner
    )
    if tidx == 0:
        cute.arch.mbarrier_init(bar, 1)
    cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()

    gA = cute.local_tile(tma_a, (ROWS, WORDS, 1), (bidx, None, l))
    tS, tG = cpasync.tma_partition(
        load_a, 0, cute.make_layout(1), cute.group_modes(sA, 0, 3), cute.group_modes(gA, 0, 3)
    )
    acc = cutlass.Float32(0)
    for step in range(mSFA.shape[1] // 16):
        if warp == 0:
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(bar, ROWS * WORDS * 4)
            cute.copy(load_a, tG[None, step], tS, tma_bar_ptr=bar)
        cute.arch.mbarrier_wait(bar, step % 2)
        for j in cutlass.range_constexpr(16):
            words = cute.make_rmem_tensor((2,), cutlass.Uint32)
            words[0] = sA[tidx, 2 * j, 0]
            words[1] = sA[tidx, 2 * j + 1, 0]
            a = cute.recast_tensor(words, cutlass.Float4E2M1FN).load().to(cutlass.Float32)
            b = cute.local_tile(mB[0, None, l], (16,), (step * 16 + j,)).load().to(cutlass.Float32)
            dot = (a * b).reduce(cute.ReductionOp.ADD, 0.0, 0)
            sfa = mSFA[row, step * 16 + j, l].to(cutlass.Float32)
            acc += dot * (sfa * mSFB[0, step * 16 + j, l].to(cutlass.Float32))
        cute.arch.sync_threads()
    mC[row, l] = acc.to(cutlass.Float16)


@cute.jit
def gemv(a, b, sfa, sfb, c, m: cutlass.Int32, k: cutlass.Int32, l: cutlass.Int32):
    w = cute.assume(k // 8, divby=32)
    k = cute.assume(k, divby=256)
    s = k // 16
    mA = cute.make_tensor(
        a, cute.make_layout((m, w, l), stride=(w, 1, cute.assume(m * w, divby=32)))
    )
    mB = cute.make_tensor(b, cute.make_layout((128, k, l), stride=(k, 1, 128 * k)))
    mSFA = cute.make_tensor(sfa, cute.make_layout((m, s, l), stride=(s, 1, m * s)))
    mSFB = cute.make_tensor(sfb, cute.make_layout((128, s, l), stride=(s, 1, 128 * s)))
    mC = cute.make_tensor(c, cute.make_layout((m, l)))
    smem_layout = cute.make_composed_layout(
        cute.make_swizzle(3, 4, 3), 0, cute.make_layout((ROWS, WORDS, 1), stride=(WORDS, 1, 0))
    )
    load_a, tma_a = cpasync.make_tiled_tma_atom(
        cpasync.CopyBulkTensorTileG2SOp(), mA, smem_layout, (ROWS, WORDS, 1)
    )
    kernel(load_a, tma_a, mB, mSFA, mSFB, mC, smem_layout).launch(
        grid=(m // ROWS, l, 1), block=(ROWS, 1, 1)
    )


_compiled = None


def custom_kernel(data):
    global _compiled
    a, b, sfa, sfb, _, _, c = data
    types = [cutlass.Uint32, cutlass.Float4E2M1FN, cutlass.Float8E4M3FN, cutlass.Float8E4M3FN]
    pointers = [
        make_ptr(dtype, tensor.data_ptr(), cute.AddressSpace.gmem, assumed_align=16)
        for dtype, tensor in zip([*types, cutlass.Float16], (a, b, sfa, sfb, c))
    ]
    size = (a.shape[0], a.shape[1] * 2, a.shape[2])
    if _compiled is None:
        _compiled = cute.compile(gemv, *pointers, *size)
    _compiled(*pointers, *size)
    return c
