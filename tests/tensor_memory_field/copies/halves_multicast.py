# expect: right
"""Each of two CTAs loads a half of a block for both of them."""

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
  if (i == 0) bulk_load_multicast(shared(block + 64 * me), in + 64 * me, 256, bar, 3);
  wait(bar, 0);
  out[me * 128 + i] = block[127 - i];
  cluster_sync();
}
"""


def run():
    x = torch.randn(128)
    out = torch.zeros(2, 128, device="cuda")
    Kernel(SOURCE)(2, 128, x.cuda(), out, cluster=2)
    return out, x.flip(0).expand(2, 128)
