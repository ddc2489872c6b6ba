# expect: right
"""Words are stored by rows of 32 lanes and loaded in the 16x256b and 16x128b shapes."""

import torch
from tensor_memory_field.device import Kernel

SOURCE = r"""
#include "ptx.h"

extern "C" __global__ void kernel(uint32_t *out) {  // out [2, 16, 16]
  __shared__ uint32_t at;
  const int lane = threadIdx.x;
  alloc(&at, 32);
  relinquish();
  __syncwarp();
  const uint32_t tmem = at;
  uint32_t v[8];
  for (int half = 0; half < 2; ++half) {
    for (int i = 0; i < 8; ++i) v[i] = lane * 100 + half * 8 + i;
    ST8("32x32b.x8", tmem + 8 * half, v);
  }
  wait_st();
  LD8("16x256b.x2", v, tmem);
  wait_ld();
  for (int i = 0; i < 8; ++i)
    out[(lane / 4 + 8 * (i / 2 % 2)) * 16 + 8 * (i / 4) + 2 * (lane % 4) + i % 2] = v[i];
  out += 256;
  LD8("16x128b.x4", v, tmem + (16 << 16));
  wait_ld();
  for (int i = 0; i < 8; ++i) out[(lane / 4 + 8 * (i % 2)) * 16 + 4 * (i / 2) + lane % 4] = v[i];
  dealloc(tmem, 32);
}
"""


def run():
    out = torch.zeros(2, 16, 16, dtype=torch.int32, device="cuda")
    Kernel(SOURCE)(1, 32, out)
    first = torch.arange(16)[:, None] * 100 + torch.arange(16)
    return out, torch.stack([first, first + 1600])
