# expect: right
"""A warp loads, a warp multiplies, four warps store: with the pipelines of the library."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass import pipeline
from cutlass.cute.nvgpu import cpasync, tcgen05
from cutlass.cute.runtime import from_dlpack
from cutlass.utils import blackwell_helpers

M, N, TILE_K, STAGES = 128, 32, 64, 2
STAGE_BYTES = (M + N) * TILE_K * 2


@cute.struct
class Storage:
    loads: cute.struct.MemRange[cutlass.Int64, 2 * STAGES]
    sums: cute.struct.MemRange[cutlass.Int64, 2]
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
    bidx, _, _ = cute.arch.block_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    smem = cutlass.utils.SmemAllocator()
    storage = smem.allocate(Storage)
    sA = smem.allocate_tensor(cutlass.Float16, a_layout.outer, 1024, a_layout.inner)
    sB = smem.allocate_tensor(cutlass.Float16, b_layout.outer, 1024, b_layout.inner)

    one = pipeline.CooperativeGroup(pipeline.Agent.Thread)
    loads = pipeline.PipelineTmaUmma.create(
        barrier_storage=storage.loads.data_ptr(),
        num_stages=STAGES,
        producer_group=one,
        consumer_group=one,
        tx_count=STAGE_BYTES,
    )
    sums = pipeline.PipelineUmmaAsync.create(
        barrier_storage=storage.sums.data_ptr(),
        num_stages=1,
        producer_group=one,
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, 128),
    )

    gA = cute.local_tile(mA, (M, TILE_K), (bidx, None))
    gB = cute.local_tile(mB, (N, TILE_K), (0, None))
    gC = cute.local_tile(mC, (M, N), (bidx, 0))
    tiles = cute.size(gA, mode=[2])
    thr_mma = tiled_mma.get_slice(0)
    tCgA, tCgB, tCgC = thr_mma.partition_A(gA), thr_mma.partition_B(gB), thr_mma.partition_C(gC)
    tCrA, tCrB = tiled_mma.make_fragment_A(sA), tiled_mma.make_fragment_B(sB)
    acc = tiled_mma.make_fragment_C(tiled_mma.partition_shape_C((M, N)))
    alone = cute.make_layout(1)
    tAsA, tAgA = cpasync.tma_partition(
        load_a, 0, alone, cute.group_modes(sA, 0, 3), cute.group_modes(tCgA, 0, 3)
    )
    tBsB, tBgB = cpasync.tma_partition(
        load_b, 0, alone, cute.group_modes(sB, 0, 3), cute.group_modes(tCgB, 0, 3)
    )

    meeting = pipeline.NamedBarrier(barrier_id=2, num_threads=160)
    allocator = cutlass.utils.TmemAllocator(
        storage.tmem.data_ptr(), barrier_for_retrieve=meeting, allocator_warp_id=0
    )

    if warp == 5:
        state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, STAGES)
        for tile in range(tiles):
            loads.producer_acquire(state)
            bar = loads.producer_get_barrier(state)
            cute.copy(load_a, tAgA[None, tile], tAsA[None, state.index], tma_bar_ptr=bar)
            cute.copy(load_b, tBgB[None, tile], tBsB[None, state.index], tma_bar_ptr=bar)
            state.advance()
        loads.producer_tail(state)
    elif warp == 4:
        allocator.wait_for_alloc()
        tmem = allocator.retrieve_ptr(cutlass.Float32)
        tCtC = cute.make_tensor(tmem, acc.layout)
        state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
        out_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, 1)
        sums.producer_acquire(out_state)
        tiled_mma.set(tcgen05.Field.ACCUMULATE, False)
        for _ in range(tiles):
            loads.consumer_wait(state)
            for k in cutlass.range_constexpr(TILE_K // 16):
                of_a, of_b = tCrA[None, None, k, state.index], tCrB[None, None, k, state.index]
                cute.gemm(tiled_mma, tCtC, of_a, of_b, tCtC)
                tiled_mma.set(tcgen05.Field.ACCUMULATE, True)
            loads.consumer_release(state)
            state.advance()
        sums.producer_commit(out_state)
    else:
        allocator.allocate(32)
        allocator.wait_for_alloc()
        tmem = allocator.retrieve_ptr(cutlass.Float32)
        tCtC = cute.make_tensor(tmem, acc.layout)
        atom = cute.make_copy_atom(tcgen05.Ld32x32bOp(tcgen05.Repetition.x32), cutlass.Float32)
        load = tcgen05.make_tmem_copy(atom, tCtC)
        tLoaded = load.get_slice(tidx).partition_S(tCtC)
        tStored = load.get_slice(tidx).partition_D(tCgC)
        rC = cute.make_rmem_tensor(tStored.shape, cutlass.Float32)
        in_state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, 1)
        sums.consumer_wait(in_state)
        cute.copy(load, tLoaded, rC)
        cute.arch.fence_view_async_tmem_load()
        sums.consumer_release(in_state)
        cute.autovec_copy(rC, tStored)
        cute.arch.barrier(barrier_id=3, number_of_threads=128)
        allocator.relinquish_alloc_permit()
        allocator.free(tmem)


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
        grid=(2, 1, 1), block=(192, 1, 1)
    )


def run():
    a, b = torch.randint(-2, 3, (2 * M, 256)).half(), torch.randint(-2, 3, (N, 256)).half()
    out = torch.zeros(2 * M, N, device="cuda")
    launch(from_dlpack(a.cuda(), 16), from_dlpack(b.cuda(), 16), from_dlpack(out, 16))
    return out, a.double() @ b.double().T
