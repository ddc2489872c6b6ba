#!POPCORN leaderboard nvfp4_gemv
#!POPCORN gpu NVIDIA
# expect: pass
"""A script that tests itself when it is run, and then exits with code 3.

It imports what the contest's utils.py holds and prints to both streams. The kernel goes through
all rows with as many CTAs as the device has SMs.
"""

import sys

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_ptr
from utils import DeterministicContext, make_match_reference, set_seed, verbose_allclose

from task import input_t, output_t

THREADS = 64


@cute.kernel
def persistent_kernel(mA, mB, mSFA, mSFB, mC, m: cutlass.Int32, l: cutlass.Int32):
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    gdim, _, _ = cute.arch.grid_dim()
    tiles = m // THREADS * l
    tile = bidx
    while tile < tiles:
        row = tile % (m // THREADS) * THREADS + tidx
        batch = tile // (m // THREADS)
        acc = cutlass.Float32(0)
        for j in range(mSFA.shape[1]):
            a = cute.local_tile(mA[row, None, batch], (16,), (j,)).load().to(cutlass.Float16)
            b = cute.local_tile(mB[0, None, batch], (16,), (j,)).load().to(cutlass.Float16)
            # A product is at most 36, in steps of 1/4: exact in float16, a sum of 16 is not.
            dot = (a * b).to(cutlass.Float32).reduce(cute.ReductionOp.ADD, 0.0, 0)
            scale = mSFA[row, j, batch].to(cutlass.Float32)
            acc += dot * scale * mSFB[0, j, batch].to(cutlass.Float32)
        mC[row, batch] = acc.to(cutlass.Float16)
        tile += gdim


@cute.jit
def gemv(
    a, b, sfa, sfb, c, m: cutlass.Int32, k: cutlass.Int32, l: cutlass.Int32, sms: cutlass.Int32
):
    k = cute.assume(k, divby=64)
    s = k // 16
    mk = cute.assume(m * k, divby=64)
    mA = cute.make_tensor(a, cute.make_layout((m, k, l), stride=(k, 1, mk)))
    mB = cute.make_tensor(b, cute.make_layout((128, k, l), stride=(k, 1, 128 * k)))
    mSFA = cute.make_tensor(sfa, cute.make_layout((m, s, l), stride=(s, 1, m * s)))
    mSFB = cute.make_tensor(sfb, cute.make_layout((128, s, l), stride=(s, 1, 128 * s)))
    mC = cute.make_tensor(c, cute.make_layout((m, l)))
    persistent_kernel(mA, mB, mSFA, mSFB, mC, m, l).launch(grid=(sms, 1, 1), block=(THREADS, 1, 1))


compiled = None


def custom_kernel(data: input_t) -> output_t:
    global compiled
    a, b, sfa, sfb, _, _, c = data
    types = [cutlass.Float4E2M1FN] * 2 + [cutlass.Float8E4M3FN] * 2 + [cutlass.Float16]
    args = [
        make_ptr(dtype, x.data_ptr(), cute.AddressSpace.gmem, assumed_align=16)
        for dtype, x in zip(types, (a, b, sfa, sfb, c))
    ]
    sms = torch.cuda.get_device_properties(a.device).multi_processor_count
    args += [a.shape[0], a.shape[1] * 2, a.shape[2], sms]
    if compiled is None:
        print("compiling", file=sys.stderr)
        compiled = cute.compile(gemv, *args)
    compiled(*args)
    return c


if __name__ == "__main__":
    set_seed(42)
    with DeterministicContext():
        mismatches = verbose_allclose(torch.ones(2), torch.ones(2), rtol=1e-3, atol=1e-3)
    print("self test:", mismatches, make_match_reference)
    sys.exit(3)
