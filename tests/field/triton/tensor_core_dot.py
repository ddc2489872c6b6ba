# expect: pass
"""tl.dot on f16: sixteen blocks of k at a time, of which each column of b's matrix holds one.

The sums of blocks are exact; they are scaled in float32.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def e2m1(code):
    exponent, mantissa = (code >> 1) & 3, code & 1
    normal = (1.0 + 0.5 * mantissa) * (1 << exponent) * 0.5
    value = tl.where(exponent == 0, 0.5 * mantissa, normal)
    return tl.where((code & 8) != 0, -value, value)


@triton.jit
def gemv(a, b, sfa, sfb, c, m, k, ROWS: tl.constexpr, BLOCKS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    batch = tl.program_id(1)
    inside = (rows < m)[:, None]
    row = (batch * m + rows).to(tl.int64)[:, None]
    at, block = tl.arange(0, 8 * BLOCKS), tl.arange(0, BLOCKS)
    total = tl.zeros((ROWS, BLOCKS), tl.float32)
    for start in range(0, k // 16, BLOCKS):
        byte, scale = 8 * start + at, start + block
        valid, known = (byte < k // 2), (scale < k // 16)
        x = tl.load(a + row * (k // 2) + byte[None, :], mask=inside & valid[None, :], other=0)
        y = tl.load(b + batch * 128 * (k // 2) + byte, mask=valid, other=0)
        s = tl.load(sfa + row * (k // 16) + scale[None, :], mask=inside & known[None, :], other=0.0)
        t = tl.load(sfb + batch * 128 * (k // 16) + scale, mask=known, other=0.0)
        sums = tl.zeros((ROWS, BLOCKS), tl.float32)
        own = at[:, None] // 8 == block[None, :]
        for half in tl.static_range(2):
            weights = e2m1((x.to(tl.int32) >> 4 * half) & 15).to(tl.float16)
            vector = e2m1((y.to(tl.int32) >> 4 * half) & 15)
            matrix = tl.where(own, vector[:, None], 0.0).to(tl.float16)
            sums = tl.dot(weights, matrix, sums)
        total += sums * (s.to(tl.float32) * t.to(tl.float32)[None, :])
    tl.store(c + batch * m + rows, tl.sum(total, 1).to(tl.float16), mask=rows < m)


def custom_kernel(data):
    a, b, sfa, sfb, _, _, c = data
    m, _, l = c.shape
    k = 2 * a.shape[1]
    a, b = (x.view(torch.uint8).permute(2, 0, 1) for x in (a, b))
    sfa, sfb = (x.permute(2, 0, 1) for x in (sfa, sfb))
    grid = (triton.cdiv(m, 16), l)
    gemv[grid](a, b, sfa, sfb, c.permute(2, 0, 1), m, k, ROWS=16, BLOCKS=16, num_warps=2)
    return c
