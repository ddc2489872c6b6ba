# expect: pass
"""E2M1 is decoded through a table of 16 floats in shared memory, which the last warp fills."""

import cutlass
import cutlass.cute as cute
import cutlass.utils
from cutlass.cute.runtime import make_ptr


@cute.kernel
def table_kernel(
    a: cute.Tensor, b: cute.Tensor, sfa: cute.Tensor, sfb: cute.Tensor, c: cute.Tensor
):
    t, _, _ = cute.arch.thread_idx()
    bx, bz, _ = cute.arch.block_idx()
    row = bx * 128 + t
    table = cutlass.utils.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(16))
    if t >= 112:
        code = t - 112
        exponent = (code >> 1) & 3
        value = cutlass.Float32(code & 1) * 0.5
        if exponent > 0:
            value = (cutlass.Float32(code & 1) * 0.5 + 1.0) * cutlass.Float32(1 << exponent) * 0.5
        if code >= 8:
            value = -value
        table[code] = value
    cute.arch.sync_threads()

    total = cutlass.Float32(0)
    for block in range(sfa.shape[0]):
        dot = cutlass.Float32(0)
        for i in cutlass.range_constexpr(8):
            x = a[block * 8 + i, row, bz].to(cutlass.Int32)
            y = b[block * 8 + i, 0, bz].to(cutlass.Int32)
            dot += table[x & 15] * table[y & 15]
            dot += table[(x >> 4) & 15] * table[(y >> 4) & 15]
        scale = sfa[block, row, bz].to(cutlass.Float32) * sfb[block, 0, bz].to(cutlass.Float32)
        total += dot * scale
    c[row, bz] = total.to(cutlass.Float16)


@cute.jit
def table_gemv(
    a_ptr, b_ptr, sfa_ptr, sfb_ptr, c_ptr, m: cutlass.Int32, k: cutlass.Int32, l: cutlass.Int32
):
    a = cute.make_tensor(a_ptr, cute.make_layout((k // 2, m, l)))
    b = cute.make_tensor(b_ptr, cute.make_layout((k // 2, 128, l)))
    sfa = cute.make_tensor(sfa_ptr, cute.make_layout((k // 16, m, l)))
    sfb = cute.make_tensor(sfb_ptr, cute.make_layout((k // 16, 128, l)))
    c = cute.make_tensor(c_ptr, cute.make_layout((m, l)))
    table_kernel(a, b, sfa, sfb, c).launch(grid=[m // 128, l, 1], block=[128, 1, 1])


def custom_kernel(data):
    a, b, sfa, sfb, _, _, c = data
    args = [
        make_ptr(cutlass.Uint8, a.data_ptr(), cute.AddressSpace.gmem),
        make_ptr(cutlass.Uint8, b.data_ptr(), cute.AddressSpace.gmem),
        make_ptr(cutlass.Float8E4M3FN, sfa.data_ptr(), cute.AddressSpace.gmem),
        make_ptr(cutlass.Float8E4M3FN, sfb.data_ptr(), cute.AddressSpace.gmem),
        make_ptr(cutlass.Float16, c.data_ptr(), cute.AddressSpace.gmem),
    ]
    table_gemv(*args, a.shape[0], a.shape[1] * 2, a.shape[2])
    return c
