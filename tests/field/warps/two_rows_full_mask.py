# expect: pass
"""Sixteen lanes a row, two rows a warp, butterfly shuffles that never leave a half.

The shuffle is inline PTX with the mask of all lanes, executed by all lanes.
"""

import cutlass
import cutlass.cute as cute
import torch
from cutlass import Float32, Int32
from cutlass._mlir.dialects import llvm
from cutlass.cute.runtime import make_ptr
from cutlass.cutlass_dsl import T, dsl_user_op

LANES_PER_ROW = 16
ROWS_PER_CTA = 8
THREADS = LANES_PER_ROW * ROWS_PER_CTA
MASK = "0xffffffff"


@dsl_user_op
def shfl_bfly(value: Float32, offset: int, *, loc=None, ip=None) -> Float32:
    return Float32(
        llvm.inline_asm(
            T.f32(),
            [Float32(value).ir_value(loc=loc, ip=ip)],
            f"shfl.sync.bfly.b32 $0, $1, {offset}, 31, {MASK};",
            "=f,f",
            has_side_effects=True,
            is_align_stack=False,
            asm_dialect=llvm.AsmDialect.AD_ATT,
            loc=loc,
            ip=ip,
        )
    )


@cute.kernel
def kernel(mA: cute.Tensor, mB: cute.Tensor, mSFA: cute.Tensor, mSFB: cute.Tensor, mC: cute.Tensor):
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, batch = cute.arch.block_idx()
    lane = tidx % LANES_PER_ROW
    row = bidx * ROWS_PER_CTA + tidx // LANES_PER_ROW
    blocks = cute.size(mSFA, mode=[1])
    total = Float32(0.0)
    for block in cutlass.range(lane, blocks, LANES_PER_ROW):
        a = cute.local_tile(mA[row, None, batch], (16,), (block,)).load().to(Float32)
        b = cute.local_tile(mB[0, None, batch], (16,), (block,)).load().to(Float32)
        dot = Float32(0.0)
        for i in cutlass.range_constexpr(16):
            dot += a[i] * b[i]
        total += dot * (mSFA[row, block, batch].to(Float32) * mSFB[0, block, batch].to(Float32))
    for offset in (8, 4, 2, 1):
        total += shfl_bfly(total, offset)
    if lane == 0:
        mC[row, 0, batch] = total.to(cutlass.Float16)


@cute.jit
def gemv(a, b, sfa, sfb, c, m: Int32, k: Int32, l: Int32):
    def tensor(pointer, rows, columns, step):
        columns = cute.assume(columns, divby=step)
        layout = cute.make_layout(
            (rows, columns, l), stride=(columns, 1, cute.assume(rows * columns, divby=step))
        )
        return cute.make_tensor(pointer, layout)

    kernel(
        tensor(a, m, k, 64),
        tensor(b, 128, k, 64),
        tensor(sfa, m, k // 16, 4),
        tensor(sfb, 128, k // 16, 4),
        tensor(c, m, 1, 1),
    ).launch(grid=(m // ROWS_PER_CTA, 1, l), block=(THREADS, 1, 1))


compiled = None


def custom_kernel(data):
    global compiled
    a, b, sfa, sfb, _, _, c = data
    m, half, l = a.shape
    types = (cutlass.Float4E2M1FN,) * 2 + (cutlass.Float8E4M3FN,) * 2 + (cutlass.Float16,)
    ptrs = [
        make_ptr(t, x.data_ptr(), cute.AddressSpace.gmem, assumed_align=16)
        for t, x in zip(types, (a, b, sfa, sfb, c))
    ]
    if compiled is None:
        compiled = cute.compile(gemv, *ptrs, m, half * 2, l)
    compiled(*ptrs, m, half * 2, l)
    return c


if __name__ == "__main__":
    print("needs the inputs of the contest", torch.__version__)
