#!POPCORN leaderboard nvfp4_gemv
#!POPCORN gpu NVIDIA
"""One scale a block is loaded and converted, not one an element.

Idea: in the blocked layout a row's scales have the shape (16, 4, ...) with stride 0 along the 16.
Coordinate 0 of that mode picks each scale once.
Buys: 4 loads and conversions of scales where there were 64 (a compiler may have merged the loads,
but not the conversions).
Costs: nothing. The result is the same, bit for bit.
"""

import functools

import cutlass
import cutlass.cute as cute
from cutlass import Float4E2M1FN, Float8E4M3FN, Float16, Float32, Int32, Int64
from cutlass.utils.blockscaled_layout import tile_atom_to_shape_SF

from task import input_t, output_t

THREADS = 128  # of a CTA, and its rows
TILE = 64  # elements of a row that a thread takes at a time
BLOCK = 16  # elements that share a scale


@cute.kernel
def kernel(mA, mB, mSFA, mSFB, mC):
    thread, _, _ = cute.arch.thread_idx()
    tile_m, _, batch = cute.arch.block_idx()
    row = tile_m * THREADS + thread
    total = Float32(0.0)
    for tile in range(mA.shape[1] // TILE):
        gA = cute.local_tile(mA[row, None, batch], (TILE,), (tile,))
        gB = cute.local_tile(mB[0, None, batch], (TILE,), (tile,))
        gSFA = cute.local_tile(mSFA[row, None, batch], (TILE,), (tile,))[((0, None),)]
        gSFB = cute.local_tile(mSFB[0, None, batch], (TILE,), (tile,))[((0, None),)]
        a = gA.load().to(Float32)
        b = gB.load().to(Float32)
        sfa = gSFA.load().to(Float32)
        sfb = gSFB.load().to(Float32)
        for i in cutlass.range_constexpr(TILE):
            total += a[i] * sfa[i // BLOCK] * b[i] * sfb[i // BLOCK]
    mC[row, 0, batch] = total.to(Float16)


def tensor(dtype, address, rows, columns, l):
    """[rows, columns, l], stored as [l, rows, columns]."""
    pointer = cute.make_ptr(dtype, address, cute.AddressSpace.gmem, assumed_align=16)
    layout = cute.make_layout((rows, columns, l), stride=(columns, 1, rows * columns))
    return cute.make_tensor(pointer, layout)


def scales(address, shape):
    """The permuted scales of a tensor [rows, k, l], one for each of its elements."""
    pointer = cute.make_ptr(Float8E4M3FN, address, cute.AddressSpace.gmem, assumed_align=16)
    return cute.make_tensor(pointer, tile_atom_to_shape_SF(shape, 16))


@cute.jit
def launch(a: Int64, b: Int64, sfa: Int64, sfb: Int64, c: Int64, m: Int32, k: Int32, l: Int32):
    k = cute.assume(k, divby=64)
    mA = tensor(Float4E2M1FN, a, m, k, l)
    mB = tensor(Float4E2M1FN, b, 128, k, l)
    mSFA = scales(sfa, mA.shape)
    mSFB = scales(sfb, mB.shape)
    mC = tensor(Float16, c, m, 1, l)
    kernel(mA, mB, mSFA, mSFB, mC).launch(grid=(m // THREADS, 1, l), block=(THREADS, 1, 1))


@functools.cache
def compiled():
    return cute.compile(launch, *[Int64(0)] * 5, *[Int32(0)] * 3)


def custom_kernel(data: input_t) -> output_t:
    a, b, _, _, sfa, sfb, c = data
    m, k_packed, l = a.shape
    pointers = [each.data_ptr() for each in (a, b, sfa, sfb, c)]
    compiled()(*pointers, m, 2 * k_packed, l)
    return c
