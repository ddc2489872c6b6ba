# expect: right
"""Threads of eight CTAs add to a number of rank 0 under a lock of rank 5."""

import torch
from tensor_memory_field.device import Kernel

SOURCE = r"""
#include "ptx.h"

extern "C" __global__ void kernel(float *out) {
  __shared__ int lock;
  __shared__ float number;
  if (threadIdx.x == 0) {
    lock = 0;
    number = 0;
  }
  cluster_sync();
  const uint32_t theirs = mapa(shared(&lock), 5), sum = mapa(shared(&number), 0);
  if (threadIdx.x == 0) {
    int taken;
    do
      asm volatile("atom.acquire.cluster.shared::cluster.cas.b32 %0, [%1], 0, 1;" : "=r"(taken) : "r"(theirs) : "memory");
    while (taken);
    float v;
    load_remote(v, sum);
    store_remote(sum, v + rank());
    asm volatile("atom.release.cluster.shared::cluster.exch.b32 %0, [%1], 0;" : "=r"(taken) : "r"(theirs) : "memory");
  }
  cluster_sync();
  if (rank() == 0 && threadIdx.x == 0) out[0] = number;
}
"""


def run():
    out = torch.zeros(1, device="cuda")
    Kernel(SOURCE)(8, 32, out, cluster=8)
    return out, torch.tensor([28.0])
