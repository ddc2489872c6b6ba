# expect: right
"""Two CTAs hand a buffer to and fro: barriers of one side, arrivals of the other."""

import torch
from tensor_memory_field.device import Kernel

SOURCE = r"""
#include "ptx.h"

#define ROUNDS 4

extern "C" __global__ void kernel(const float *in, float *out) {
  __shared__ float buffer[32];
  __shared__ uint64_t bars[2];  // full, empty; both of rank 1
  const int i = threadIdx.x;
  const uint32_t full = shared(bars), empty = shared(bars + 1), me = rank();
  if (i == 0) {
    mbarrier_init(full, 32);
    mbarrier_init(empty, 32);
    fence_mbarrier_init();
  }
  cluster_sync();
  if (me == 0) {
    for (int round = 0; round < ROUNDS; ++round) {
      wait_cluster(empty, round & 1 ^ 1);
      store_remote(mapa(shared(buffer + i), 1), in[round * 32 + i]);
      arrive_remote(mapa(full, 1));
    }
  } else {
    for (int round = 0; round < ROUNDS; ++round) {
      wait_cluster(full, round & 1);
      out[round * 32 + i] = buffer[31 - i];
      arrive_remote(mapa(empty, 0));
    }
  }
  cluster_sync();
}
"""


def run():
    x = torch.randn(4, 32)
    out = torch.zeros(4, 32, device="cuda")
    Kernel(SOURCE)(2, 32, x.cuda(), out, cluster=2)
    return out, x.flip(1)
