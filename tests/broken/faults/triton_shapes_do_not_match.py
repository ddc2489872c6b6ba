"""Blocks of 128 and of 64 elements are added."""

import triton
import triton.language as tl


@triton.jit
def kernel(c_ptr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = rows + tl.arange(0, 64)
    tl.store(c_ptr + rows, value.to(tl.float16))


def custom_kernel(data):
    c = data[6]
    m, _, l = c.shape
    kernel[(m * l // 128,)](c, BLOCK=128)
    return c
