"""A name that is not defined, found when the kernel is compiled."""

import triton
import triton.language as tl


@triton.jit
def kernel(c_ptr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(c_ptr + row, rows.to(tl.float16))


def custom_kernel(data):
    c = data[6]
    m, _, l = c.shape
    kernel[(m * l // 128,)](c, BLOCK=128)
    return c
