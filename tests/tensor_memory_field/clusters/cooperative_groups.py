# expect: right
"""A histogram over a cluster with cooperative groups: each CTA owns eight of its bins."""

import torch
from tensor_memory_field.device import Kernel

SOURCE = r"""

#include <cooperative_groups.h>
namespace cg = cooperative_groups;

extern "C" __global__ void __cluster_dims__(4, 1, 1) kernel(const int *in, int *out) {
  __shared__ int bins[8];
  const cg::cluster_group cluster = cg::this_cluster();
  if (threadIdx.x < 8) bins[threadIdx.x] = 0;
  cluster.sync();
  const int value = in[blockIdx.x * 64 + threadIdx.x];
  atomicAdd(cluster.map_shared_rank(bins, value / 8) + value % 8, 1);
  cluster.sync();
  if (threadIdx.x < 8) out[cluster.block_rank() * 8 + threadIdx.x] = bins[threadIdx.x];
}
"""


def run():
    x = torch.randint(0, 32, (256,), dtype=torch.int32)
    out = torch.zeros(32, dtype=torch.int32, device="cuda")
    Kernel(SOURCE)(4, 64, x.cuda(), out)
    return out, torch.bincount(x, minlength=32)
