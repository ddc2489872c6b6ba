# expect: right
"""Four CTAs each allocate twice and give both back, the second one first."""

import torch
from tensor_memory_field.device import Kernel

SOURCE = r"""
#include "ptx.h"

extern "C" __global__ void kernel(uint32_t *out) {
  __shared__ uint32_t at[2];
  const uint32_t lane = threadIdx.x;
  alloc(&at[0], 64);
  alloc(&at[1], 128);
  relinquish();
  __syncwarp();
  const uint32_t first = at[0], second = at[1];
  uint32_t word[1] = {blockIdx.x << 8 | lane}, doubled[1] = {2 * word[0]};
  ST1("32x32b.x1", first + 63, word);
  ST1("32x32b.x1", second + 127, doubled);
  wait_st();
  LD1("32x32b.x1", word, second + 127);
  LD1("32x32b.x1", doubled, first + 63);
  wait_ld();
  out[blockIdx.x * 32 + lane] = word[0] - doubled[0];
  dealloc(second, 128);
  dealloc(first, 64);
}
"""


def run():
    out = torch.zeros(4, 32, dtype=torch.int32, device="cuda")
    Kernel(SOURCE)(4, 32, out)
    return out, torch.arange(4)[:, None] * 256 + torch.arange(32)
