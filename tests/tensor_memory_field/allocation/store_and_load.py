# expect: right
# quick: yes
"""Each of four warps stores words to its own lanes of 32 columns and loads them again."""

import torch
from tensor_memory_field.device import Kernel

SOURCE = r"""
#include "ptx.h"
#define COLUMNS 32

extern "C" __global__ void kernel(uint32_t *out) {
  __shared__ uint32_t at;
  const int warp = threadIdx.x / 32;
  if (warp == 0) {
    alloc(&at, COLUMNS);
    relinquish();
  }
  fence_before();
  __syncthreads();
  fence_after();
  const uint32_t tmem = at, mine = tmem + (warp * 32 << 16);
  uint32_t in[8], back[8];
  for (int i = 0; i < 8; ++i) in[i] = threadIdx.x * 100 + i;
  ST8("32x32b.x8", mine, in);
  wait_st();
  LD8("32x32b.x8", back, mine);
  wait_ld();
  for (int i = 0; i < 8; ++i) out[threadIdx.x * 8 + i] = back[i];
  fence_before();
  __syncthreads();
  fence_after();
  if (warp == 0) dealloc(tmem, COLUMNS);
}
"""


def run():
    out = torch.zeros(128, 8, dtype=torch.int32, device="cuda")
    Kernel(SOURCE)(1, 128, out)
    return out, torch.arange(128)[:, None] * 100 + torch.arange(8)
