#!POPCORN leaderboard nvfp4_gemv
#!POPCORN gpu NVIDIA
"""Eight threads a row, whose partial sums are added up in shared memory as a tree.

A row's threads take every eighth group of 64 values, so that they read neighbouring addresses.
Each round of the tree halves the number of partial sums, with a barrier between the rounds.

E2M1 values are multiples of 0.5, so twice a value is an integer: prmt looks four of them up in a
table, and dp4a multiplies and adds four pairs. Runs on every architecture that has the E4M3
conversion, sm_89 and later.
"""

import functools
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float8E4M3FN, Float16, Float32, Int32, Int64, Uint32
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import T, dsl_user_op

from task import input_t, output_t

ROWS = 16  # of a CTA
SLOTS = 8  # threads that share a row
WORDS = 8  # 64 values, four blocks, that a thread takes at a time


@dsl_user_op
def prmt(low: Any, high: Any, selector: Any, *, loc: Any = None, ip: Any = None) -> Any:
    """Byte i of the result is byte (nibble i of selector) of high:low.

    Where the nibble's top bit is set, it is the sign of that byte, repeated eight times.
    """
    operands = [Uint32(x).ir_value(loc=loc, ip=ip) for x in (low, high, selector)]
    text = "prmt.b32 $0, $1, $2, $3;"
    return Uint32(llvm.inline_asm(T.i32(), operands, text, "=r,r,r,r", loc=loc, ip=ip))


@dsl_user_op
def dp4a(a: Any, b: Any, c: Any, *, loc: Any = None, ip: Any = None) -> Any:
    """c plus the dot product of the four unsigned bytes of a and the four of b."""
    operands = [Uint32(x).ir_value(loc=loc, ip=ip) for x in (a, b, c)]
    text = "dp4a.u32.u32 $0, $1, $2, $3;"
    return Uint32(llvm.inline_asm(T.i32(), operands, text, "=r,r,r,r", loc=loc, ip=ip))


def doubled(codes: Any) -> Any:
    """Twice the values of the four E2M1 codes in the low half of a word, one byte each.

    prmt is the table lookup: bytes 0 to 7 of the table are 0, 1, 2, 3, 4, 6, 8, 12. A negative
    code has its nibble's top bit set and yields the sign of a table byte, which is 0.
    """
    return prmt(0x03020100, 0x0C080604, codes)


def dot(a: Any, b: Any) -> Any:
    """Four times the dot product of eight E2M1 values of a and eight of b, a word each; exact."""
    same, opposite = Uint32(0), Uint32(0)  # products of equal signs, and of opposite signs
    for shift in (0, 16):
        a_codes, b_codes = a >> shift, b >> shift
        a_positive, a_negative = doubled(a_codes), doubled(a_codes ^ 0x8888)
        b_positive, b_negative = doubled(b_codes), doubled(b_codes ^ 0x8888)
        same = dp4a(a_positive, b_positive, dp4a(a_negative, b_negative, same))
        opposite = dp4a(a_positive, b_negative, dp4a(a_negative, b_positive, opposite))
    return Int32(same) - Int32(opposite)


def k_major(address: Any, dtype: Any, rows: Any, columns: Any, l: Any, divby: int) -> Any:
    """The tensor [rows, columns, l] at a global address, stored as [l, rows, columns].

    divby divides columns: the compiler needs that, and the alignment, to load 16 bytes at once.
    """
    pointer = cute.make_ptr(dtype, address, cute.AddressSpace.gmem, assumed_align=16)
    columns = cute.assume(Int32(columns), divby=divby)
    layout = cute.make_layout((rows, columns, l), stride=(columns, 1, rows * columns))
    return cute.make_tensor(pointer, layout)


@cute.kernel
def gemv_kernel(
    mA: cute.Tensor,  # [m, k / 8, l] Uint32, eight E2M1 values each
    mB: cute.Tensor,  # [128, k / 8, l] Uint32, row 0 is the vector
    mSFA: cute.Tensor,  # [m, k / 16, l] Float8E4M3FN
    mSFB: cute.Tensor,  # [128, k / 16, l] Float8E4M3FN
    mC: cute.Tensor,  # [m, 1, l] Float16
) -> None:
    slot, local_row, _ = cute.arch.thread_idx()
    bidx, _, batch = cute.arch.block_idx()
    row = bidx * ROWS + local_row

    partial = Float32(0)
    for group in cutlass.range(slot, mA.shape[1] // WORDS, SLOTS):
        a = cute.local_tile(mA[row, None, batch], (WORDS,), (group,)).load()
        b = cute.local_tile(mB[0, None, batch], (WORDS,), (group,)).load()
        sfa = cute.local_tile(mSFA[row, None, batch], (4,), (group,)).load().to(Float32)
        sfb = cute.local_tile(mSFB[0, None, batch], (4,), (group,)).load().to(Float32)
        for j in cutlass.range_constexpr(4):
            inner = dot(a[2 * j], b[2 * j]) + dot(a[2 * j + 1], b[2 * j + 1])
            partial += Float32(inner) * (sfa[j] * sfb[j])

    # A row is padded by one word, so that equal slots of different rows fall into different banks.
    storage = cute.arch.alloc_smem(Float32, ROWS * (SLOTS + 1))
    sums = cute.make_tensor(storage, cute.make_layout((ROWS, SLOTS), stride=(SLOTS + 1, 1)))
    sums[local_row, slot] = partial
    cute.arch.sync_threads()
    distance = Int32(SLOTS // 2)
    while distance > 0:
        if slot < distance:
            sums[local_row, slot] = sums[local_row, slot] + sums[local_row, slot + distance]
        cute.arch.sync_threads()
        distance = distance // 2
    if slot == 0:
        mC[row, 0, batch] = (sums[local_row, 0] * 0.25).to(Float16)  # dot is four times too large


@cute.jit
def gemv(
    a: Int64,
    b: Int64,
    sfa: Int64,
    sfb: Int64,
    c: Int64,
    m: Int32,
    k_packed: Int32,
    l: Int32,
) -> None:
    """Launch the kernel on tensors at these addresses; k_packed = k / 2, the bytes of a row."""
    mA = k_major(a, Uint32, m, k_packed // 4, l, 8)
    mB = k_major(b, Uint32, 128, k_packed // 4, l, 8)
    mSFA = k_major(sfa, Float8E4M3FN, m, k_packed // 8, l, 4)
    mSFB = k_major(sfb, Float8E4M3FN, 128, k_packed // 8, l, 4)
    mC = k_major(c, Float16, m, 1, l, 1)
    gemv_kernel(mA, mB, mSFA, mSFB, mC).launch(grid=(m // ROWS, 1, l), block=(SLOTS, ROWS, 1))


@functools.cache
def compiled() -> Any:
    """gemv, compiled once for all shapes: sizes and addresses are arguments of each call."""
    return cute.compile(gemv, *[Int64(0)] * 5, *[Int32(0)] * 3)


def custom_kernel(data: input_t) -> output_t:
    a, b, sfa, sfb, _, _, c = data
    compiled()(*(tensor.data_ptr() for tensor in (a, b, sfa, sfb, c)), *a.shape)
    return c
