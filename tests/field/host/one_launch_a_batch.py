# expect: pass
"""A launch a batch from Python; pointers are moved on by hand, in bytes.

The kernel copies by a tiled copy: 4 threads x 16 bytes of a row, 32 rows a CTA.
"""

import cutlass
import cutlass.cute as cute
import cutlass.torch as cutlass_torch
from cutlass.cute.runtime import make_ptr

ROWS, THREADS_K, WORDS = 32, 4, 4


@cute.kernel
def kernel(mA, mB, mSFA, mSFB, mC, tiled_copy: cute.TiledCopy):
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    thread = tiled_copy.get_slice(tidx)
    tiler = (ROWS, THREADS_K * WORDS)
    # A CTA's tiles of 128 values along k.
    gA = cute.local_tile(mA, tiler, (bidx, None))
    tA = thread.partition_S(gA)
    slot, local_row = tidx % THREADS_K, tidx // THREADS_K
    row = bidx * ROWS + local_row
    acc = cutlass.Float32(0)
    fragment = cute.make_rmem_tensor_like(tA[None, None, None, 0])
    for tile in range(cute.size(gA, mode=[2])):
        cute.copy(tiled_copy, tA[None, None, None, tile], fragment)
        words = cute.make_rmem_tensor((WORDS,), cutlass.Uint32)
        for i in cutlass.range_constexpr(WORDS):
            words[i] = fragment[i]
        a = cute.recast_tensor(words, cutlass.Float4E2M1FN).load().to(cutlass.Float32)
        index = tile * THREADS_K + slot
        b = cute.local_tile(mB, (32,), (index,)).load().to(cutlass.Float32)
        for j in cutlass.range_constexpr(2):
            dot = cutlass.Float32(0)
            for i in cutlass.range_constexpr(16):
                dot += a[16 * j + i] * b[16 * j + i]
            sfa = mSFA[row, 2 * index + j].to(cutlass.Float32)
            acc += dot * (sfa * mSFB[2 * index + j].to(cutlass.Float32))
    acc += cute.arch.shuffle_sync_bfly(acc, offset=2)
    acc += cute.arch.shuffle_sync_bfly(acc, offset=1)
    if slot == 0:
        mC[row] = acc.to(cutlass.Float16)


@cute.jit
def gemv(a, b, sfa, sfb, c, m: cutlass.Int32, k: cutlass.Int32, stream):
    w = cute.assume(k // 8, divby=16)
    mA = cute.make_tensor(a, cute.make_layout((m, w), stride=(w, 1)))
    mB = cute.make_tensor(b, cute.make_layout(cute.assume(k, divby=128)))
    mSFA = cute.make_tensor(sfa, cute.make_layout((m, k // 16), stride=(k // 16, 1)))
    mSFB = cute.make_tensor(sfb, cute.make_layout(k // 16))
    mC = cute.make_tensor(c, cute.make_layout(m))
    atom = cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), cutlass.Uint32, num_bits_per_copy=128)
    tiled_copy = cute.make_tiled_copy_tv(
        atom,
        cute.make_layout((ROWS, THREADS_K), stride=(THREADS_K, 1)),
        cute.make_layout((1, WORDS)),
    )
    kernel(mA, mB, mSFA, mSFB, mC, tiled_copy).launch(
        grid=(m // ROWS, 1, 1), block=(ROWS * THREADS_K, 1, 1), stream=stream
    )


compiled = None


def custom_kernel(data):
    global compiled
    a, b, sfa, sfb, _, _, c = data
    m, half, l = a.shape
    stream = cutlass_torch.current_stream()
    sizes = (m * half, 128 * half, m * half // 8, 128 * half // 8, 2 * m)
    types = (cutlass.Uint32, cutlass.Float4E2M1FN, cutlass.Float8E4M3FN)
    types += (cutlass.Float8E4M3FN, cutlass.Float16)
    for batch in range(l):
        args = [
            make_ptr(dtype, x.data_ptr() + batch * size, cute.AddressSpace.gmem, assumed_align=16)
            for dtype, x, size in zip(types, (a, b, sfa, sfb, c), sizes)
        ]
        args += [m, 2 * half, stream]
        if compiled is None:
            compiled = cute.compile(gemv, *args)
        compiled(*args)
    return c
