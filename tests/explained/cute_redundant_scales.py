#!POPCORN leaderboard nvfp4_gemv
#!POPCORN gpu NVIDIA
"""A warp a row, a word of eight values a lane: inline PTX fetches a scale for each byte of it."""

import functools

import cutlass
import cutlass.cute as cute
from cutlass import Float16, Float32, Int32, Int64, Uint32
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import T, dsl_user_op


@dsl_user_op
def load(address, text, kind, *, loc=None, ip=None):
    return llvm.inline_asm(
        kind, [Int64(address).ir_value(loc=loc, ip=ip)], text, "=r,l",
        has_side_effects=True, loc=loc, ip=ip,
    )  # fmt: skip


def word(address):
    return Uint32(load(address, "ld.global.nc.b32 $0, [$1];", T.i32()))


def scale(address):
    text = "{ .reg .b16 byte; ld.global.nc.u8 byte, [$1]; cvt.u32.u16 $0, byte; }"
    return Uint32(load(address, text, T.i32()))  # <- redundant_load


@cute.kernel
def kernel(a: Int64, sfa: Int64, mC: cute.Tensor, words: Int32):
    lane, warp, _ = cute.arch.thread_idx()
    tile, _, _ = cute.arch.block_idx()
    row = Int64(tile * 4 + warp)
    total = Uint32(0)
    for i in cutlass.range(lane, words, 32):
        values = word(a + 4 * (row * words + i))
        for byte in cutlass.range_constexpr(4):
            factor = scale(sfa + (row * words + i) // 2)
            total += ((values >> (8 * byte)) & Uint32(15)) * factor
    for offset in (16, 8, 4, 2, 1):
        total += cute.arch.shuffle_sync_bfly(total, offset=offset)
    if lane == 0:
        mC[tile * 4 + warp] = Float32(total & Uint32(1023)).to(Float16)


@cute.jit
def launch(a: Int64, sfa: Int64, c: Int64, m: Int32, words: Int32):
    pointer = cute.make_ptr(Float16, c, cute.AddressSpace.gmem, assumed_align=2)
    output = cute.make_tensor(pointer, cute.make_layout(m))
    kernel(a, sfa, output, words).launch(grid=(m // 4, 1, 1), block=(32, 4, 1))


@functools.cache
def compiled():
    return cute.compile(launch, *[Int64(0)] * 3, Int32(0), Int32(0))


def custom_kernel(data):
    a, _, sfa, *_, c = data
    compiled()(a.data_ptr(), sfa.data_ptr(), c.data_ptr(), a.shape[0], a.shape[1] // 4)
    return c
