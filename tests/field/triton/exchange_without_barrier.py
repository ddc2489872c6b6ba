# expect: fail cause=global_race
# quick: yes
"""Threads hand sums to each other through global memory, without tl.debug_barrier in between."""

import torch
import triton
import triton.language as tl

from task import input_t, output_t


@triton.jit
def nibble(code):
    small = tl.where(code & 4 == 0, (code & 3) * 0.5, 2.0 + (code & 1))
    large = 4.0 + 2.0 * (code & 1)
    magnitude = tl.where(code & 6 == 6, large, small)
    return tl.where(code & 8 == 0, magnitude, -magnitude)


@triton.jit
def gemv_kernel(a_ptr, b_ptr, sfa_ptr, sfb_ptr, work_ptr, c_ptr, m, k_bytes, BLOCK: tl.constexpr):
    row, batch = tl.program_id(0), tl.program_id(1)
    k = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, k_bytes, BLOCK):
        ok = start + k < k_bytes
        a = tl.load(a_ptr + (batch * m + row) * k_bytes + start + k, mask=ok, other=0)
        b = tl.load(b_ptr + batch * 128 * k_bytes + start + k, mask=ok, other=0)
        i = (start + k) // 8
        sa = tl.load(sfa_ptr + (batch * m + row) * (k_bytes // 8) + i, mask=ok, other=0.0)
        sb = tl.load(sfb_ptr + batch * 128 * (k_bytes // 8) + i, mask=ok, other=0.0)
        values = nibble(a & 15) * nibble(b & 15) + nibble(a >> 4) * nibble(b >> 4)
        acc += values * sa.to(tl.float32) * sb.to(tl.float32)
    work = work_ptr + (batch * m + row) * BLOCK
    tl.store(work + k, acc)
    half = tl.arange(0, BLOCK // 2)
    first = tl.load(work + half)  # <- fault
    second = tl.load(work + BLOCK - 1 - half)  # <- fault
    tl.store(c_ptr + batch * m + row, tl.sum(first + second).to(tl.float16))


def custom_kernel(data: input_t) -> output_t:
    a, b, sfa, sfb, _, _, c = data
    m, k_bytes, l = a.shape
    work = torch.empty(l, m, 256, device="cuda")
    gemv_kernel[(m, l)](
        a.view(torch.uint8), b.view(torch.uint8), sfa, sfb, work, c, m, k_bytes, BLOCK=256
    )
    return c
