# expect: right
"""Rank 0 loads 512 bytes by a bulk copy and sends them on to rank 1 by another one."""

import torch
from tensor_memory_field.device import Kernel

SOURCE = r"""
#include "ptx.h"

extern "C" __global__ void kernel(const float *in, float *out) {
  __shared__ alignas(128) float block[128];
  __shared__ uint64_t full;
  const int i = threadIdx.x;
  const uint32_t bar = shared(&full), me = rank();
  if (i == 0) {
    mbarrier_init(bar, 1);
    fence_mbarrier_init();
    expect(bar, 512);
  }
  cluster_sync();
  if (me == 0) {
    if (i == 0) bulk_load(shared(block), in, 512, bar);
    wait(bar, 0);
    block[i] *= 2;
    fence_proxy_async();
    __syncthreads();
    if (i == 0) bulk_to_peer(mapa(shared(block), 1), shared(block), 512, mapa(bar, 1));
  } else {
    wait_cluster(bar, 0);
    out[i] = block[i];
  }
  cluster_sync();
}
"""


def run():
    x = torch.randn(128)
    out = torch.zeros(128, device="cuda")
    Kernel(SOURCE)(2, 128, x.cuda(), out, cluster=2)
    return out, 2 * x
