# expect: right
"""Pairs of 16 bits are spread over two columns by the store and packed again by the load."""

import torch
from tensor_memory_field.device import Kernel

SOURCE = r"""
#include "ptx.h"

extern "C" __global__ void kernel(const uint32_t *in, uint32_t *out) {  // [32, 4], [2, 32, 8]
  __shared__ uint32_t at;
  const int lane = threadIdx.x;
  alloc(&at, 32);
  relinquish();
  __syncwarp();
  const uint32_t tmem = at;
  uint32_t v[8];
  for (int i = 0; i < 4; ++i) v[i] = in[lane * 4 + i];
  asm volatile("tcgen05.st.sync.aligned.32x32b.x4.unpack::16b.b32 [%0], {%1, %2, %3, %4};" ::"r"(tmem),
               "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]));
  wait_st();
  LD8("32x32b.x8", v, tmem);
  wait_ld();
  for (int i = 0; i < 8; ++i) out[lane * 8 + i] = v[i] & 0xffff;
  asm volatile("tcgen05.ld.sync.aligned.32x32b.x4.pack::16b.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(tmem));
  wait_ld();
  for (int i = 0; i < 4; ++i) {
    out[256 + lane * 8 + 2 * i] = v[i] & 0xffff;
    out[256 + lane * 8 + 2 * i + 1] = v[i] >> 16;
  }
  dealloc(tmem, 32);
}
"""


def run():
    halves = torch.randint(0, 1 << 15, (32, 8), dtype=torch.int16)
    words = halves.view(torch.int32).cuda()
    out = torch.zeros(2, 32, 8, dtype=torch.int32, device="cuda")
    Kernel(SOURCE)(1, 32, words, out)
    return out, torch.stack([halves, halves]).int()
