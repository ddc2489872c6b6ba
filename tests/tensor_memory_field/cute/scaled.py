# expect: right
"""A product of NVFP4, 128 x 128 x 256, whose scales go through tensor memory."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.nvgpu import cpasync, tcgen05
from cutlass.cute.runtime import make_ptr
from cutlass.utils import blackwell_helpers, blockscaled_layout

M, N, K = 128, 128, 256
VECTOR = 16
BYTES = (M + N) * K // 2 + (M + N) * K // VECTOR
FP4, FP8 = cutlass.Float4E2M1FN, cutlass.Float8E4M3FN


@cute.struct
class Storage:
    bars: cute.struct.MemRange[cutlass.Int64, 2]
    tmem: cute.struct.MemRange[cutlass.Int32, 1]


@cute.kernel
def kernel(
    tiled_mma: cute.TiledMma,
    loads: list[cute.CopyAtom],
    tensors: list[cute.Tensor],
    mC: cute.Tensor,
    layouts: list,
):
    tidx, _, _ = cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    smem = cutlass.utils.SmemAllocator()
    storage = smem.allocate(Storage)
    full, done = storage.bars.data_ptr(), storage.bars.data_ptr() + 1
    sA = smem.allocate_tensor(FP4, layouts[0].outer, 1024, layouts[0].inner)
    sB = smem.allocate_tensor(FP4, layouts[1].outer, 1024, layouts[1].inner)
    sSFA = smem.allocate_tensor(FP8, layouts[2], 1024)
    sSFB = smem.allocate_tensor(FP8, layouts[3], 1024)

    thr_mma = tiled_mma.get_slice(0)
    tiles = [
        cute.local_tile(each, (rows, K), (0, 0))
        for each, rows in zip(tensors, (M, N, M, N), strict=True)
    ]
    parts = [
        thr_mma.partition_A(tiles[0]),
        thr_mma.partition_B(tiles[1]),
        thr_mma.partition_A(tiles[2]),
        thr_mma.partition_B(tiles[3]),
    ]
    copies = [
        cpasync.tma_partition(
            load,
            0,
            cute.make_layout(1),
            cute.group_modes(shared, 0, 3),
            cute.group_modes(part, 0, 3),
        )
        for load, shared, part in zip(loads, (sA, sB, sSFA, sSFB), parts, strict=True)
    ]
    tCgC = thr_mma.partition_C(mC)
    tCrA, tCrB = tiled_mma.make_fragment_A(sA), tiled_mma.make_fragment_B(sB)
    acc = tiled_mma.make_fragment_C(tiled_mma.partition_shape_C((M, N)))

    if tidx == 0:
        cute.arch.mbarrier_init(full, 1)
        cute.arch.mbarrier_init(done, 1)
        cute.arch.mbarrier_init_fence()
    if warp == 0:
        cute.arch.alloc_tmem(256, storage.tmem.data_ptr())
        cute.arch.relinquish_tmem_alloc_permit()
    cute.arch.sync_threads()
    tmem = cute.arch.retrieve_tmem_ptr(cutlass.Float32, 16, storage.tmem.data_ptr())
    tCtC = cute.make_tensor(tmem, acc.layout)
    of_sfa = cute.recast_ptr(tmem + N, dtype=FP8)
    tCtSFA = cute.make_tensor(
        of_sfa,
        blockscaled_layout.make_tmem_layout_sfa(
            tiled_mma, (M, N, K), VECTOR, cute.select(layouts[2], mode=[0, 1, 2])
        ),
    )
    of_sfb = cute.recast_ptr(tmem + N + 16, dtype=FP8)
    tCtSFB = cute.make_tensor(
        of_sfb,
        blockscaled_layout.make_tmem_layout_sfb(
            tiled_mma, (M, N, K), VECTOR, cute.select(layouts[3], mode=[0, 1, 2])
        ),
    )

    if warp == 0:
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(full, BYTES)
        for i in cutlass.range_constexpr(4):
            to, of = cute.filter_zeros(copies[i][0]), cute.filter_zeros(copies[i][1])
            cute.copy(loads[i], of, to[None, 0], tma_bar_ptr=full)
        cute.arch.mbarrier_wait(full, 0)
        atom = cute.make_copy_atom(tcgen05.Cp4x32x128bOp(tcgen05.CtaGroup.ONE), FP8)
        for shared, scales in ((sSFA, tCtSFA), (sSFB, tCtSFB)):
            compact, target = cute.filter_zeros(shared), cute.filter_zeros(scales)
            copy = tcgen05.make_s2t_copy(atom, target)
            source = copy.get_slice(0).partition_S(compact)
            descriptors = tcgen05.get_s2t_smem_desc_tensor(copy, source)
            cute.copy(
                copy, descriptors[None, None, None, None, 0], copy.get_slice(0).partition_D(target)
            )
        for k in cutlass.range_constexpr(K // 64):
            tiled_mma.set(tcgen05.Field.ACCUMULATE, k > 0)
            tiled_mma.set(tcgen05.Field.SFA, tCtSFA[None, None, k].iterator)
            tiled_mma.set(tcgen05.Field.SFB, tCtSFB[None, None, k].iterator)
            of_a, of_b = tCrA[None, None, k, 0], tCrB[None, None, k, 0]
            cute.gemm(tiled_mma, tCtC, of_a, of_b, tCtC)
        with cute.arch.elect_one():
            tcgen05.commit(done)
    cute.arch.mbarrier_wait(done, 0)

    atom = cute.make_copy_atom(tcgen05.Ld32x32bOp(tcgen05.Repetition.x128), cutlass.Float32)
    load = tcgen05.make_tmem_copy(atom, tCtC)
    tLoaded = load.get_slice(tidx).partition_S(tCtC)
    tStored = load.get_slice(tidx).partition_D(tCgC)
    rC = cute.make_rmem_tensor(tStored.shape, cutlass.Float32)
    cute.copy(load, tLoaded, rC)
    cute.arch.fence_view_async_tmem_load()
    cute.autovec_copy(rC, tStored)
    cute.arch.sync_threads()
    if warp == 0:
        cute.arch.dealloc_tmem(tmem, 256)


@cute.jit
def launch(
    a: cute.Pointer, b: cute.Pointer, sfa: cute.Pointer, sfb: cute.Pointer, out: cute.Pointer
):
    mA = cute.make_tensor(a, cute.make_layout((M, K), stride=(K, 1)))
    mB = cute.make_tensor(b, cute.make_layout((N, K), stride=(K, 1)))
    mSFA = cute.make_tensor(sfa, blockscaled_layout.tile_atom_to_shape_SF((M, K, 1), VECTOR))
    mSFB = cute.make_tensor(sfb, blockscaled_layout.tile_atom_to_shape_SF((N, K, 1), VECTOR))
    mSFA, mSFB = mSFA[None, None, 0], mSFB[None, None, 0]
    mC = cute.make_tensor(out, cute.make_layout((M, N), stride=(N, 1)))
    tiled_mma = blackwell_helpers.make_blockscaled_trivial_tiled_mma(
        FP4,
        FP4,
        tcgen05.OperandMajorMode.K,
        tcgen05.OperandMajorMode.K,
        FP8,
        VECTOR,
        tcgen05.CtaGroup.ONE,
        (M, N),
    )
    tiler = (M, N, K)
    layouts = [
        blackwell_helpers.make_smem_layout_a(tiled_mma, tiler, FP4, 1),
        blackwell_helpers.make_smem_layout_b(tiled_mma, tiler, FP4, 1),
        blockscaled_layout.make_smem_layout_sfa(tiled_mma, tiler, VECTOR, 1),
        blockscaled_layout.make_smem_layout_sfb(tiled_mma, tiler, VECTOR, 1),
    ]
    one = [cute.select(each, mode=[0, 1, 2]) for each in layouts]
    tma = cpasync.CopyBulkTensorTileG2SOp(tcgen05.CtaGroup.ONE)
    atom_a, atom_b = cute.nvgpu.make_tiled_tma_atom_A, cute.nvgpu.make_tiled_tma_atom_B
    made = [
        atom_a(tma, mA, one[0], tiler, tiled_mma),
        atom_b(tma, mB, one[1], tiler, tiled_mma),
        atom_a(tma, mSFA, one[2], tiler, tiled_mma, internal_type=cutlass.Int16),
        atom_b(tma, mSFB, one[3], tiler, tiled_mma, internal_type=cutlass.Int16),
    ]
    loads, tensors = [each[0] for each in made], [each[1] for each in made]
    kernel(tiled_mma, loads, tensors, mC, layouts).launch(grid=(1, 1, 1), block=(128, 1, 1))


def values(codes):
    magnitudes = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    table = torch.cat([magnitudes, -magnitudes]).double()
    return torch.stack([table[codes.int() & 15], table[codes.int() >> 4]], -1).flatten(1)


def tiled(scales):
    """Blocks of 128 x 4, rows 32 apart beside each other."""
    return scales.view(4, 32, K // 64, 4).permute(2, 1, 0, 3).contiguous()


def run():
    a, b = (torch.randint(0, 256, (rows, K // 2), dtype=torch.uint8) for rows in (M, N))
    choice = torch.tensor([0.5, 1, 2])
    sfa, sfb = (choice[torch.randint(0, 3, (rows, K // VECTOR))] for rows in (M, N))
    out = torch.zeros(M, N, device="cuda")
    scales = [tiled(each).to(torch.float8_e4m3fn).view(torch.uint8).cuda() for each in (sfa, sfb)]
    on_device = [a.cuda(), b.cuda(), *scales, out]
    types = (FP4, FP4, FP8, FP8, cutlass.Float32)
    launch(
        *(
            make_ptr(dtype, each.data_ptr(), cute.AddressSpace.gmem, assumed_align=16)
            for dtype, each in zip(types, on_device, strict=True)
        )
    )
    wide = [each.double().repeat_interleave(VECTOR, 1) for each in (sfa, sfb)]
    return out, (values(a) * wide[0]) @ (values(b) * wide[1]).T
