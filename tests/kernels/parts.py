"""What the test kernels share: their arguments, and FP4 products that every architecture can do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass._mlir.dialects import llvm
from cutlass.cute.runtime import make_ptr
from cutlass.cutlass_dsl import T, dsl_user_op

BLOCK = 16  # values that share a scale

FP4_AS_WORDS = (
    cutlass.Uint32,
    cutlass.Uint32,
    cutlass.Float8E4M3FN,
    cutlass.Float8E4M3FN,
    cutlass.Float16,
)

SCALES = """{
.reg .b16 low, high;
.reg .b32 pair;
cvt.rn.f16x2.e4m3x2 pair, $2;
mov.b32 {low, high}, pair;
cvt.f32.f16 $0, low;
cvt.f32.f16 $1, high;
}"""

_compiled: dict[Callable[..., Any], Any] = {}


def run(gemv: Callable[..., Any], data: tuple[Any, ...], dtypes: tuple[Any, ...]) -> Any:
    """Call the @cute.jit function `gemv(a, b, sfa, sfb, c, m, k, l)` on the contest's tuple.

    dtypes: element types of the five pointers. Compiled at the first call. Returns c.
    """
    a, b, sfa, sfb, _, _, c = data
    m, k_packed, l = a.shape
    pointers = [
        make_ptr(dtype, tensor.data_ptr(), cute.AddressSpace.gmem, assumed_align=16)
        for dtype, tensor in zip(dtypes, (a, b, sfa, sfb, c), strict=True)
    ]
    if gemv not in _compiled:
        _compiled[gemv] = cute.compile(gemv, *pointers, m, 2 * k_packed, l)
    _compiled[gemv](*pointers, m, 2 * k_packed, l)
    return c


def batched(pointer: Any, rows: Any, columns: Any, l: Any, divby: int) -> Any:
    """A [rows, columns, l] tensor stored [l, rows, columns]; `divby` divides columns."""
    if not isinstance(columns, int):  # a number needs no assumption, and 4.5 takes none
        columns = cute.assume(columns, divby=divby)
    return cute.make_tensor(
        pointer, cute.make_layout((rows, columns, l), stride=(columns, 1, rows * columns))
    )


def word_tensors(a: Any, b: Any, sfa: Any, sfb: Any, c: Any, m: Any, k: Any, l: Any) -> Any:
    """The five arguments as mA, mB [., k / 8, l], mSFA, mSFB [., k / 16, l] and mC [m, 1, l]."""
    return (
        batched(a, m, k // 8, l, 8),
        batched(b, 128, k // 8, l, 8),
        batched(sfa, m, k // BLOCK, l, 4),
        batched(sfb, 128, k // BLOCK, l, 4),
        batched(c, m, 1, l, 1),
    )


@dsl_user_op
def prmt(a: Any, b: Any, selector: Any, *, loc: Any = None, ip: Any = None) -> Any:
    words = [cutlass.Uint32(x).ir_value(loc=loc, ip=ip) for x in (a, b, selector)]
    text = "prmt.b32 $0, $1, $2, $3;"
    return cutlass.Uint32(
        llvm.inline_asm(T.i32(), words, text, "=r,r,r,r", asm_dialect=0, loc=loc, ip=ip)
    )


@dsl_user_op
def dp4a(a: Any, b: Any, c: Any, *, loc: Any = None, ip: Any = None) -> Any:
    words = [cutlass.Uint32(x).ir_value(loc=loc, ip=ip) for x in (a, b, c)]
    text = "dp4a.u32.u32 $0, $1, $2, $3;"
    return cutlass.Uint32(
        llvm.inline_asm(T.i32(), words, text, "=r,r,r,r", asm_dialect=0, loc=loc, ip=ip)
    )


@dsl_user_op
def scales(pair: Any, *, loc: Any = None, ip: Any = None) -> Any:
    """Two E4M3 values (16 bits, the first in the low byte) as float32."""
    both = llvm.inline_asm(
        llvm.StructType.get_literal([T.f32(), T.f32()]),
        [cutlass.Uint16(pair).ir_value(loc=loc, ip=ip)],
        SCALES,
        "=f,=f,h",
        asm_dialect=0,
        loc=loc,
        ip=ip,
    )
    parts = [llvm.extractvalue(T.f32(), both, [i], loc=loc, ip=ip) for i in (0, 1)]
    return [cutlass.Float32(part) for part in parts]


def doubled(codes: Any) -> Any:
    """Twice the positive values of four E2M1 codes (16 bits), a byte each; negative ones give 0.

    A selector nibble with its top bit set copies the sign of a table byte, and all are clear.
    """
    return prmt(0x03020100, 0x0C080604, codes)


def product_sum(a: Any, b: Any) -> Any:
    """Four times the dot product of eight E2M1 pairs (32 bits each), as Int32; exact."""
    same, opposite = cutlass.Uint32(0), cutlass.Uint32(0)
    for shift in (0, 16):
        a_half, b_half = a >> shift, b >> shift
        a_positive, a_negative = doubled(a_half), doubled(a_half ^ 0x8888)
        b_positive, b_negative = doubled(b_half), doubled(b_half ^ 0x8888)
        same = dp4a(a_positive, b_positive, dp4a(a_negative, b_negative, same))
        opposite = dp4a(a_positive, b_negative, dp4a(a_negative, b_positive, opposite))
    return cutlass.Int32(same) - cutlass.Int32(opposite)


def scaled(inner: Any, sfa: Any, sfb: Any) -> Any:
    """Four times a block's share of the result: its exact sum times both scales, in float32."""
    return cutlass.Float32(inner) * (sfa.to(cutlass.Float32) * sfb.to(cutlass.Float32))
