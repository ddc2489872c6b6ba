# expect: pass
"""The template: one thread a row, 64 elements of k a step, everything in float32.

Raw pointers come in, the scales are read from their permuted tensors through the blocked layout,
in which 16 neighbouring k have one scale.
"""

import cutlass
import cutlass.cute as cute
import cutlass.utils.blockscaled_layout as blockscaled_utils
from cutlass.cute.runtime import make_ptr

from task import input_t, output_t

tiler_mnk = (128, 1, 64)
threads = 128
ab_dtype = cutlass.Float4E2M1FN
sf_dtype = cutlass.Float8E4M3FN
c_dtype = cutlass.Float16


@cute.kernel
def kernel(mA: cute.Tensor, mB: cute.Tensor, mSFA: cute.Tensor, mSFB: cute.Tensor, mC: cute.Tensor):
    bidx, _, bidz = cute.arch.block_idx()
    tidx, _, _ = cute.arch.thread_idx()

    # (BM, BK, rest_m, rest_k, l)
    gA = cute.local_tile(mA, cute.slice_(tiler_mnk, (None, 0, None)), (None, None, None))
    gSFA = cute.local_tile(mSFA, cute.slice_(tiler_mnk, (None, 0, None)), (None, None, None))
    # (BN, BK, rest_n, rest_k, l)
    gB = cute.local_tile(mB, cute.slice_(tiler_mnk, (0, None, None)), (None, None, None))
    gSFB = cute.local_tile(mSFB, cute.slice_(tiler_mnk, (0, None, None)), (None, None, None))
    # (BM, BN, rest_m, rest_n, l)
    gC = cute.local_tile(mC, cute.slice_(tiler_mnk, (None, None, 0)), (None, None, None))

    tC = cute.make_tensor(gC[tidx, None, bidx, 0, bidz].iterator, cute.make_layout(1))
    res = cute.zeros_like(tC, cutlass.Float32)
    k_tiles = cute.size(gA, mode=[3])
    for k_tile in range(k_tiles):
        tA = gA[tidx, None, bidx, k_tile, bidz]
        tB = gB[0, None, 0, k_tile, bidz]
        tSFA = gSFA[tidx, None, bidx, k_tile, bidz]
        tSFB = gSFB[0, None, 0, k_tile, bidz]

        rA = cute.make_rmem_tensor_like(tA, cutlass.Float32)
        rB = cute.make_rmem_tensor_like(tB, cutlass.Float32)
        rSFA = cute.make_rmem_tensor_like(tSFA, cutlass.Float32)
        rSFB = cute.make_rmem_tensor_like(tSFB, cutlass.Float32)
        rA.store(tA.load().to(cutlass.Float32))
        rB.store(tB.load().to(cutlass.Float32))
        rSFA.store(tSFA.load().to(cutlass.Float32))
        rSFB.store(tSFB.load().to(cutlass.Float32))

        for i in cutlass.range_constexpr(tiler_mnk[2]):
            res += rA[i] * rSFA[i] * rB[i] * rSFB[i]
    tC.store(res.to(cutlass.Float16))


@cute.jit
def launch(
    a_ptr: cute.Pointer,
    b_ptr: cute.Pointer,
    sfa_ptr: cute.Pointer,
    sfb_ptr: cute.Pointer,
    c_ptr: cute.Pointer,
    problem: tuple,
):
    m, k, l = problem
    a = cute.make_tensor(
        a_ptr,
        cute.make_layout(
            (m, cute.assume(k, 32), l), stride=(cute.assume(k, 32), 1, cute.assume(m * k, 32))
        ),
    )
    n = 128
    b = cute.make_tensor(
        b_ptr,
        cute.make_layout(
            (n, cute.assume(k, 32), l), stride=(cute.assume(k, 32), 1, cute.assume(n * k, 32))
        ),
    )
    c = cute.make_tensor(c_ptr, cute.make_layout((m, 1, l), stride=(1, 1, m)))
    sfa = cute.make_tensor(sfa_ptr, blockscaled_utils.tile_atom_to_shape_SF(a.shape, 16))
    sfb = cute.make_tensor(sfb_ptr, blockscaled_utils.tile_atom_to_shape_SF(b.shape, 16))
    kernel(a, b, sfa, sfb, c).launch(
        grid=(cute.ceil_div(m, tiler_mnk[0]), 1, l), block=(threads, 1, 1), cluster=(1, 1, 1)
    )


_compiled = None


def custom_kernel(data: input_t) -> output_t:
    global _compiled
    a, b, _, _, sfa_permuted, sfb_permuted, c = data
    m, half_k, l = a.shape
    pointers = [
        make_ptr(dtype, tensor.data_ptr(), cute.AddressSpace.gmem, assumed_align=align)
        for dtype, tensor, align in (
            (ab_dtype, a, 16),
            (ab_dtype, b, 16),
            (sf_dtype, sfa_permuted, 32),
            (sf_dtype, sfb_permuted, 32),
            (c_dtype, c, 16),
        )
    ]
    if _compiled is None:
        _compiled = cute.compile(launch, *pointers, (0, 0, 0))
    _compiled(*pointers, (m, half_k * 2, l))
    return c
