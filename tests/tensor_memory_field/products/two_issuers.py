# expect: right
"""Two warps issue products of their own, to sums and barriers of their own."""

import torch
from tensor_memory_field.device import Kernel

SOURCE = r"""
#include "ptx.h"

#define N 16

extern "C" __global__ void kernel(const uint4 *a, const uint4 *b, uint32_t *out, uint32_t idesc) {
  __shared__ alignas(128) uint4 sa[128 * 2], sb[2][N * 2];
  __shared__ uint64_t bars[2];
  __shared__ uint32_t at;
  const int row = threadIdx.x, warp = row / 32;
  const uint32_t done = shared(bars);
  for (int i = 0; i < 2; ++i) sa[row / 8 * 16 + i * 8 + row % 8] = a[row * 2 + i];
  if (row < 64) sb[row / 32][row / 16 % 2 * 16 + row % 2 * 8 + row / 2 % 8] = b[row];
  fence_proxy_async();
  if (warp == 0) {
    alloc(&at, 32);
    relinquish();
  }
  if (row < 2) mbarrier_init(done + 8 * row, 1);
  fence_before();
  __syncthreads();
  fence_after();
  const uint32_t tmem = at;
  if (warp < 2 && elect()) {
    MMA("f16", tmem + N * warp, matrix(shared(sa), 128, 256, 0), matrix(shared(sb[warp]), 128, 256, 0), idesc, 0);
    commit(done + 8 * warp);
  }
  __syncwarp();
  for (int half = 0; half < 2; ++half) {
    wait(done + 8 * half, 0);
    fence_after();
    for (int n = 0; n < N; n += 8) {
      uint32_t d[8];
      LD8("32x32b.x8", d, tmem + (warp * 32 << 16) + N * half + n);
      wait_ld();
      for (int i = 0; i < 8; ++i) out[row * 2 * N + N * half + n + i] = d[i];
    }
  }
  fence_before();
  __syncthreads();
  if (warp == 0) dealloc(tmem, 32);
}
"""


IDESC = 1 << 4 | 16 // 8 << 17 | 128 // 16 << 24


def run():
    a, b = torch.randint(-2, 3, (128, 16)).half(), torch.randint(-2, 3, (32, 16)).half()
    out = torch.zeros(128, 32, device="cuda")
    Kernel(SOURCE)(1, 128, a.cuda(), b.cuda(), out, IDESC)
    return out, a.double() @ b.double().T
