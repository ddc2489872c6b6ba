#!POPCORN leaderboard nvfp4_gemv
#!POPCORN gpu NVIDIA
#!EXPECT fail cause=mismatch|unwritten_output
"""Split K adds to torch.empty of 8 MiB"""

import torch
import triton
import triton.language as tl


@triton.jit
def val(n):
    mag = n & 7
    e = mag >> 1
    f = tl.where(
        e == 0,
        (mag & 1).to(tl.float32) * 0.5,
        (1 << e).to(tl.float32) * (0.5 + 0.25 * (mag & 1).to(tl.float32)),
    )
    return tl.where(n > 7, -f, f)


@triton.jit
def gemv(A, B, SA, SB, C, W, m, kb, MB: tl.constexpr, KB: tl.constexpr, SPLIT: tl.constexpr):
    r = tl.program_id(0) * MB + tl.arange(0, MB)
    z = tl.program_id(1).to(tl.int64)
    sp = tl.program_id(2)
    R = z * m + r
    acc = tl.zeros((MB,), tl.float32)
    for s in range(sp * KB, kb, KB * SPLIT):
        q = s + tl.arange(0, KB)
        ok = q < kb
        a = tl.load(A + R[:, None] * kb + q[None, :], mask=ok[None, :], other=0).to(tl.int32)
        b = tl.load(B + z * 128 * kb + q, mask=ok, other=0).to(tl.int32)
        sa = (
            tl.load(SA + R[:, None] * (kb // 8) + q[None, :] // 8, mask=ok[None, :], other=0)
            .to(tl.float8e4nv, bitcast=True)
            .to(tl.float32)
        )
        sb = (
            tl.load(SB + z * 128 * (kb // 8) + q // 8, mask=ok, other=0)
            .to(tl.float8e4nv, bitcast=True)
            .to(tl.float32)
        )
        p = val(a & 15) * val(b & 15)[None, :] + val(a >> 4) * val(b >> 4)[None, :]
        acc += tl.sum(p * sa * sb[None, :], 1)
    tl.atomic_add(W + R, acc)


def custom_kernel(data):
    a, b, sfa, sfb, _, _, c = data
    m, kb, l = a.shape
    A, B, SA, SB = (t.view(torch.uint8) for t in (a, b, sfa, sfb))
    W = torch.empty(1 << 21, device="cuda")
    gemv[(m // 16, l, 2)](A, B, SA, SB, c, W, m, kb, 16, 256, 2)
    c.copy_(W[: m * l].view(l, m, 1).permute(1, 2, 0))
    return c
