"""Eight threads a row, their partial sums added up in shared memory as a tree."""

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass.utils import SmemAllocator

from kernels.parts import FP4_AS_WORDS, product_sum, run, scaled, scales, word_tensors

ROWS = 16
SLOTS = 8  # threads that share a row


@cute.kernel
def shared_memory_kernel(
    mA: cute.Tensor,  # [m, k / 8, l] Uint32
    mB: cute.Tensor,  # [128, k / 8, l] Uint32
    mSFA: cute.Tensor,  # [m, k / 16, l] Float8E4M3FN
    mSFB: cute.Tensor,  # [128, k / 16, l] Float8E4M3FN
    mC: cute.Tensor,  # [m, 1, l] Float16
) -> None:
    slot, local_row, _ = cute.arch.thread_idx()
    bidx, _, batch = cute.arch.block_idx()
    row = bidx * ROWS + local_row
    sums = SmemAllocator().allocate_tensor(
        cutlass.Float32, cute.make_layout((ROWS, SLOTS), stride=(SLOTS + 1, 1))
    )

    # Before 4.6, CuTe DSL converts E4M3 four at a time only.
    bytes_a, bytes_b = (cute.recast_tensor(t, cutlass.Uint8) for t in (mSFA, mSFB))
    partial = cutlass.Float32(0)
    for block in cutlass.range(slot, mSFA.shape[1], SLOTS):
        a = cute.local_tile(mA[row, None, batch], (2,), (block,)).load()
        b = cute.local_tile(mB[0, None, batch], (2,), (block,)).load()
        inner = product_sum(a[0], b[0]) + product_sum(a[1], b[1])
        sfb = cutlass.Uint16(bytes_b[0, block, batch])
        pair = scales(cutlass.Uint16(bytes_a[row, block, batch]) | sfb << 8)
        partial += scaled(inner, *pair)

    sums[local_row, slot] = partial
    cute.arch.sync_threads()
    distance = cutlass.Int32(SLOTS // 2)
    while distance > 0:
        if slot < distance:
            sums[local_row, slot] = sums[local_row, slot] + sums[local_row, slot + distance]
        cute.arch.sync_threads()
        distance = distance // 2
    if slot == 0:
        mC[row, 0, batch] = (sums[local_row, 0] * 0.25).to(cutlass.Float16)


@cute.jit
def shared_memory_gemv(
    a: cute.Pointer,
    b: cute.Pointer,
    sfa: cute.Pointer,
    sfb: cute.Pointer,
    c: cute.Pointer,
    m: cutlass.Int32,
    k: cutlass.Int32,
    l: cutlass.Int32,
) -> None:
    shared_memory_kernel(*word_tensors(a, b, sfa, sfb, c, m, k, l)).launch(
        grid=(m // ROWS, 1, l), block=(SLOTS, ROWS, 1)
    )


def custom_kernel(data: Any) -> Any:
    return run(shared_memory_gemv, data, FP4_AS_WORDS)
