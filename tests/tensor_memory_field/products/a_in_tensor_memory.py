# expect: right
"""a in tensor memory, each thread storing its row, two products of float16 one after the other."""

import torch
from tensor_memory_field.device import Kernel

SOURCE = r"""
#include "ptx.h"
#define N 32

extern "C" __global__ void kernel(const uint32_t *a, const uint4 *b, uint32_t *out, uint32_t idesc) {
  __shared__ alignas(128) uint4 sb[N * 4];
  __shared__ uint64_t done;
  __shared__ uint32_t at;
  const int row = threadIdx.x, warp = row / 32;
  const uint32_t bar = shared(&done);
  if (warp == 3) {
    alloc(&at, 64);
    relinquish();
  }
  if (row == 0) mbarrier_init(bar, 1);
  fence_before();
  __syncthreads();
  fence_after();
  const uint32_t tmem = at, lanes = warp * 32 << 16, of_a = tmem + N;
  for (int k = 0; k < 2; ++k) {
    uint32_t v[8];
    for (int i = 0; i < 8; ++i) v[i] = a[row * 16 + 8 * k + i];
    ST8("32x32b.x8", of_a + lanes + 8 * k, v);
  }
  wait_st();
  sb[row / 32 * 32 + row % 4 * 8 + row / 4 % 8] = b[row];
  fence_proxy_async();
  fence_before();
  __syncthreads();
  if (row == 0) {
    fence_after();
    for (int k = 0; k < 2; ++k)
      MMA_TS("f16", tmem, of_a + 8 * k, matrix(shared(sb) + 256 * k, 128, 512, 0), idesc, k);
    commit(bar);
  }
  wait(bar, 0);
  fence_after();
  for (int n = 0; n < N; n += 8) {
    uint32_t d[8];
    LD8("32x32b.x8", d, tmem + lanes + n);
    wait_ld();
    for (int i = 0; i < 8; ++i) out[row * N + n + i] = d[i];
  }
  fence_before();
  __syncthreads();
  if (warp == 3) dealloc(tmem, 64);
}
"""

IDESC = 1 << 4 | 32 // 8 << 17 | 128 // 16 << 24


def run():
    a, b = torch.randint(-2, 3, (128, 32)).half(), torch.randint(-2, 3, (32, 32)).half()
    out = torch.zeros(128, 32, device="cuda")
    Kernel(SOURCE)(1, 128, a.cuda(), b.cuda(), out, IDESC)
    return out, a.double() @ b.double().T
