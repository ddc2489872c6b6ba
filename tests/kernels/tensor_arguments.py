#!POPCORN leaderboard nvfp4_gemv
#!POPCORN gpu NVIDIA
"""Tensors as arguments: from_dlpack hands shapes and strides over, and no pointers are made.

The kernel is a warp a row in CuTe's own types. `dynamic` keeps the sizes out of the compiled code,
so that one compilation serves all shapes, and says by what the columns can be divided, so that the
compiler still loads 16 bytes at once. Converting the tensors takes the host longer, each call, than
passing addresses does.

Needs the FP4 conversions of sm_100, and a from_dlpack that knows torch's FP4 type (CuTe DSL 4.5.2
and 4.8.1 have one).
"""

import functools
from typing import Any

import cutlass
import cutlass.cute as cute
import torch
from cutlass import Float16, Float32
from cutlass.cute.runtime import from_dlpack

from task import input_t, output_t

WARPS = 4  # of a CTA, and its rows
BLOCK = 16  # values that share a scale
VALUES = 64  # that a lane loads at a time, four blocks


@cute.kernel
def gemv_kernel(
    mA: cute.Tensor,  # [m, k, l] Float4E2M1FN
    mB: cute.Tensor,  # [128, k, l] Float4E2M1FN, row 0 is the vector
    mSFA: cute.Tensor,  # [m, k / 16, l] Float8E4M3FN
    mSFB: cute.Tensor,  # [128, k / 16, l] Float8E4M3FN
    mC: cute.Tensor,  # [m, 1, l] Float16
) -> None:
    lane, warp, _ = cute.arch.thread_idx()
    bidx, _, batch = cute.arch.block_idx()
    row = bidx * WARPS + warp

    total = Float32(0)
    for group in cutlass.range(lane, mA.shape[1] // VALUES, 32):
        gA = cute.local_tile(mA[row, None, batch], (VALUES,), (group,))
        gB = cute.local_tile(mB[0, None, batch], (VALUES,), (group,))
        gSFA = cute.local_tile(mSFA[row, None, batch], (VALUES // BLOCK,), (group,))
        gSFB = cute.local_tile(mSFB[0, None, batch], (VALUES // BLOCK,), (group,))
        a, b = gA.load().to(Float32), gB.load().to(Float32)
        sfa, sfb = gSFA.load().to(Float32), gSFB.load().to(Float32)
        for j in cutlass.range_constexpr(VALUES // BLOCK):
            inner = Float32(0)
            for i in cutlass.range_constexpr(BLOCK * j, BLOCK * (j + 1)):
                inner += a[i] * b[i]
            total += inner * (sfa[j] * sfb[j])

    for distance in (16, 8, 4, 2, 1):
        total += cute.arch.shuffle_sync_bfly(total, offset=distance)
    if lane == 0:
        mC[row, 0, batch] = total.to(Float16)


@cute.jit
def gemv(
    mA: cute.Tensor, mB: cute.Tensor, mSFA: cute.Tensor, mSFB: cute.Tensor, mC: cute.Tensor
) -> None:
    """Launch the kernel; m and l come from c, [m, 1, l]."""
    grid = (mC.shape[0] // WARPS, 1, mC.shape[2])
    gemv_kernel(mA, mB, mSFA, mSFB, mC).launch(grid=grid, block=(32, WARPS, 1))


def dynamic(tensor: torch.Tensor, divisibility: int) -> Any:
    """[rows, columns, l], stored as [l, rows, columns]: a CuTe tensor with no size fixed.

    divisibility divides columns, counted in elements: an FP4 tensor has twice torch's columns.
    """
    dynamic_layout = from_dlpack(tensor, assumed_align=16).mark_layout_dynamic(leading_dim=1)
    return dynamic_layout.mark_compact_shape_dynamic(
        mode=1, stride_order=(2, 0, 1), divisibility=divisibility
    )


def arguments(a: Any, b: Any, sfa: Any, sfb: Any, c: Any) -> list[Any]:
    """The contest's tensors as gemv takes them. c has rows of one element, so m leads."""
    inputs = [dynamic(*each) for each in ((a, 64), (b, 64), (sfa, 4), (sfb, 4))]
    return [*inputs, from_dlpack(c).mark_layout_dynamic(leading_dim=0)]


@functools.cache
def compiled(device: torch.device) -> Any:
    """gemv, compiled once for all shapes, from tensors laid out as the contest's are."""

    def empty(rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty((1, rows, columns), dtype=dtype, device=device).permute(1, 2, 0)

    a = empty(128, 32, torch.float4_e2m1fn_x2)
    sfa = empty(128, 4, torch.float8_e4m3fn)
    return cute.compile(gemv, *arguments(a, a, sfa, sfa, empty(128, 1, torch.float16)))


def custom_kernel(data: input_t) -> output_t:
    a, b, sfa, sfb, _, _, c = data
    compiled(c.device)(*arguments(a, b, sfa, sfb, c))
    return c
