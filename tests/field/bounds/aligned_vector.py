# expect: pass
"""16 bytes of b are loaded at once, at addresses rounded down to multiples of 16."""

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64, Uint32
from cutlass._mlir.dialects import llvm
from cutlass.cute.runtime import make_ptr
from cutlass.cutlass_dsl import T, dsl_user_op


@dsl_user_op
def load(address: Int64, count: int, bits: str, *, loc=None, ip=None):
    names = ", ".join(f"${i}" for i in range(count))
    text = f"ld.global.{bits} {names}, [${count}];"
    kind = T.i32()
    if count > 1:
        text = f"ld.global.v{count}.{bits} {{{names}}}, [${count}];"
        kind = llvm.StructType.get_literal([T.i32()] * count)
    result = llvm.inline_asm(
        kind,
        [Int64(address).ir_value(loc=loc, ip=ip)],
        text,
        ",".join(["=r"] * count) + ",l",
        has_side_effects=True,
        asm_dialect=0,
        loc=loc,
        ip=ip,
    )
    if count == 1:
        return [Uint32(result)]
    return [Uint32(llvm.extractvalue(T.i32(), result, [i], loc=loc, ip=ip)) for i in range(count)]


@dsl_user_op
def decode(word: Uint32, kind: str, *, loc=None, ip=None):
    """Two values in the low bits of a word, as floats; kind is e2m1x2 or e4m3x2."""
    declared = ".reg .b8 x, p, q, r;" if kind == "e2m1x2" else ".reg .b16 x, p;"
    unpack = "mov.b32 {x, p, q, r}, $2;" if kind == "e2m1x2" else "mov.b32 {x, p}, $2;"
    text = (
        f"{{\n{declared}\n.reg .b32 both;\n.reg .b16 low, high;\n{unpack}\n"
        f"cvt.rn.f16x2.{kind} both, x;\nmov.b32 {{low, high}}, both;\n"
        "cvt.f32.f16 $0, low;\ncvt.f32.f16 $1, high;\n}"
    )
    result = llvm.inline_asm(
        llvm.StructType.get_literal([T.f32()] * 2),
        [Uint32(word).ir_value(loc=loc, ip=ip)],
        text,
        "=f,=f,r",
        asm_dialect=0,
        loc=loc,
        ip=ip,
    )
    return [Float32(llvm.extractvalue(T.f32(), result, [i], loc=loc, ip=ip)) for i in range(2)]


@cute.kernel
def kernel(
    bytes_a: cute.Tensor,
    bytes_b: cute.Tensor,
    bytes_sfa: cute.Tensor,
    bytes_sfb: cute.Tensor,
    c: cute.Tensor,
):
    tidx, _, _ = cute.arch.thread_idx()
    bidx, batch, _ = cute.arch.block_idx()
    row = bidx * 64 + tidx
    blocks = bytes_sfa.shape[2]
    a = bytes_a[batch, row, None].iterator.toint()
    b = bytes_b[batch, 0, None].iterator.toint()
    sfa = bytes_sfa[batch, row, None].iterator.toint()
    sfb = bytes_sfb[batch, 0, None].iterator.toint()
    total = Float32(0)
    for block in range(blocks):
        xa = load(a + block * 8, 2, "b32")
        xb = load(b + block * 8, 2, "b32")
        load(b + block // 2 * 16, 4, "b32")
        dot = Float32(0)
        for word in cutlass.range_constexpr(2):
            for byte in cutlass.range_constexpr(4):
                pa = decode(xa[word] >> (8 * byte), "e2m1x2")
                pb = decode(xb[word] >> (8 * byte), "e2m1x2")
                dot += pa[0] * pb[0] + pa[1] * pb[1]
        sa = load(sfa + block, 1, "u8")
        sb = load(sfb + block, 1, "u8")
        total += dot * (decode(sa[0], "e4m3x2")[0] * decode(sb[0], "e4m3x2")[0])
    c[batch, row] = total.to(cutlass.Float16)


@cute.jit
def launch(a, b, sfa, sfb, c, m: Int32, k: Int32, l: Int32):
    def rows(pointer, count, columns):
        return cute.make_tensor(
            pointer, cute.make_ordered_layout((l, count, columns), order=(2, 1, 0))
        )

    kernel(
        rows(a, m, k // 2),
        rows(b, 128, k // 2),
        rows(sfa, m, k // 16),
        rows(sfb, 128, k // 16),
        cute.make_tensor(c, cute.make_layout((l, m), stride=(m, 1))),
    ).launch(grid=(m // 64, l, 1), block=(64, 1, 1))


def custom_kernel(data):
    a, b, sfa, sfb, _, _, c = data
    pointers = [
        make_ptr(cutlass.Uint8, x.data_ptr(), cute.AddressSpace.gmem, assumed_align=16)
        for x in (a, b, sfa, sfb)
    ]
    pointers.append(make_ptr(cutlass.Float16, c.data_ptr(), cute.AddressSpace.gmem))
    if not hasattr(custom_kernel, "compiled"):
        custom_kernel.compiled = cute.compile(launch, *pointers, a.shape[0], a.shape[1] * 2, 1)
    custom_kernel.compiled(*pointers, a.shape[0], a.shape[1] * 2, a.shape[2])
    return c
