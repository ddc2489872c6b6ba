# expect: right
"""Four products of b's columns against one a; two buffers of sums, which warps 1 to 4 empty."""

import torch
from tensor_memory_field.device import Kernel

SOURCE = r"""
#include "ptx.h"
#define TILES 4
#define N 16

extern "C" __global__ void kernel(const uint4 *a, const uint4 *b, uint32_t *out, uint32_t idesc) {
  __shared__ alignas(128) uint4 sa[128 * 2], sb[TILES * N * 2];
  __shared__ uint64_t bars[4];  // full, empty
  __shared__ uint32_t at;
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const uint32_t full = shared(bars), empty = shared(bars + 2);
  for (int i = thread; i < 256; i += blockDim.x) sa[i / 16 * 16 + i % 2 * 8 + i / 2 % 8] = a[i];
  for (int i = thread; i < TILES * N * 2; i += blockDim.x) sb[i / 16 * 16 + i % 2 * 8 + i / 2 % 8] = b[i];
  fence_proxy_async();
  if (warp == 0) {
    alloc(&at, 32);
    relinquish();
    if (elect())
      for (int s = 0; s < 2; ++s) {
        mbarrier_init(full + 8 * s, 1);
        mbarrier_init(empty + 8 * s, 128);
      }
  }
  fence_before();
  __syncthreads();
  fence_after();
  const uint32_t tmem = at;
  if (warp == 0) {
    if (elect()) {
      const uint64_t of_a = matrix(shared(sa), 128, 256, 0);
      for (int tile = 0; tile < TILES; ++tile) {
        const int s = tile % 2;
        if (tile >= 2) wait(empty + 8 * s, (tile / 2 - 1) & 1);
        fence_after();
        MMA("f16", tmem + N * s, of_a, matrix(shared(sb) + 512 * tile, 128, 256, 0), idesc, 0);
        commit(full + 8 * s);
      }
    }
    __syncwarp();
  } else {
    const int quarter = warp % 4;
    for (int tile = 0; tile < TILES; ++tile) {
      const int s = tile % 2;
      wait(full + 8 * s, tile / 2 & 1);
      fence_after();
      for (int n = 0; n < N; n += 8) {
        uint32_t d[8];
        LD8("32x32b.x8", d, tmem + (quarter * 32 << 16) + N * s + n);
        wait_ld();
        for (int i = 0; i < 8; ++i) out[(quarter * 32 + lane) * TILES * N + tile * N + n + i] = d[i];
      }
      fence_before();
      arrive(empty + 8 * s);
    }
  }
  fence_before();
  __syncthreads();
  if (warp == 0) dealloc(tmem, 32);
}
"""

IDESC = 1 << 4 | 16 // 8 << 17 | 128 // 16 << 24


def run():
    a, b = torch.randint(-2, 3, (128, 16)).half(), torch.randint(-2, 3, (64, 16)).half()
    out = torch.zeros(128, 64, device="cuda")
    Kernel(SOURCE)(1, 160, a.cuda(), b.cuda(), out, IDESC)
    return out, a.double() @ b.double().T
