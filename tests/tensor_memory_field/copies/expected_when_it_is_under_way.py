# expect: right
"""A thread starts a copy and tells the barrier of its bytes afterwards: the arrival is still to come."""

import torch
from tensor_memory_field.device import Kernel

SOURCE = r"""
#include "ptx.h"

extern "C" __global__ void kernel(const float *in, float *out) {
  __shared__ alignas(16) float block[2][32];
  __shared__ uint64_t bars[2];
  const int i = threadIdx.x;
  const uint32_t bar = shared(bars);
  if (i == 0) {
    mbarrier_init(bar, 1);
    mbarrier_init(bar + 8, 1);
    fence_mbarrier_init();
    for (int s = 0; s < 2; ++s) {
      bulk_load(shared(block[s]), in + 32 * s, 128, bar + 8 * s);
      expect(bar + 8 * s, 128);
    }
  }
  __syncthreads();
  wait(bar, 0);
  wait(bar + 8, 0);
  out[i] = block[0][31 - i] - block[1][i];
}
"""


def run():
    x = torch.randint(-9, 9, (64,)).float()
    out = torch.zeros(32, device="cuda")
    Kernel(SOURCE)(1, 32, x.cuda(), out)
    return out, x[:32].flip(0) - x[32:]
