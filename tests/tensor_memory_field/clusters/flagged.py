# expect: right
"""Rank 0 stores a number and a flag to each of three others, which spin on the flag."""

import torch
from tensor_memory_field.device import Kernel

SOURCE = r"""
#include "ptx.h"

extern "C" __global__ void kernel(float *out) {
  __shared__ float number;
  __shared__ uint32_t flag;
  if (threadIdx.x == 0) flag = 0;
  cluster_sync();
  if (rank() == 0) {
    if (threadIdx.x > 0 && threadIdx.x < 4) {
      store_remote(mapa(shared(&number), threadIdx.x), 10.f + threadIdx.x);
      asm volatile("st.release.cluster.shared::cluster.u32 [%0], 1;" ::"r"(mapa(shared(&flag), threadIdx.x)) : "memory");
    }
  } else if (threadIdx.x == 0) {
    uint32_t set = 0;
    while (!set) asm volatile("ld.acquire.cluster.shared::cta.u32 %0, [%1];" : "=r"(set) : "r"(shared(&flag)) : "memory");
    out[rank()] = number;
  }
  __syncwarp();
  cluster_sync();
}
"""


def run():
    out = torch.zeros(4, device="cuda")
    Kernel(SOURCE)(4, 32, out, cluster=4)
    return out, torch.tensor([0.0, 11, 12, 13])
