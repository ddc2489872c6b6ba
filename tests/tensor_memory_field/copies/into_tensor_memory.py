# expect: right
"""tcgen05.cp brings 128 rows of 16 bytes to the lanes, a commit tells of it."""

import torch
from tensor_memory_field.device import Kernel

SOURCE = r"""
#include "ptx.h"
#define SHAPE "128x128b"

extern "C" __global__ void kernel(const uint4 *in, uint32_t *out) {
  __shared__ alignas(128) uint4 rows[256];
  __shared__ uint64_t done;
  __shared__ uint32_t at;
  const int i = threadIdx.x, warp = i / 32;
  const uint32_t bar = shared(&done);
  rows[i] = in[i];
  rows[128 + i] = in[128 + i];
  fence_proxy_async();
  if (warp == 0) {
    alloc(&at, 32);
    relinquish();
    if (elect()) mbarrier_init(bar, 1);
  }
  fence_before();
  __syncthreads();
  fence_after();
  const uint32_t tmem = at;
  if (i == 64) {
    CP(SHAPE, tmem, matrix(shared(rows), 0, 128, 0));
    commit(bar);
  }
  __syncwarp();
  wait(bar, 0);
  fence_after();
  uint32_t v[4];
  LD4("32x32b.x4", v, tmem + (warp * 32 << 16));
  wait_ld();
  for (int j = 0; j < 4; ++j) out[i * 4 + j] = v[j];
  fence_before();
  __syncthreads();
  if (warp == 0) dealloc(tmem, 32);
}
"""


def run():
    x = torch.randint(0, 1 << 30, (256, 4), dtype=torch.int32)
    out = torch.zeros(128, 4, dtype=torch.int32, device="cuda")
    Kernel(SOURCE)(1, 128, x.cuda(), out)
    return out, x[:128]
