# expect: right
"""A generic address of another CTA's memory, in a cluster of four columns and two rows of a grid."""

import torch
from tensor_memory_field.device import Kernel

SOURCE = r"""
#include "ptx.h"

extern "C" __global__ void kernel(uint32_t *out) {
  __shared__ uint32_t own[32];
  uint32_t me, size, x;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(me));
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(x));
  own[threadIdx.x] = x << 16 | me << 8 | threadIdx.x;
  cluster_sync();
  uint64_t theirs;
  asm volatile("mapa.u64 %0, %1, %2;" : "=l"(theirs) : "l"(own + threadIdx.x), "r"(size - 1 - me));
  uint32_t owner;
  asm volatile("getctarank.u64 %0, %1;" : "=r"(owner) : "l"(theirs));
  out[blockIdx.x * 32 + threadIdx.x] = *(uint32_t *)theirs + (owner << 24);
  cluster_sync();
}
"""


def run():
    out = torch.zeros(8, 32, dtype=torch.int32, device="cuda")
    Kernel(SOURCE)(8, 32, out, cluster=4)
    block, thread = torch.arange(8)[:, None], torch.arange(32)
    owner = 3 - block % 4
    return out, owner << 24 | block // 4 << 16 | owner << 8 | thread
