"""A cp.async pipeline: tiles of a and b go through four stages of shared memory."""

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import cpasync
from cutlass.utils import SmemAllocator

from kernels.parts import FP4_AS_WORDS, product_sum, run, scaled, word_tensors

ROWS = 128  # a thread each
WORDS = 8  # 64 values of each row a stage
STAGES = 4


@cute.kernel
def cp_async_kernel(
    mA: cute.Tensor,  # [m, k / 8, l] Uint32
    mB: cute.Tensor,  # [128, k / 8, l] Uint32
    mSFA: cute.Tensor,  # [m, k / 16, l] Float8E4M3FN
    mSFB: cute.Tensor,  # [128, k / 16, l] Float8E4M3FN
    mC: cute.Tensor,  # [m, 1, l] Float16
) -> None:
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, batch = cute.arch.block_idx()
    row = bidx * ROWS + tidx
    steps = mA.shape[1] // WORDS
    smem = SmemAllocator()
    # 12 words a row keep each 16-byte piece aligned and spread the rows over the banks.
    sA = smem.allocate_tensor(
        cutlass.Uint32,
        cute.make_layout((ROWS, WORDS, STAGES), stride=(12, 1, ROWS * 12)),
        byte_alignment=16,
    )
    sB = smem.allocate_tensor(cutlass.Uint32, cute.make_layout((WORDS, STAGES)), byte_alignment=16)
    copy = cute.make_copy_atom(cpasync.CopyG2SOp(), cutlass.Uint32, num_bits_per_copy=128)
    gA = cute.zipped_divide(mA[row, None, batch], (4,))  # (4, k / 32)
    gB = cute.zipped_divide(mB[0, None, batch], (4,))

    for step in cutlass.range(STAGES - 1):
        if step < steps:
            for part in cutlass.range_constexpr(2):
                tA = cute.zipped_divide(sA[tidx, None, step], (4,))
                cute.copy(copy, gA[None, 2 * step + part], tA[None, part])
            if tidx < 2:
                tB = cute.zipped_divide(sB[None, step], (4,))
                cute.copy(copy, gB[None, 2 * step + tidx], tB[None, tidx])
        cute.arch.cp_async_commit_group()

    total = cutlass.Float32(0)
    for step in cutlass.range(steps):
        cute.arch.cp_async_wait_group(STAGES - 2)
        cute.arch.sync_threads()
        ahead = step + STAGES - 1
        if ahead < steps:
            for part in cutlass.range_constexpr(2):
                tA = cute.zipped_divide(sA[tidx, None, ahead % STAGES], (4,))
                cute.copy(copy, gA[None, 2 * ahead + part], tA[None, part])
            if tidx < 2:
                tB = cute.zipped_divide(sB[None, ahead % STAGES], (4,))
                cute.copy(copy, gB[None, 2 * ahead + tidx], tB[None, tidx])
        cute.arch.cp_async_commit_group()
        a = sA[tidx, None, step % STAGES].load()
        b = sB[None, step % STAGES].load()
        sfa = cute.local_tile(mSFA[row, None, batch], (4,), (step,)).load()
        sfb = cute.local_tile(mSFB[0, None, batch], (4,), (step,)).load()
        sfa, sfb = sfa.to(cutlass.Float32), sfb.to(cutlass.Float32)
        for j in cutlass.range_constexpr(4):
            inner = product_sum(a[2 * j], b[2 * j]) + product_sum(a[2 * j + 1], b[2 * j + 1])
            total += scaled(inner, sfa[j], sfb[j])
    mC[row, 0, batch] = (total * 0.25).to(cutlass.Float16)


@cute.jit
def cp_async_gemv(
    a: cute.Pointer,
    b: cute.Pointer,
    sfa: cute.Pointer,
    sfb: cute.Pointer,
    c: cute.Pointer,
    m: cutlass.Int32,
    k: cutlass.Int32,
    l: cutlass.Int32,
) -> None:
    cp_async_kernel(*word_tensors(a, b, sfa, sfb, c, m, k, l)).launch(
        grid=(m // ROWS, 1, l), block=(ROWS, 1, 1)
    )


def custom_kernel(data: Any) -> Any:
    return run(cp_async_gemv, data, FP4_AS_WORDS)
