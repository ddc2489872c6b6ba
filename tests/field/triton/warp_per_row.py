# expect: pass
# quick: yes
"""A warp a row, values looked up in a table in global memory."""

import torch
import triton
import triton.language as tl

from task import input_t, output_t

table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


@triton.jit
def gemv_kernel(a_ptr, b_ptr, sfa_ptr, sfb_ptr, table_ptr, c_ptr, m, k_bytes: tl.constexpr):
    row, batch = tl.program_id(0), tl.program_id(1)
    total = 0.0
    for start in range(0, k_bytes, 32):
        k = start + tl.arange(0, 32)
        a = tl.load(a_ptr + (batch * m + row) * k_bytes + k)
        b = tl.load(b_ptr + batch * 128 * k_bytes + k)
        sa = tl.load(sfa_ptr + (batch * m + row) * (k_bytes // 8) + k // 8).to(tl.float32)
        sb = tl.load(sfb_ptr + batch * 128 * (k_bytes // 8) + k // 8).to(tl.float32)
        low = tl.load(table_ptr + (a & 15)) * tl.load(table_ptr + (b & 15))
        high = tl.load(table_ptr + (a >> 4)) * tl.load(table_ptr + (b >> 4))
        total += tl.sum((low + high) * sa * sb)
    tl.store(c_ptr + batch * m + row, total)


def custom_kernel(data: input_t) -> output_t:
    a, b, sfa, sfb, _, _, c = data
    m, k_bytes, l = a.shape
    on_device = table.to(a.device)
    gemv_kernel[(m, l)](
        a.view(torch.uint8), b.view(torch.uint8), sfa, sfb, on_device, c, m, k_bytes, num_warps=1
    )
    return c
