#!POPCORN leaderboard nvfp4_gemv
#!POPCORN gpu NVIDIA
"""A warp a row, 16 words a lane in a row; what is left at the end is one lane's."""

import functools

import cutlass
import cutlass.cute as cute
from cutlass import Float16, Float32, Int32, Int64, Uint32

WARPS = 2


def mixed(total, word):
    for shift in (0, 8, 16, 24):
        total = total * Uint32(3) + ((word >> shift) & Uint32(7))
    return total


@cute.kernel
def kernel(mA: cute.Tensor, mC: cute.Tensor):
    lane, warp, _ = cute.arch.thread_idx()
    tile, _, _ = cute.arch.block_idx()
    row = tile * WARPS + warp
    count = mA.shape[1]
    even = count // 128 * 128
    total = Uint32(0)
    for i in cutlass.range(lane, even, 32):
        total = mixed(total, mA[row, i])
    if lane == 5:  # <- divergence
        for i in cutlass.range(even, count):
            total = mixed(total, mA[row, i])
    for offset in (16, 8, 4, 2, 1):
        total += cute.arch.shuffle_sync_bfly(total, offset=offset)
    if lane == 0:
        mC[row] = Float32(total & Uint32(1023)).to(Float16)


@cute.jit
def launch(a: Int64, c: Int64, m: Int32, words: Int32):
    space = cute.AddressSpace.gmem
    matrix = cute.make_tensor(
        cute.make_ptr(Uint32, a, space, assumed_align=4),
        cute.make_layout((m, words), stride=(words, 1)),
    )
    output = cute.make_tensor(
        cute.make_ptr(Float16, c, space, assumed_align=2), cute.make_layout(m)
    )
    kernel(matrix, output).launch(grid=(m // WARPS, 1, 1), block=(32, WARPS, 1))


@functools.cache
def compiled():
    return cute.compile(launch, Int64(0), Int64(0), Int32(0), Int32(0))


def custom_kernel(data):
    a, *_, c = data
    compiled()(a.data_ptr(), c.data_ptr(), a.shape[0], a.shape[1] // 4)
    return c
