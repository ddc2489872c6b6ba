# expect: pass finding=unset_register
"""Eight partial sums a row in a workspace, of which k decides how many there are.

All eight places are stored, set or not; the second kernel adds up those that are set.
"""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import make_ptr

ROWS = 64
SLOTS = 8


@cute.kernel
def partial_kernel(
    mA: cute.Tensor,
    mB: cute.Tensor,
    mSFA: cute.Tensor,
    mSFB: cute.Tensor,
    mW: cute.Tensor,
    k: cutlass.Int32,
):
    tidx, _, _ = cute.arch.thread_idx()
    bidx, l, _ = cute.arch.block_idx()
    row = bidx * ROWS + tidx
    partial = cute.make_rmem_tensor((SLOTS,), cutlass.Float32)
    used = cutlass.min(k // 64 - 3, SLOTS)
    for i in range(used):
        partial[i] = cutlass.Float32(0)
    for tile in range(k // 64):
        acc = cutlass.Float32(0)
        a = cute.local_tile(mA[row, None, l], (64,), (tile,)).load().to(cutlass.Float32)
        b = cute.local_tile(mB[0, None, l], (64,), (tile,)).load().to(cutlass.Float32)
        sfa = cute.local_tile(mSFA[row, None, l], (4,), (tile,)).load().to(cutlass.Float32)
        sfb = cute.local_tile(mSFB[0, None, l], (4,), (tile,)).load().to(cutlass.Float32)
        for j in cutlass.range_constexpr(4):
            dot = cutlass.Float32(0)
            for i in cutlass.range_constexpr(16):
                dot += a[16 * j + i] * b[16 * j + i]
            acc += dot * sfa[j] * sfb[j]
        partial[tile % used] = partial[tile % used] + acc
    for i in cutlass.range_constexpr(SLOTS):
        mW[row, l, i] = partial[i]  # <- fault


@cute.kernel
def sum_kernel(mW: cute.Tensor, mC: cute.Tensor, k: cutlass.Int32):
    tidx, _, _ = cute.arch.thread_idx()
    bidx, l, _ = cute.arch.block_idx()
    row = bidx * ROWS + tidx
    total = cutlass.Float32(0)
    for i in range(cutlass.min(k // 64 - 3, SLOTS)):
        total += mW[row, l, i]
    mC[row, l] = total.to(cutlass.Float16)


@cute.jit
def gemv(
    a: cute.Pointer,
    b: cute.Pointer,
    sfa: cute.Pointer,
    sfb: cute.Pointer,
    w: cute.Pointer,
    c: cute.Pointer,
    m: cutlass.Int32,
    k: cutlass.Int32,
    l: cutlass.Int32,
):
    n = cute.assume(k, divby=64)
    s = cute.assume(k // 16, divby=4)
    mk = cute.assume(m * k, divby=64)
    ms = cute.assume(m * s, divby=4)
    mA = cute.make_tensor(a, cute.make_layout((m, n, l), stride=(n, 1, mk)))
    mB = cute.make_tensor(b, cute.make_layout((128, n, l), stride=(n, 1, 128 * n)))
    mSFA = cute.make_tensor(sfa, cute.make_layout((m, s, l), stride=(s, 1, ms)))
    mSFB = cute.make_tensor(sfb, cute.make_layout((128, s, l), stride=(s, 1, 128 * s)))
    mW = cute.make_tensor(w, cute.make_layout((m, l, SLOTS)))
    mC = cute.make_tensor(c, cute.make_layout((m, l)))
    partial_kernel(mA, mB, mSFA, mSFB, mW, k).launch(grid=(m // ROWS, l, 1), block=(ROWS, 1, 1))
    sum_kernel(mW, mC, k).launch(grid=(m // ROWS, l, 1), block=(ROWS, 1, 1))


compiled = None


def custom_kernel(data):
    global compiled
    a, b, sfa, sfb, _, _, c = data
    m, l = c.shape[0], c.shape[2]
    workspace = torch.empty(SLOTS * m * l, dtype=torch.float32, device=a.device)
    args = [
        make_ptr(dtype, tensor.data_ptr(), cute.AddressSpace.gmem, assumed_align=16)
        for dtype, tensor in (
            (cutlass.Float4E2M1FN, a),
            (cutlass.Float4E2M1FN, b),
            (cutlass.Float8E4M3FN, sfa),
            (cutlass.Float8E4M3FN, sfb),
            (cutlass.Float32, workspace),
            (cutlass.Float16, c),
        )
    ]
    args += [m, a.shape[1] * 2, l]
    if compiled is None:
        compiled = cute.compile(gemv, *args)
    compiled(*args)
    return c
