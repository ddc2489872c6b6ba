# expect: right
# quick: yes
"""One product of 128 x 16 in float16: operands stored by threads, without a swizzle."""

import torch
from tensor_memory_field.device import Kernel

SOURCE = r"""
#include "ptx.h"
#define KIND "f16"
#define N 16
#define ROW 64  // bytes of a row: two products
#define COLUMNS 32

extern "C" __global__ void kernel(const uint4 *a, const uint4 *b, uint32_t *out, uint32_t idesc) {
  __shared__ alignas(128) uint4 sa[128 * ROW / 16], sb[N * ROW / 16];
  __shared__ uint64_t done;
  __shared__ uint32_t at;
  const int row = threadIdx.x, warp = row / 32;
  const uint32_t bar = shared(&done);
  for (int i = 0; i < ROW / 16; ++i) {
    sa[row / 8 * (ROW / 2) + i * 8 + row % 8] = a[row * (ROW / 16) + i];
    if (row < N) sb[row / 8 * (ROW / 2) + i * 8 + row % 8] = b[row * (ROW / 16) + i];
  }
  fence_proxy_async();
  if (warp == 0) {
    alloc(&at, COLUMNS);
    relinquish();
  }
  if (row == 0) mbarrier_init(bar, 1);
  fence_before();
  __syncthreads();
  fence_after();
  const uint32_t tmem = at;
  if (row == 0) {
    for (int k = 0; k < ROW / 32; ++k) {
      const uint64_t of_a = matrix(shared(sa) + 256 * k, 128, 8 * ROW, 0);
      const uint64_t of_b = matrix(shared(sb) + 256 * k, 128, 8 * ROW, 0);
      MMA(KIND, tmem, of_a, of_b, idesc, k > 0);
    }
    commit(bar);
  }
  wait(bar, 0);
  fence_after();
  for (int n = 0; n < N; n += 8) {
    uint32_t d[8];
    LD8("32x32b.x8", d, tmem + (warp * 32 << 16) + n);
    wait_ld();
    for (int i = 0; i < 8; ++i) out[row * N + n + i] = d[i];
  }
  fence_before();
  __syncthreads();
  if (warp == 0) dealloc(tmem, COLUMNS);
}
"""

TYPE = torch.float16
N = 16
IDESC = 1 << 4 | N // 8 << 17 | 128 // 16 << 24  # sums in float32


def run():
    k = 64 // TYPE.itemsize
    a, b = torch.randint(-2, 3, (128, k)).to(TYPE), torch.randint(-2, 3, (N, k)).to(TYPE)
    out = torch.zeros(128, N, device="cuda")
    Kernel(SOURCE)(1, 128, a.cuda(), b.cuda(), out, IDESC)
    return out, a.double() @ b.double().T
