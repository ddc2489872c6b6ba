# expect: right
"""When a barrier has been invalidated, its memory holds data."""

import torch
from tensor_memory_field.device import Kernel

SOURCE = r"""
#include "ptx.h"

extern "C" __global__ void kernel(const float *in, float *out) {
  __shared__ alignas(16) float block[32];
  __shared__ alignas(16) union { uint64_t bar; float words[2]; } both;
  const int i = threadIdx.x;
  const uint32_t bar = shared(&both.bar);
  for (int round = 0; round < 2; ++round) {
    if (i == 0) {
      mbarrier_init(bar, 1);
      fence_mbarrier_init();
      expect(bar, 128);
      bulk_load(shared(block), in + 32 * round, 128, bar);
    }
    __syncwarp();
    wait(bar, 0);
    const float x = block[i];
    __syncwarp();
    if (i == 0) asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(bar) : "memory");
    __syncwarp();
    if (i == 31) both.words[0] = x;
    __syncwarp();
    out[32 * round + i] = x + both.words[0];
    fence_proxy_async();
    __syncwarp();
  }
}
"""


def run():
    x = torch.randint(-9, 9, (2, 32)).float()
    out = torch.zeros(2, 32, device="cuda")
    Kernel(SOURCE)(1, 32, x.cuda(), out)
    return out, x + x[:, 31:]
