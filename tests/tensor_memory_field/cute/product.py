# expect: right
"""TMA fills two stages of swizzled tiles, tcgen05 multiplies them, 128 x 64 x 256 in float16."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.nvgpu import cpasync, tcgen05
from cutlass.cute.runtime import from_dlpack
from cutlass.utils import blackwell_helpers

M, N, TILE_K, STAGES = 128, 64, 64, 2
STAGE_BYTES = (M + N) * TILE_K * 2


@cute.struct
class Storage:
    bars: cute.struct.MemRange[cutlass.Int64, 2 * STAGES + 1]
    tmem: cute.struct.MemRange[cutlass.Int32, 1]


@cute.kernel
def kernel(
    tiled_mma: cute.TiledMma,
    load_a: cute.CopyAtom,
    mA: cute.Tensor,
    load_b: cute.CopyAtom,
    mB: cute.Tensor,
    mC: cute.Tensor,
    a_layout: cute.ComposedLayout,
    b_layout: cute.ComposedLayout,
):
    tidx, _, _ = cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    smem = cutlass.utils.SmemAllocator()
    storage = smem.allocate(Storage)
    sA = smem.allocate_tensor(cutlass.Float16, a_layout.outer, 1024, a_layout.inner)
    sB = smem.allocate_tensor(cutlass.Float16, b_layout.outer, 1024, b_layout.inner)
    full = storage.bars.data_ptr()
    empty = full + STAGES
    done = empty + STAGES

    gA = cute.local_tile(mA, (M, TILE_K), (0, None))
    gB = cute.local_tile(mB, (N, TILE_K), (0, None))
    tiles = cute.size(gA, mode=[2])
    thr_mma = tiled_mma.get_slice(0)
    tCgA, tCgB, tCgC = thr_mma.partition_A(gA), thr_mma.partition_B(gB), thr_mma.partition_C(mC)
    tCrA, tCrB = tiled_mma.make_fragment_A(sA), tiled_mma.make_fragment_B(sB)
    acc = tiled_mma.make_fragment_C(tiled_mma.partition_shape_C((M, N)))
    one = cute.make_layout(1)
    tAsA, tAgA = cpasync.tma_partition(
        load_a, 0, one, cute.group_modes(sA, 0, 3), cute.group_modes(tCgA, 0, 3)
    )
    tBsB, tBgB = cpasync.tma_partition(
        load_b, 0, one, cute.group_modes(sB, 0, 3), cute.group_modes(tCgB, 0, 3)
    )

    if tidx == 0:
        for i in cutlass.range_constexpr(2 * STAGES + 1):
            cute.arch.mbarrier_init(full + i, 1)
        cute.arch.mbarrier_init_fence()
    if warp == 0:
        cute.arch.alloc_tmem(64, storage.tmem.data_ptr())
        cute.arch.relinquish_tmem_alloc_permit()
    cute.arch.sync_threads()
    tmem = cute.arch.retrieve_tmem_ptr(cutlass.Float32, 16, storage.tmem.data_ptr())
    tCtC = cute.make_tensor(tmem, acc.layout)

    if warp == 0:
        for tile in range(tiles):
            stage = tile % STAGES
            if tile >= STAGES:
                cute.arch.mbarrier_wait(empty + stage, (tile // STAGES - 1) % 2)
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(full + stage, STAGE_BYTES)
            cute.copy(load_a, tAgA[None, tile], tAsA[None, stage], tma_bar_ptr=full + stage)
            cute.copy(load_b, tBgB[None, tile], tBsB[None, stage], tma_bar_ptr=full + stage)
    elif warp == 1:
        for tile in range(tiles):
            stage = tile % STAGES
            cute.arch.mbarrier_wait(full + stage, tile // STAGES % 2)
            for k in cutlass.range_constexpr(TILE_K // 16):
                tiled_mma.set(tcgen05.Field.ACCUMULATE, tile + k > 0)
                of_a, of_b = tCrA[None, None, k, stage], tCrB[None, None, k, stage]
                cute.gemm(tiled_mma, tCtC, of_a, of_b, tCtC)
            with cute.arch.elect_one():
                tcgen05.commit(empty + stage)
        with cute.arch.elect_one():
            tcgen05.commit(done)
    cute.arch.mbarrier_wait(done, 0)

    atom = cute.make_copy_atom(tcgen05.Ld32x32bOp(tcgen05.Repetition.x64), cutlass.Float32)
    load = tcgen05.make_tmem_copy(atom, tCtC)
    tLoaded = load.get_slice(tidx).partition_S(tCtC)
    tStored = load.get_slice(tidx).partition_D(tCgC)
    rC = cute.make_rmem_tensor(tStored.shape, cutlass.Float32)
    cute.copy(load, tLoaded, rC)
    cute.arch.fence_view_async_tmem_load()
    cute.autovec_copy(rC, tStored)
    cute.arch.sync_threads()
    if warp == 0:
        cute.arch.dealloc_tmem(tmem, 64)


@cute.jit
def launch(mA: cute.Tensor, mB: cute.Tensor, mC: cute.Tensor):
    op = tcgen05.MmaF16BF16Op(
        cutlass.Float16,
        cutlass.Float32,
        (M, N, 16),
        tcgen05.CtaGroup.ONE,
        tcgen05.OperandSource.SMEM,
        tcgen05.OperandMajorMode.K,
        tcgen05.OperandMajorMode.K,
    )
    tiled_mma = cute.make_tiled_mma(op)
    tiler = (M, N, TILE_K)
    a_layout = blackwell_helpers.make_smem_layout_a(tiled_mma, tiler, cutlass.Float16, STAGES)
    b_layout = blackwell_helpers.make_smem_layout_b(tiled_mma, tiler, cutlass.Float16, STAGES)
    tma = cpasync.CopyBulkTensorTileG2SOp(tcgen05.CtaGroup.ONE)
    one_a = cute.select(a_layout, mode=[0, 1, 2])
    one_b = cute.select(b_layout, mode=[0, 1, 2])
    load_a, tma_a = cute.nvgpu.make_tiled_tma_atom_A(tma, mA, one_a, tiler, tiled_mma)
    load_b, tma_b = cute.nvgpu.make_tiled_tma_atom_B(tma, mB, one_b, tiler, tiled_mma)
    kernel(tiled_mma, load_a, tma_a, load_b, tma_b, mC, a_layout, b_layout).launch(
        grid=(1, 1, 1), block=(128, 1, 1)
    )


def run():
    a, b = torch.randint(-2, 3, (M, 256)).half(), torch.randint(-2, 3, (N, 256)).half()
    out = torch.zeros(M, N, device="cuda")
    launch(from_dlpack(a.cuda(), 16), from_dlpack(b.cuda(), 16), from_dlpack(out, 16))
    return out, a.double() @ b.double().T
