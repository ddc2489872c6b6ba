# strategy: compile a kernel for each shape, with the sizes as constants

import cutlass
import cutlass.cute as cute

from kernels import THREADS, partial_sums, pointer

compiled = {}


@cute.kernel
def rounded_kernel(sums: cute.Tensor, c: cute.Tensor, count: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * THREADS + thread
    if index < count:
        c[index] = sums[index].to(cutlass.Float16)


@cute.jit
def round_off(sums, c, count: cutlass.Constexpr):
    layout = cute.make_layout(count)
    rounded_kernel(cute.make_tensor(sums, layout), cute.make_tensor(c, layout), count).launch(
        grid=((count + THREADS - 1) // THREADS, 1, 1), block=(THREADS, 1, 1)
    )


def custom_kernel(data):
    c = data[6]
    sums = partial_sums(data)
    pointers = pointer(cutlass.Float32, sums), pointer(cutlass.Float16, c)
    if c.numel() not in compiled:
        compiled[c.numel()] = cute.compile(round_off, *pointers, c.numel())
    compiled[c.numel()](*pointers)
    return c
