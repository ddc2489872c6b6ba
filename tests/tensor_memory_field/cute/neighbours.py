# expect: right
# quick: yes
"""Each of four CTAs adds the numbers of the next one in its cluster to its own."""

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def kernel(mIn: cute.Tensor, mOut: cute.Tensor):
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    rank = cute.arch.block_idx_in_cluster()
    smem = cutlass.utils.SmemAllocator()
    sOwn = smem.allocate_tensor(cutlass.Float32, cute.make_layout(64), byte_alignment=16)
    sOwn[tidx] = mIn[bidx, tidx]
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()
    next_one = (rank + 1) % 4
    pointer = cute.arch.map_dsmem_ptr(sOwn.iterator + tidx, next_one)
    theirs = cute.arch.inline_ptx(
        "ld.shared::cluster.f32 {$w0}, [{$r0}];",
        write_only_types=[cutlass.Float32],
        read_only_args=[pointer.toint()],
    )
    mOut[bidx, tidx] = sOwn[tidx] + theirs
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()


@cute.jit
def launch(mIn: cute.Tensor, mOut: cute.Tensor):
    kernel(mIn, mOut).launch(grid=(8, 1, 1), block=(64, 1, 1), cluster=(4, 1, 1))


def run():
    x = torch.randint(-9, 9, (8, 64)).float()
    out = torch.zeros(8, 64, device="cuda")
    launch(from_dlpack(x.cuda()), from_dlpack(out))
    return out, x + x.view(2, 4, 64).roll(-1, 1).reshape(8, 64)
