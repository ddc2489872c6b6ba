"""f16x2 arithmetic in one fused PTX block: eight threads a row, shuffles to add them up.

A half of the f16x2 accumulator sums eight products of a block: at most 288 in steps of 0.25,
which f16 holds exactly. Needs the FP4 conversions of sm_100.
"""

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import T, dsl_user_op

from kernels.parts import FP4_AS_WORDS, run, scales, word_tensors

THREADS = 128
SLOTS = 8  # threads that share a row
ROWS = THREADS // SLOTS


def _products(word: int) -> str:
    """PTX that adds the products of eight value pairs, operands $1+word and $3+word, to `sum`."""
    lines = [
        f"mov.b32 {{a0, a1, a2, a3}}, ${1 + word};",
        f"mov.b32 {{b0, b1, b2, b3}}, ${3 + word};",
    ]
    for i in range(4):
        lines += [
            f"cvt.rn.f16x2.e2m1x2 x, a{i};",
            f"cvt.rn.f16x2.e2m1x2 y, b{i};",
            "fma.rn.f16x2 sum, x, y, sum;",
        ]
    return "\n".join(lines)


BLOCK_SUM = f"""{{
.reg .b8 a0, a1, a2, a3, b0, b1, b2, b3;
.reg .b16 low, high;
.reg .b32 x, y, sum;
.reg .f32 f, g;
mov.b32 sum, 0;
{_products(0)}
{_products(1)}
mov.b32 {{low, high}}, sum;
cvt.f32.f16 f, low;
cvt.f32.f16 g, high;
add.rn.f32 $0, f, g;
}}"""


@dsl_user_op
def block_sum(a0: Any, a1: Any, b0: Any, b1: Any, *, loc: Any = None, ip: Any = None) -> Any:
    """The dot product of two blocks of 16 E2M1 values, two 32-bit words each; exact."""
    words = [cutlass.Uint32(x).ir_value(loc=loc, ip=ip) for x in (a0, a1, b0, b1)]
    return cutlass.Float32(
        llvm.inline_asm(T.f32(), words, BLOCK_SUM, "=f,r,r,r,r", asm_dialect=0, loc=loc, ip=ip)
    )


@cute.kernel
def packed_kernel(
    mA: cute.Tensor,  # [m, k / 8, l] Uint32
    mB: cute.Tensor,  # [128, k / 8, l] Uint32
    mSFA: cute.Tensor,  # [m, k / 16, l] Float8E4M3FN
    mSFB: cute.Tensor,  # [128, k / 16, l] Float8E4M3FN
    mC: cute.Tensor,  # [m, 1, l] Float16
) -> None:
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, batch = cute.arch.block_idx()
    row, slot = bidx * ROWS + tidx // SLOTS, tidx % SLOTS
    gSFA = cute.recast_tensor(mSFA[row, None, batch], cutlass.Uint16)
    gSFB = cute.recast_tensor(mSFB[0, None, batch], cutlass.Uint16)
    total = cutlass.Float32(0)
    for group in cutlass.range(slot, mA.shape[1] // 4, SLOTS):
        a = cute.local_tile(mA[row, None, batch], (4,), (group,)).load()
        b = cute.local_tile(mB[0, None, batch], (4,), (group,)).load()
        sfa, sfb = scales(gSFA[group]), scales(gSFB[group])
        for j in cutlass.range_constexpr(2):
            inner = block_sum(a[2 * j], a[2 * j + 1], b[2 * j], b[2 * j + 1])
            total += inner * (sfa[j] * sfb[j])
    for distance in (4, 2, 1):
        total += cute.arch.shuffle_sync_down(total, offset=distance)
    if slot == 0:
        mC[row, 0, batch] = total.to(cutlass.Float16)


@cute.jit
def packed_gemv(
    a: cute.Pointer,
    b: cute.Pointer,
    sfa: cute.Pointer,
    sfb: cute.Pointer,
    c: cute.Pointer,
    m: cutlass.Int32,
    k: cutlass.Int32,
    l: cutlass.Int32,
) -> None:
    packed_kernel(*word_tensors(a, b, sfa, sfb, c, m, k, l)).launch(
        grid=(m // ROWS, 1, l), block=(THREADS, 1, 1)
    )


def custom_kernel(data: Any) -> Any:
    return run(packed_gemv, data, FP4_AS_WORDS)
