# expect: right
"""Four warps store 16 words to each of their lanes, double what they load again."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.nvgpu import tcgen05
from cutlass.cute.runtime import from_dlpack

COLUMNS = 32


@cute.kernel
def kernel(mIn: cute.Tensor, mOut: cute.Tensor):
    tidx, _, _ = cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    smem = cutlass.utils.SmemAllocator()
    holder = smem.allocate_array(cutlass.Int32, 1)
    if warp == 0:
        cute.arch.alloc_tmem(COLUMNS, holder)
        cute.arch.relinquish_tmem_alloc_permit()
    cute.arch.sync_threads()
    tmem = cute.arch.retrieve_tmem_ptr(cutlass.Float32, 16, holder)
    layout = cute.make_layout(((128, 16), 1, 1), stride=((65536, 1), 0, 0))
    tWords = cute.make_tensor(tmem, layout)
    store = tcgen05.make_tmem_copy(
        cute.make_copy_atom(tcgen05.St32x32bOp(tcgen05.Repetition.x16), cutlass.Float32), tWords
    )
    load = tcgen05.make_tmem_copy(
        cute.make_copy_atom(tcgen05.Ld32x32bOp(tcgen05.Repetition.x16), cutlass.Float32), tWords
    )
    tStored = store.get_slice(tidx).partition_D(tWords)
    tLoaded = load.get_slice(tidx).partition_S(tWords)
    of_store = store.get_slice(tidx).partition_S(mIn)
    of_load = load.get_slice(tidx).partition_D(mOut)
    rIn = cute.make_rmem_tensor(of_store.shape, cutlass.Float32)
    rOut = cute.make_rmem_tensor(of_load.shape, cutlass.Float32)
    cute.autovec_copy(of_store, rIn)
    cute.copy(store, rIn, tStored)
    cute.arch.fence_view_async_tmem_store()
    cute.copy(load, tLoaded, rOut)
    cute.arch.fence_view_async_tmem_load()
    rOut.store(rOut.load() * 2)
    cute.autovec_copy(rOut, of_load)
    cute.arch.sync_threads()
    if warp == 0:
        cute.arch.dealloc_tmem(tmem, COLUMNS)


@cute.jit
def launch(mIn: cute.Tensor, mOut: cute.Tensor):
    shape = cute.make_layout(((128, 16), 1, 1), stride=((16, 1), 0, 0))
    tensors = [cute.make_tensor(each.iterator, shape) for each in (mIn, mOut)]
    kernel(tensors[0], tensors[1]).launch(grid=(1, 1, 1), block=(128, 1, 1))


def run():
    x = torch.randn(128, 16)
    out = torch.zeros(128, 16, device="cuda")
    launch(from_dlpack(x.cuda()), from_dlpack(out))
    return out, 2 * x
