"""A TMA pipeline: bulk tensor copies into four stages, handed over by full and empty mbarriers."""

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import cpasync
from cutlass.utils import SmemAllocator

from kernels.parts import BLOCK, FP4_AS_WORDS, batched, product_sum, run, scaled

ROWS = 128  # a thread each
WORDS = 8  # 64 values of each row a stage
STAGES = 4
STAGE_BYTES = 4 * WORDS * (ROWS + 1)


@cute.kernel
def tma_kernel(
    load_a: cute.CopyAtom,
    tA: cute.Tensor,  # [m, k / 8, l] coordinates
    load_b: cute.CopyAtom,
    tB: cute.Tensor,  # [128, k / 8, l] coordinates
    mSFA: cute.Tensor,  # [m, k / 16, l] Float8E4M3FN
    mSFB: cute.Tensor,  # [128, k / 16, l] Float8E4M3FN
    mC: cute.Tensor,  # [m, 1, l] Float16
) -> None:
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, batch = cute.arch.block_idx()
    row = bidx * ROWS + tidx
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    steps = mSFA.shape[1] // 4

    smem = SmemAllocator()
    full = smem.allocate_array(cutlass.Int64, STAGES)
    empty = smem.allocate_array(cutlass.Int64, STAGES)
    sA = smem.allocate_tensor(
        cutlass.Uint32,
        cute.make_layout((ROWS, WORDS, STAGES), stride=(WORDS, 1, ROWS * WORDS)),
        byte_alignment=128,
    )
    sB = smem.allocate_tensor(
        cutlass.Uint32,
        cute.make_layout((1, WORDS, STAGES), stride=(0, 1, 32)),
        byte_alignment=128,
    )
    if tidx == 0:
        for stage in cutlass.range_constexpr(STAGES):
            cute.arch.mbarrier_init(full + stage, 1)
            cute.arch.mbarrier_init(empty + stage, ROWS)
        cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()

    gA = cute.local_tile(tA, (ROWS, WORDS, 1), (bidx, None, batch))  # (ROWS, WORDS, 1, steps)
    gB = cute.local_tile(tB, (1, WORDS, 1), (0, None, batch))
    alone = cute.make_layout(1)
    to_a, from_a = cpasync.tma_partition(
        load_a, 0, alone, cute.group_modes(sA, 0, 2), cute.group_modes(gA, 0, 3)
    )
    to_b, from_b = cpasync.tma_partition(
        load_b, 0, alone, cute.group_modes(sB, 0, 2), cute.group_modes(gB, 0, 3)
    )

    if warp == 0:
        for step in cutlass.range(cutlass.min(steps, STAGES)):
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(full + step, STAGE_BYTES)
            cute.copy(load_a, from_a[None, step], to_a[None, step], tma_bar_ptr=full + step)
            cute.copy(load_b, from_b[None, step], to_b[None, step], tma_bar_ptr=full + step)

    total = cutlass.Float32(0)
    for step in cutlass.range(steps):
        stage, phase = step % STAGES, (step // STAGES) % 2
        cute.arch.mbarrier_wait(full + stage, phase)
        a = sA[tidx, None, stage].load()
        b = sB[0, None, stage].load()
        cute.arch.mbarrier_arrive(empty + stage)
        ahead = step + STAGES
        if warp == 0 and ahead < steps:
            cute.arch.mbarrier_wait(empty + stage, phase)
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(full + stage, STAGE_BYTES)
            cute.copy(load_a, from_a[None, ahead], to_a[None, stage], tma_bar_ptr=full + stage)
            cute.copy(load_b, from_b[None, ahead], to_b[None, stage], tma_bar_ptr=full + stage)
        sfa = cute.local_tile(mSFA[row, None, batch], (4,), (step,)).load()
        sfb = cute.local_tile(mSFB[0, None, batch], (4,), (step,)).load()
        sfa, sfb = sfa.to(cutlass.Float32), sfb.to(cutlass.Float32)
        for j in cutlass.range_constexpr(4):
            inner = product_sum(a[2 * j], b[2 * j]) + product_sum(a[2 * j + 1], b[2 * j + 1])
            total += scaled(inner, sfa[j], sfb[j])
    mC[row, 0, batch] = (total * 0.25).to(cutlass.Float16)


@cute.jit
def tma_gemv(
    a: cute.Pointer,
    b: cute.Pointer,
    sfa: cute.Pointer,
    sfb: cute.Pointer,
    c: cute.Pointer,
    m: cutlass.Int32,
    k: cutlass.Int32,
    l: cutlass.Int32,
) -> None:
    mA, mB = batched(a, m, k // 8, l, 8), batched(b, 128, k // 8, l, 8)
    operation = cpasync.CopyBulkTensorTileG2SOp()
    stage_a = cute.make_layout((ROWS, WORDS, 1), stride=(WORDS, 1, 0))
    stage_b = cute.make_layout((1, WORDS, 1), stride=(0, 1, 0))
    load_a, tA = cpasync.make_tiled_tma_atom(operation, mA, stage_a, (ROWS, WORDS, 1))
    load_b, tB = cpasync.make_tiled_tma_atom(operation, mB, stage_b, (1, WORDS, 1))
    mSFA, mSFB = batched(sfa, m, k // BLOCK, l, 4), batched(sfb, 128, k // BLOCK, l, 4)
    mC = batched(c, m, 1, l, 1)
    tma_kernel(load_a, tA, load_b, tB, mSFA, mSFB, mC).launch(
        grid=(m // ROWS, 1, l), block=(ROWS, 1, 1)
    )


def custom_kernel(data: Any) -> Any:
    return run(tma_gemv, data, FP4_AS_WORDS)
