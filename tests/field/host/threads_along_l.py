# expect: pass
"""Threads along k, m and l in one CTA; those whose batch does not exist have nothing to do.

Tensors come in by from_dlpack as they are permuted, with their layout marked dynamic.
"""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack

from task import input_t, output_t

TK, TM, TL = 8, 8, 2


@cute.kernel
def kernel(A: cute.Tensor, B: cute.Tensor, SFA: cute.Tensor, SFB: cute.Tensor, C: cute.Tensor):
    tk, tm, tl = cute.arch.thread_idx()
    bx, by, _ = cute.arch.block_idx()
    row, l = bx * TM + tm, by * TL + tl
    acc = cutlass.Float32(0)
    if l < C.shape[2]:
        for j in cutlass.range(tk, SFA.shape[1], TK):
            a8 = cute.local_tile(A[row, None, l], (8,), (j,))
            b8 = cute.local_tile(B[0, None, l], (8,), (j,))
            a = cute.recast_tensor(a8, cutlass.Float4E2M1FN).load().to(cutlass.Float32)
            b = cute.recast_tensor(b8, cutlass.Float4E2M1FN).load().to(cutlass.Float32)
            sa = cute.recast_tensor(
                cute.local_tile(SFA[row, None, l], (1,), (j,)), cutlass.Float8E4M3FN
            )
            sb = cute.recast_tensor(
                cute.local_tile(SFB[0, None, l], (1,), (j,)), cutlass.Float8E4M3FN
            )
            dot = (a * b).reduce(cute.ReductionOp.ADD, 0.0, 0)
            acc += dot * sa[0].to(cutlass.Float32) * sb[0].to(cutlass.Float32)
    for offset in cutlass.range_constexpr(3):
        acc += cute.arch.shuffle_sync_down(acc, offset=4 >> offset)
    if l < C.shape[2] and tk == 0:
        C[row, 0, l] = acc.to(cutlass.Float16)


@cute.jit
def gemv(A: cute.Tensor, B: cute.Tensor, SFA: cute.Tensor, SFB: cute.Tensor, C: cute.Tensor):
    m, _, l = C.shape
    kernel(A, B, SFA, SFB, C).launch(
        grid=(cute.ceil_div(m, TM), cute.ceil_div(l, TL), 1), block=(TK, TM, TL)
    )


cache = {}


def custom_kernel(data: input_t) -> output_t:
    a, b, sfa, sfb, _, _, c = data
    tensors = [
        from_dlpack(x.view(torch.uint8), assumed_align=16).mark_layout_dynamic(leading_dim=1)
        for x in (a, b, sfa, sfb)
    ]
    tensors.append(from_dlpack(c).mark_layout_dynamic(leading_dim=0))
    if "gemv" not in cache:
        cache["gemv"] = cute.compile(gemv, *tensors)
    cache["gemv"](*tensors)
    return c
