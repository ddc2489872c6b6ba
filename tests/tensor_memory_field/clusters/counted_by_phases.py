# expect: right
"""Arrivals with a count, a token to wait with, and CTAs that drop out of a barrier."""

import torch
from tensor_memory_field.device import Kernel

SOURCE = r"""
#include "ptx.h"

extern "C" __global__ void kernel(int *out) {
  __shared__ uint64_t bars[1];
  __shared__ int rounds[32];
  const uint32_t bar = shared(bars), i = threadIdx.x;
  if (i == 0) mbarrier_init(bar, 64);
  rounds[i] = 0;
  __syncthreads();
  for (uint32_t round = 0; round < 4; ++round) {
    if (i < 8 && round == 2) {
      asm volatile("mbarrier.arrive_drop.shared::cta.b64 _, [%0], 2;" ::"r"(bar) : "memory");
      break;
    }
    uint64_t token;
    rounds[i] += 1;
    asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1], 2;" : "=l"(token) : "r"(bar) : "memory");
    uint32_t done = 0;
    while (!done)
      asm volatile("{ .reg .pred p; mbarrier.test_wait.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                   : "=r"(done) : "r"(bar), "l"(token) : "memory");
    if (i >= 8) out[round * 32 + i] = rounds[8 + (i + 1) % 24];
    asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1], 2;" : "=l"(token) : "r"(bar) : "memory");
    while (!(done & 2))
      asm volatile("{ .reg .pred p; mbarrier.test_wait.shared::cta.b64 p, [%1], %2; selp.u32 %0, 2, 0, p; }"
                   : "=r"(done) : "r"(bar), "l"(token) : "memory");
  }
}
"""


def run():
    out = torch.zeros(4, 32, dtype=torch.int32, device="cuda")
    Kernel(SOURCE)(1, 32, out)
    expected = torch.arange(1, 5)[:, None].repeat(1, 32)
    expected[:, :8] = 0
    return out, expected
