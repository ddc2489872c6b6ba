# expect: pass may=unset_register
"""A warp a row, loads under a predicate: lanes past the end of k keep registers nobody set.

They take part in the arithmetic and are put aside by a selp before the sum.
"""

import cutlass
import cutlass.cute as cute
from cutlass._mlir.dialects import llvm
from cutlass.cute.runtime import make_ptr
from cutlass.cutlass_dsl import T, dsl_user_op


def asm(result, operands, text, constraints, loc, ip):
    return llvm.inline_asm(
        result,
        operands,
        text,
        constraints,
        has_side_effects=True,
        is_align_stack=False,
        asm_dialect=llvm.AsmDialect.AD_ATT,
        loc=loc,
        ip=ip,
    )


LOAD = """{
.reg .pred inside;
setp.lt.s32 inside, $5, $6;
@inside ld.global.nc.v4.u32 {$0, $1, $2, $3}, [$4];
}"""


@dsl_user_op
def load_if(address, index, limit, *, loc=None, ip=None):
    words = asm(
        llvm.StructType.get_literal([T.i32()] * 4),
        [x.ir_value(loc=loc, ip=ip) for x in (address, index, limit)],
        LOAD,
        "=r,=r,=r,=r,l,r,r",
        loc,
        ip,
    )
    return [
        cutlass.Uint32(llvm.extractvalue(T.i32(), words, [i], loc=loc, ip=ip)) for i in range(4)
    ]


def products(a, b):
    text = f"mov.b32 {{a0, a1, a2, a3}}, {a};\nmov.b32 {{b0, b1, b2, b3}}, {b};\n"
    for i in range(4):
        text += f"cvt.rn.f16x2.e2m1x2 x, a{i};\ncvt.rn.f16x2.e2m1x2 y, b{i};\n"
        text += "fma.rn.f16x2 sum, x, y, sum;\n"
    return text


DOT = (
    "{\n.reg .b8 a0, a1, a2, a3, b0, b1, b2, b3;\n.reg .b16 low, high;\n"
    ".reg .b32 x, y, sum;\n.reg .f32 f, g;\nmov.b32 sum, 0;\n"
    + products("$1", "$3")
    + products("$2", "$4")
    + "mov.b32 {low, high}, sum;\ncvt.f32.f16 f, low;\ncvt.f32.f16 g, high;\nadd.f32 $0, f, g;\n}"
)


@dsl_user_op
def dot16(a0, a1, b0, b1, *, loc=None, ip=None):
    operands = [x.ir_value(loc=loc, ip=ip) for x in (a0, a1, b0, b1)]
    return cutlass.Float32(asm(T.f32(), operands, DOT, "=f,r,r,r,r", loc, ip))


SELECT = """{
.reg .pred inside;
setp.lt.s32 inside, $2, $3;
selp.f32 $0, $1, 0f00000000, inside;
}"""


@dsl_user_op
def zero_unless(value, index, limit, *, loc=None, ip=None):
    operands = [x.ir_value(loc=loc, ip=ip) for x in (value, index, limit)]
    return cutlass.Float32(asm(T.f32(), operands, SELECT, "=f,f,r,r", loc, ip))


@cute.kernel
def gemv_kernel(
    a: cute.Pointer,
    b: cute.Pointer,
    sfa: cute.Tensor,
    sfb: cute.Tensor,
    c: cute.Tensor,
    m: cutlass.Int32,
    k: cutlass.Int32,
):
    tid, _, _ = cute.arch.thread_idx()
    bid, _, batch = cute.arch.block_idx()
    lane = tid % 32
    row = bid * 4 + tid // 32
    groups = k // 32
    a_row = a.toint() + (batch * m + row).to(cutlass.Int64) * (k // 2)
    b_row = b.toint() + batch.to(cutlass.Int64) * 64 * k
    total = cutlass.Float32(0.0)
    for step in range((groups + 31) // 32):
        group = step * 32 + lane
        wa = load_if(a_row + group.to(cutlass.Int64) * 16, group, groups)
        wb = load_if(b_row + group.to(cutlass.Int64) * 16, group, groups)
        last = cutlass.min(group, groups - 1)
        for half in cutlass.range_constexpr(2):
            dot = dot16(wa[2 * half], wa[2 * half + 1], wb[2 * half], wb[2 * half + 1])
            dot = zero_unless(dot, group, groups)
            scale = sfa[batch, row, 2 * last + half].to(cutlass.Float32)
            total += dot * (scale * sfb[batch, 0, 2 * last + half].to(cutlass.Float32))
    total = cute.arch.warp_reduction_sum(total)
    if lane == 0:
        c[batch, row] = total.to(cutlass.Float16)


@cute.jit
def gemv(
    a: cute.Pointer,
    b: cute.Pointer,
    sfa: cute.Pointer,
    sfb: cute.Pointer,
    c: cute.Pointer,
    m: cutlass.Int32,
    k: cutlass.Int32,
    l: cutlass.Int32,
):
    n_sf = k // 16
    mSFA = cute.make_tensor(sfa, cute.make_ordered_layout((l, m, n_sf), order=(2, 1, 0)))
    mSFB = cute.make_tensor(sfb, cute.make_ordered_layout((l, 128, n_sf), order=(2, 1, 0)))
    mC = cute.make_tensor(c, cute.make_ordered_layout((l, m), order=(1, 0)))
    gemv_kernel(a, b, mSFA, mSFB, mC, m, k).launch(grid=(m // 4, 1, l), block=(128, 1, 1))


functions = {}


def custom_kernel(data):
    a, b, sfa, sfb, _, _, c = data
    m, k, l = a.shape[0], a.shape[1] * 2, a.shape[2]
    space = cute.AddressSpace.gmem
    arguments = (
        make_ptr(cutlass.Uint8, a.data_ptr(), space, assumed_align=16),
        make_ptr(cutlass.Uint8, b.data_ptr(), space, assumed_align=16),
        make_ptr(cutlass.Float8E4M3FN, sfa.data_ptr(), space, assumed_align=16),
        make_ptr(cutlass.Float8E4M3FN, sfb.data_ptr(), space, assumed_align=16),
        make_ptr(cutlass.Float16, c.data_ptr(), space, assumed_align=16),
        m,
        k,
        l,
    )
    if "gemv" not in functions:
        functions["gemv"] = cute.compile(gemv, *arguments)
    functions["gemv"](*arguments)
    return c
