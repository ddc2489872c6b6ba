# expect: right
"""Warps 0 to 3 store, warps 4 to 7 load what the warp of the same lanes has stored."""

import torch
from tensor_memory_field.device import Kernel

SOURCE = r"""
#include "ptx.h"

extern "C" __global__ void kernel(uint32_t *out) {
  __shared__ uint32_t at;
  const int warp = threadIdx.x / 32;
  if (warp == 5) {
    alloc(&at, 32);
    relinquish();
  }
  fence_before();
  __syncthreads();
  fence_after();
  const uint32_t tmem = at, mine = tmem + (warp % 4 * 32 << 16);
  uint32_t word[1] = {threadIdx.x * 3};
  if (warp < 4) {
    ST1("32x32b.x1", mine, word);
    wait_st();
    fence_before();
  }
  __syncthreads();
  if (warp >= 4) {
    fence_after();
    LD1("32x32b.x1", word, mine);
    wait_ld();
    out[threadIdx.x - 128] = word[0];
    fence_before();
  }
  __syncthreads();
  fence_after();
  if (warp == 5) dealloc(tmem, 32);
}
"""


def run():
    out = torch.zeros(128, dtype=torch.int32, device="cuda")
    Kernel(SOURCE)(1, 256, out)
    return out, torch.arange(128) * 3
