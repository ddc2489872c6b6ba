# expect: right
"""Rank 0 waits for a number from each thread of the other ranks, sent by st.async."""

import torch
from tensor_memory_field.device import Kernel

SOURCE = r"""
#include "ptx.h"

extern "C" __global__ void kernel(const float *in, float *out) {
  __shared__ alignas(16) float inbox[3 * 32];
  __shared__ uint64_t full;
  const uint32_t bar = shared(&full), me = rank();
  if (me == 0 && threadIdx.x == 0) {
    mbarrier_init(bar, 1);
    fence_mbarrier_init();
    expect(bar, 3 * 32 * 4);
  }
  cluster_sync();
  const float x = in[blockIdx.x * 32 + threadIdx.x];
  if (me > 0) {
    const uint32_t to = mapa(shared(inbox + (me - 1) * 32 + threadIdx.x), 0);
    st_async(to, x, mapa(bar, 0));
  } else {
    wait_cluster(bar, 0);
    float sum = x;
    for (int r = 0; r < 3; ++r) sum += inbox[r * 32 + threadIdx.x];
    out[threadIdx.x] = sum;
  }
}
"""


def run():
    x = torch.randint(-9, 9, (4, 32)).float()
    out = torch.zeros(32, device="cuda")
    Kernel(SOURCE)(4, 32, x.cuda(), out, cluster=4)
    return out, x.sum(0)
