#!POPCORN leaderboard nvfp4_gemv
#!POPCORN gpu NVIDIA
# expect: pass finding=autotune
"""One thread a row; cute.testing.tune chooses how many threads a block has."""

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32
from cutlass.cute import testing
from cutlass.cute.runtime import make_ptr


class Gemv:
    def __init__(self, threads: int):
        self.threads = threads

    @cute.jit
    def __call__(self, a, b, sfa, sfb, c, m: Int32, k: Int32, l: Int32):
        k = cute.assume(k, divby=64)

        def k_major(pointer, rows, columns):
            shape = (columns, rows, l)
            stride = (1, columns, cute.assume(rows * columns, divby=4))
            return cute.make_tensor(pointer, cute.make_layout(shape, stride=stride))

        mA, mB = k_major(a, m, k), k_major(b, 128, k)
        mSFA, mSFB = k_major(sfa, m, k // 16), k_major(sfb, 128, k // 16)
        mC = cute.make_tensor(c, cute.make_layout((m, l)))
        self.kernel(mA, mB, mSFA, mSFB, mC).launch(
            grid=[m // self.threads, l, 1], block=[self.threads, 1, 1]
        )

    @cute.kernel
    def kernel(self, mA: cute.Tensor, mB: cute.Tensor, mSFA: cute.Tensor, mSFB: cute.Tensor, mC):
        thread, _, _ = cute.arch.thread_idx()
        block, batch, _ = cute.arch.block_idx()
        row = block * self.threads + thread
        total = Float32(0.0)
        for j in range(mSFA.shape[0]):
            a = cute.local_tile(mA[None, row, batch], (16,), (j,)).load().to(Float32)
            b = cute.local_tile(mB[None, 0, batch], (16,), (j,)).load().to(Float32)
            dot = (a * b).reduce(cute.ReductionOp.ADD, 0.0, 0)
            total += dot * mSFA[j, row, batch].to(Float32) * mSFB[j, 0, batch].to(Float32)
        mC[row, batch] = total.to(cutlass.Float16)


cache = {}


def custom_kernel(data):
    a, b, sfa, sfb, _, _, c = data
    size = (a.shape[0], a.shape[1] * 2, a.shape[2])

    def ptr(dtype, tensor):
        return make_ptr(dtype, tensor.data_ptr(), cute.AddressSpace.gmem, assumed_align=16)

    args = [ptr(cutlass.Float4E2M1FN, a), ptr(cutlass.Float4E2M1FN, b)]
    args += [
        ptr(cutlass.Float8E4M3FN, sfa),
        ptr(cutlass.Float8E4M3FN, sfb),
        ptr(cutlass.Float16, c),
    ]

    def compiled(*args, threads):
        return cute.compile(Gemv(threads), *args)

    def candidate(*args, threads):
        kernel = compiled(*args, threads=threads)
        return lambda: kernel(*args)

    if not cache:
        best = testing.tune(  # <- fault
            candidate,
            params_dict={"threads": [128, 64, 32]},
            kernel_arguments=testing.JitArguments(*args, *size),
            warmup_iterations=3,
            iterations=20,
        )
        cache["gemv"] = compiled(*args, *size, **best)
    cache["gemv"](*args, *size)
    return c
