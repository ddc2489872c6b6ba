# expect: right
"""The sums of one product become the operand of a second one, as in attention."""

import torch
from tensor_memory_field.device import Kernel

SOURCE = r"""
#include "ptx.h"

#define N 32

DEVICE uint32_t pack(uint32_t low, uint32_t high) {
  uint32_t r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(__uint_as_float(high)), "f"(__uint_as_float(low)));
  return r;
}

// out = (a b^T) c, all rows of b and c being 32
extern "C" __global__ void kernel(const uint4 *a, const uint4 *b, const uint4 *c, uint32_t *out, uint32_t idesc) {
  __shared__ alignas(128) uint4 sa[128 * 4], sb[N * 4], sc[N * 4];
  __shared__ uint64_t bars[2];
  __shared__ uint32_t at;
  const int row = threadIdx.x, warp = row / 32;
  const uint32_t first = shared(bars), second = first + 8;
  for (int i = 0; i < 4; ++i) sa[row / 8 * 32 + i * 8 + row % 8] = a[row * 4 + i];
  sb[row / 32 * 32 + row % 4 * 8 + row / 4 % 8] = b[row];
  sc[row / 32 * 32 + row % 4 * 8 + row / 4 % 8] = c[row];
  fence_proxy_async();
  if (warp == 0) {
    alloc(&at, 128);
    relinquish();
  }
  if (row == 0) {
    mbarrier_init(first, 1);
    mbarrier_init(second, 1);
  }
  fence_before();
  __syncthreads();
  fence_after();
  const uint32_t tmem = at, lanes = warp * 32 << 16, of_p = tmem + 32, of_o = tmem + 64;
  if (row == 0) {
    for (int k = 0; k < 2; ++k)
      MMA("f16", tmem, matrix(shared(sa) + 256 * k, 128, 512, 0), matrix(shared(sb) + 256 * k, 128, 512, 0), idesc, k);
    commit(first);
  }
  __syncwarp();
  wait(first, 0);
  fence_after();
  uint32_t s[8], p[8];
  for (int k = 0; k < 2; ++k) {
    for (int half = 0; half < 2; ++half) {
      LD8("32x32b.x8", s, tmem + lanes + 16 * k + 8 * half);
      wait_ld();
      for (int i = 0; i < 4; ++i) p[4 * half + i] = pack(s[2 * i], s[2 * i + 1]);
    }
    ST8("32x32b.x8", of_p + lanes + 8 * k, p);
  }
  wait_st();
  fence_before();
  __syncthreads();
  if (row == 0) {
    fence_after();
    for (int k = 0; k < 2; ++k) MMA_TS("f16", of_o, of_p + 8 * k, matrix(shared(sc) + 256 * k, 128, 512, 0), idesc, k);
    commit(second);
  }
  __syncwarp();
  wait(second, 0);
  fence_after();
  for (int n = 0; n < N; n += 8) {
    LD8("32x32b.x8", s, of_o + lanes + n);
    wait_ld();
    for (int i = 0; i < 8; ++i) out[row * N + n + i] = s[i];
  }
  fence_before();
  __syncthreads();
  if (warp == 0) dealloc(tmem, 128);
}
"""


IDESC = 1 << 4 | 32 // 8 << 17 | 128 // 16 << 24


def run():
    a, b, c = (torch.randint(-1, 2, (rows, 32)).half() for rows in (128, 32, 32))
    out = torch.zeros(128, 32, device="cuda")
    Kernel(SOURCE)(1, 128, a.cuda(), b.cuda(), c.cuda(), out, IDESC)
    return out, a.double() @ b.double().T @ c.double().T
