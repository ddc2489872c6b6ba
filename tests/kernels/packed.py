#!POPCORN leaderboard nvfp4_gemv
#!POPCORN gpu NVIDIA
"""f16x2 arithmetic: two products an instruction, eight threads a row, shuffles to add them up.

One conversion turns two E2M1 values into an f16x2 register, and one fma multiplies and adds two
pairs. Each half of the accumulator sums eight products of a block: at most 288, in steps of 0.25,
which f16 holds exactly. The scaled sums are added in float32, since f16 would overflow.

Needs the FP4 conversions of sm_100.
"""

import functools
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float16, Float32, Int32, Int64, Uint16, Uint32
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import T, dsl_user_op

from task import input_t, output_t

THREADS = 128  # of a CTA
SLOTS = 8  # threads that share a row
ROWS = THREADS // SLOTS


def extract(values: Any, kind: Any, count: int, loc: Any, ip: Any) -> list[Any]:
    """The results of a PTX block that has several."""
    return [llvm.extractvalue(kind, values, [i], loc=loc, ip=ip) for i in range(count)]


@dsl_user_op
def cvt_f16x2_e2m1x2(word: Any, *, loc: Any = None, ip: Any = None) -> list[Any]:
    """The eight E2M1 values of a word as four f16x2 registers.

    The instruction takes a byte, which inline PTX has no constraint for: so a word is unpacked.
    """
    text = """{
    .reg .b8 p0, p1, p2, p3;
    mov.b32 {p0, p1, p2, p3}, $4;
    cvt.rn.f16x2.e2m1x2 $0, p0;
    cvt.rn.f16x2.e2m1x2 $1, p1;
    cvt.rn.f16x2.e2m1x2 $2, p2;
    cvt.rn.f16x2.e2m1x2 $3, p3;
    }"""
    kind = llvm.StructType.get_literal([T.i32()] * 4)
    operands = [Uint32(word).ir_value(loc=loc, ip=ip)]
    values = llvm.inline_asm(kind, operands, text, "=r,=r,=r,=r,r", loc=loc, ip=ip)
    return [Uint32(value) for value in extract(values, T.i32(), 4, loc, ip)]


@dsl_user_op
def cvt_f16x2_e4m3x2(pair: Any, *, loc: Any = None, ip: Any = None) -> Any:
    """The two E4M3 values of 16 bits, the first in the low byte, as an f16x2 register."""
    operands = [Uint16(pair).ir_value(loc=loc, ip=ip)]
    text = "cvt.rn.f16x2.e4m3x2 $0, $1;"
    return Uint32(llvm.inline_asm(T.i32(), operands, text, "=r,h", loc=loc, ip=ip))


@dsl_user_op
def fma_f16x2(a: Any, b: Any, c: Any, *, loc: Any = None, ip: Any = None) -> Any:
    """a * b + c in both halves."""
    operands = [Uint32(x).ir_value(loc=loc, ip=ip) for x in (a, b, c)]
    text = "fma.rn.f16x2 $0, $1, $2, $3;"
    return Uint32(llvm.inline_asm(T.i32(), operands, text, "=r,r,r,r", loc=loc, ip=ip))


@dsl_user_op
def cvt_f32_f16(pair: Any, *, loc: Any = None, ip: Any = None) -> list[Any]:
    """The two halves of an f16x2 register as float32, the low one first."""
    text = """{
    .reg .b16 low, high;
    mov.b32 {low, high}, $2;
    cvt.f32.f16 $0, low;
    cvt.f32.f16 $1, high;
    }"""
    kind = llvm.StructType.get_literal([T.f32()] * 2)
    operands = [Uint32(pair).ir_value(loc=loc, ip=ip)]
    values = llvm.inline_asm(kind, operands, text, "=f,=f,r", loc=loc, ip=ip)
    return [Float32(value) for value in extract(values, T.f32(), 2, loc, ip)]


def block_dot(a: list[Any], b: list[Any]) -> Any:
    """The dot product of two blocks of 16 values, two words each, as float32; exact."""
    total = Uint32(0)
    for a_word, b_word in zip(a, b, strict=True):
        for x, y in zip(cvt_f16x2_e2m1x2(a_word), cvt_f16x2_e2m1x2(b_word), strict=True):
            total = fma_f16x2(x, y, total)
    low, high = cvt_f32_f16(total)
    return low + high


def scales(pair: Any) -> list[Any]:
    """Two E4M3 values of 16 bits as float32."""
    return cvt_f32_f16(cvt_f16x2_e4m3x2(pair))


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
    mSFA: cute.Tensor,  # [m, k / 32, l] Uint16, two E4M3 scales each
    mSFB: cute.Tensor,  # [128, k / 32, l] Uint16
    mC: cute.Tensor,  # [m, 1, l] Float16
) -> None:
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, batch = cute.arch.block_idx()
    row, slot = bidx * ROWS + tidx // SLOTS, tidx % SLOTS

    total = Float32(0)
    for group in cutlass.range(slot, mSFA.shape[1], SLOTS):
        a = cute.local_tile(mA[row, None, batch], (4,), (group,)).load()
        b = cute.local_tile(mB[0, None, batch], (4,), (group,)).load()
        sfa, sfb = scales(mSFA[row, group, batch]), scales(mSFB[0, group, batch])
        for j in cutlass.range_constexpr(2):
            inner = block_dot([a[2 * j], a[2 * j + 1]], [b[2 * j], b[2 * j + 1]])
            total += inner * (sfa[j] * sfb[j])

    for distance in (4, 2, 1):
        total += cute.arch.shuffle_sync_down(total, offset=distance)
    if slot == 0:
        mC[row, 0, batch] = total.to(Float16)


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
    mSFA = k_major(sfa, Uint16, m, k_packed // 16, l, 2)
    mSFB = k_major(sfb, Uint16, 128, k_packed // 16, l, 2)
    mC = k_major(c, Float16, m, 1, l, 1)
    gemv_kernel(mA, mB, mSFA, mSFB, mC).launch(grid=(m // ROWS, 1, l), block=(THREADS, 1, 1))


@functools.cache
def compiled() -> Any:
    """gemv, compiled once for all shapes: sizes and addresses are arguments of each call."""
    return cute.compile(gemv, *[Int64(0)] * 5, *[Int32(0)] * 3)


def custom_kernel(data: input_t) -> output_t:
    a, b, sfa, sfb, _, _, c = data
    compiled()(*(tensor.data_ptr() for tensor in (a, b, sfa, sfb, c)), *a.shape)
    return c
