# expect: right
"""One load of 128 registers after four stores of 32."""

import torch
from tensor_memory_field.device import Kernel

LOADED = ", ".join(f"%{i}" for i in range(128))
STORED = ", ".join(f"%{i}" for i in range(1, 33))
OUTPUTS = ", ".join(f'"=r"(v[{i}])' for i in range(128))
INPUTS = ", ".join(f'"r"(w[{i}])' for i in range(32))

SOURCE = r"""
#include "ptx.h"

extern "C" __global__ void kernel(uint32_t *out) {
  __shared__ uint32_t at;
  const int lane = threadIdx.x;
  alloc(&at, 128);
  relinquish();
  __syncwarp();
  const uint32_t tmem = at;
  uint32_t v[128], w[32];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    for (int i = 0; i < 32; ++i) w[i] = lane << 8 | 32 * j + i;
    asm volatile("tcgen05.st.sync.aligned.32x32b.x32.b32 [%0], {STORED};" ::"r"(tmem + 32 * j), INPUTS);
  }
  wait_st();
  asm volatile("tcgen05.ld.sync.aligned.32x32b.x128.b32 {LOADED}, [%128];" : OUTPUTS : "r"(tmem));
  wait_ld();
  for (int i = 0; i < 128; ++i) out[lane * 128 + i] = v[i];
  dealloc(tmem, 128);
}
"""


def run():
    text = SOURCE
    for name in ("LOADED", "STORED", "OUTPUTS", "INPUTS"):
        text = text.replace(name, globals()[name])
    out = torch.zeros(32, 128, dtype=torch.int32, device="cuda")
    Kernel(text)(1, 32, out)
    return out, torch.arange(32)[:, None] * 256 + torch.arange(128)
