# expect: right
"""Rank 1 sends a word a thread to rank 0 by st.async, whose barrier counts the bytes."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def kernel(mIn: cute.Tensor, mOut: cute.Tensor):
    tidx, _, _ = cute.arch.thread_idx()
    rank = cute.arch.block_idx_in_cluster()
    smem = cutlass.utils.SmemAllocator()
    sInbox = smem.allocate_tensor(cutlass.Int32, cute.make_layout(64), byte_alignment=16)
    bar = smem.allocate_array(cutlass.Int64, 1)
    if tidx == 0:
        cute.arch.mbarrier_init(bar, 1)
        cute.arch.mbarrier_init_fence()
        cute.arch.mbarrier_arrive_and_expect_tx(bar, 256)
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()
    if rank == 1:
        cute.arch.store_async_dsmem(sInbox.iterator + tidx, mIn[tidx], bar, 0)
    else:
        cute.arch.mbarrier_wait(bar, 0)
        mOut[tidx] = sInbox[63 - tidx]


@cute.jit
def launch(mIn: cute.Tensor, mOut: cute.Tensor):
    kernel(mIn, mOut).launch(grid=(2, 1, 1), block=(64, 1, 1), cluster=(2, 1, 1))


def run():
    x = torch.randint(0, 99, (64,), dtype=torch.int32)
    out = torch.zeros(64, dtype=torch.int32, device="cuda")
    launch(from_dlpack(x.cuda()), from_dlpack(out))
    return out, x.flip(0)
