# expect: pass
# quick: yes
"""A program for a block of rows: nibbles decoded by arithmetic, scales cast from bytes, masks."""

import torch
import triton
import triton.language as tl

from task import input_t, output_t


@triton.jit
def e2m1(code):
    """The value of a 4-bit code."""
    exponent = (code >> 1) & 3
    mantissa = (code & 1).to(tl.float32)
    power = (1 << exponent).to(tl.float32)
    magnitude = tl.where(exponent == 0, 0.5 * mantissa, power * (0.5 + 0.25 * mantissa))
    return tl.where(code >= 8, -magnitude, magnitude)


@triton.jit
def gemv_kernel(
    a_ptr, b_ptr, sfa_ptr, sfb_ptr, c_ptr,
    m, k_bytes,
    stride_am, stride_al, stride_bl, stride_sam, stride_sal, stride_sbl, stride_cl,
    BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    batch = tl.program_id(1).to(tl.int64)
    row_mask = rows < m
    a_row = a_ptr + batch * stride_al + rows[:, None] * stride_am
    sfa_row = sfa_ptr + batch * stride_sal + rows[:, None] * stride_sam
    total = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, k_bytes, BLOCK_K):
        columns = start + tl.arange(0, BLOCK_K)
        inside = columns < k_bytes
        mask = row_mask[:, None] & inside[None, :]
        a = tl.load(a_row + columns[None, :], mask=mask, other=0)
        b = tl.load(b_ptr + batch * stride_bl + columns, mask=inside, other=0)
        sa = tl.load(sfa_row + columns[None, :] // 8, mask=mask, other=0)
        sb = tl.load(sfb_ptr + batch * stride_sbl + columns // 8, mask=inside, other=0)
        low = e2m1(a & 15) * e2m1(b & 15)[None, :]
        high = e2m1(a >> 4) * e2m1(b >> 4)[None, :]
        scale = sa.to(tl.float8e4nv, bitcast=True).to(tl.float32)
        scale *= sb.to(tl.float8e4nv, bitcast=True).to(tl.float32)[None, :]
        total += tl.sum((low + high) * scale, axis=1)
    tl.store(c_ptr + batch * stride_cl + rows, total.to(tl.float16), mask=row_mask)


def custom_kernel(data: input_t) -> output_t:
    a, b, sfa, sfb, _, _, c = data
    m, k_bytes, l = a.shape
    a, b, sfa, sfb = (each.view(torch.uint8) for each in (a, b, sfa, sfb))
    gemv_kernel[lambda meta: (triton.cdiv(m, meta["BLOCK_M"]), l)](
        a, b, sfa, sfb, c,
        m, k_bytes,
        a.stride(0), a.stride(2), b.stride(2), sfa.stride(0), sfa.stride(2), sfb.stride(2),
        c.stride(2),
        BLOCK_M=16, BLOCK_K=128,
    )  # fmt: skip
    return c
