#!POPCORN leaderboard nvfp4_gemv
# quick: yes
"""Eight partial sums a row lie side by side in shared memory, and a while loop walks over them."""

import functools

import cutlass
import cutlass.cute as cute
from cutlass import Float16, Float32, Int32, Int64, Uint32

ROWS, SLOTS = 32, 8


def pointer(address, dtype):
    return cute.make_ptr(dtype, address, cute.AddressSpace.gmem, assumed_align=4)


@cute.kernel
def kernel(words: cute.Tensor, mC: cute.Tensor):
    slot, row, _ = cute.arch.thread_idx()
    tile, _, _ = cute.arch.block_idx()
    storage = cute.arch.alloc_smem(Float32, ROWS * SLOTS)
    sums = cute.make_tensor(storage, cute.make_layout((ROWS, SLOTS), stride=(SLOTS, 1)))
    ones = Uint32(0)
    for i in cutlass.range(slot, words.shape[1], SLOTS):
        ones += words[tile * ROWS + row, i] & Uint32(0x11111111)
    sums[row, slot] = Float32(ones & Uint32(255))
    cute.arch.sync_threads()
    thread = row * SLOTS + slot
    total = Float32(0)
    if thread < ROWS:
        step = Int32(0)
        while step < 8 * SLOTS:
            total += sums[thread, step % SLOTS]  # <- bank_conflict
            step += 1
        mC[tile * ROWS + thread] = total.to(Float16)


@cute.jit
def launch(a: Int64, c: Int64, m: Int32, words: Int32):
    layout = cute.make_layout((m, words), stride=(words, 1))
    matrix = cute.make_tensor(pointer(a, Uint32), layout)
    output = cute.make_tensor(pointer(c, Float16), cute.make_layout(m))
    kernel(matrix, output).launch(grid=(m // ROWS, 1, 1), block=(SLOTS, ROWS, 1))


@functools.cache
def compiled():
    return cute.compile(launch, Int64(0), Int64(0), Int32(0), Int32(0))


def custom_kernel(data):
    a, *_, c = data
    compiled()(a.data_ptr(), c.data_ptr(), a.shape[0], a.shape[1] // 4)
    return c
