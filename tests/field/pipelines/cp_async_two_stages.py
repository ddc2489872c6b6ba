# expect: pass
"""The vector and its scales go through two stages of shared memory by cp.async, 256 values each.

All warps of a CTA use what the first threads have copied; a barrier stands before and after use.
"""

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import make_ptr
from cutlass.utils import SmemAllocator

ROWS = 128
STEP_WORDS = 32  # 256 values of b
STAGES = 2


@cute.kernel
def kernel(
    mA: cute.Tensor,  # FP4 [m, k, l]
    mB: cute.Tensor,  # 32-bit words [128, k / 8, l]
    mSFA: cute.Tensor,
    mSFB: cute.Tensor,
    mC: cute.Tensor,
):
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, l = cute.arch.block_idx()
    row = bidx * ROWS + tidx
    steps = mB.shape[1] // STEP_WORDS
    smem = SmemAllocator()
    sB = smem.allocate_tensor(
        cutlass.Uint32, cute.make_layout((STEP_WORDS, STAGES)), byte_alignment=128
    )
    atom = cute.make_copy_atom(cpasync.CopyG2SOp(), cutlass.Uint32, num_bits_per_copy=128)
    gB = cute.zipped_divide(mB[0, None, l], (4,))

    if tidx < 8:
        cute.copy(atom, gB[None, tidx], cute.zipped_divide(sB[None, 0], (4,))[None, tidx])
    cute.arch.cp_async_commit_group()

    acc = cutlass.Float32(0)
    for step in range(steps):
        stage = step % STAGES
        if step + 1 < steps and tidx < 8:
            sNext = cute.zipped_divide(sB[None, (step + 1) % STAGES], (4,))
            cute.copy(atom, gB[None, (step + 1) * 8 + tidx], sNext[None, tidx])
        cute.arch.cp_async_commit_group()
        cute.arch.cp_async_wait_group(1)
        cute.arch.sync_threads()
        bStage = cute.recast_tensor(sB[None, stage], cutlass.Float4E2M1FN)
        for j in range(16):
            a = cute.local_tile(mA[row, None, l], (16,), (step * 16 + j,)).load()
            b = cute.local_tile(bStage, (16,), (j,)).load()
            dot = (a.to(cutlass.Float32) * b.to(cutlass.Float32)).reduce(
                cute.ReductionOp.ADD, 0.0, 0
            )
            sfa = mSFA[row, step * 16 + j, l].to(cutlass.Float32)
            sfb = mSFB[0, step * 16 + j, l].to(cutlass.Float32)
            acc += dot * (sfa * sfb)
        cute.arch.sync_threads()
    mC[row, l] = acc.to(cutlass.Float16)


@cute.jit
def gemv(a, b, sfa, sfb, c, m: cutlass.Int32, k: cutlass.Int32, l: cutlass.Int32):
    k = cute.assume(k, divby=256)
    s = k // 16
    w = cute.assume(k // 8, divby=32)
    mk = cute.assume(m * k, divby=256)
    mA = cute.make_tensor(a, cute.make_layout((m, k, l), stride=(k, 1, mk)))
    mB = cute.make_tensor(b, cute.make_layout((128, w, l), stride=(w, 1, 128 * w)))
    mSFA = cute.make_tensor(sfa, cute.make_layout((m, s, l), stride=(s, 1, m * s)))
    mSFB = cute.make_tensor(sfb, cute.make_layout((128, s, l), stride=(s, 1, 128 * s)))
    mC = cute.make_tensor(c, cute.make_layout((m, l)))
    kernel(mA, mB, mSFA, mSFB, mC).launch(grid=(m // ROWS, 1, l), block=(ROWS, 1, 1))


compiled = []


def custom_kernel(data):
    a, b, sfa, sfb, _, _, c = data
    types = [cutlass.Float4E2M1FN, cutlass.Uint32, cutlass.Float8E4M3FN, cutlass.Float8E4M3FN]
    args = [
        make_ptr(dtype, tensor.data_ptr(), cute.AddressSpace.gmem, assumed_align=16)
        for dtype, tensor in zip(types + [cutlass.Float16], (a, b, sfa, sfb, c))
    ]
    size = (a.shape[0], a.shape[1] * 2, a.shape[2])
    if not compiled:
        compiled.append(cute.compile(gemv, *args, *size))
    compiled[0](*args, *size)
    return c
