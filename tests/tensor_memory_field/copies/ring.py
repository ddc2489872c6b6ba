# expect: right
"""Tensor maps fill a ring of two swizzled stages for products over K = 256."""

import torch
from tensor_memory_field.device import Kernel, tensor_map

SOURCE = r"""
#include "ptx.h"
#define STAGES 2
#define TILES 4
#define N 32

struct alignas(64) Map { char bytes[128]; };

extern "C" __global__ void kernel(const __grid_constant__ Map of_a, const __grid_constant__ Map of_b, uint32_t *out,
                                  uint32_t idesc) {
  __shared__ alignas(1024) uint8_t sa[STAGES][128 * 128], sb[STAGES][N * 128];
  __shared__ uint64_t bars[2 * STAGES + 1];
  __shared__ uint32_t at;
  const int thread = threadIdx.x, warp = thread / 32;
  const uint32_t full = shared(bars), empty = full + 8 * STAGES, done = empty + 8 * STAGES;
  if (thread == 0) {
    for (int i = 0; i < 2 * STAGES + 1; ++i) mbarrier_init(full + 8 * i, 1);
    fence_mbarrier_init();
  }
  if (warp == 1) {
    alloc(&at, 32);
    relinquish();
  }
  fence_before();
  __syncthreads();
  fence_after();
  const uint32_t tmem = at;
  if (thread == 0) {
    for (int tile = 0; tile < TILES; ++tile) {
      const int s = tile % STAGES;
      if (tile >= STAGES) wait(empty + 8 * s, (tile / STAGES - 1) & 1);
      expect(full + 8 * s, (128 + N) * 128);
      tile_load(shared(sa[s]), &of_a, 64 * tile, 0, full + 8 * s);
      tile_load(shared(sb[s]), &of_b, 64 * tile, 0, full + 8 * s);
    }
  } else if (thread == 32) {
    for (int tile = 0; tile < TILES; ++tile) {
      const int s = tile % STAGES;
      wait(full + 8 * s, tile / STAGES & 1);
      fence_after();
      for (int k = 0; k < 4; ++k) {
        const uint64_t a = matrix(shared(sa[s]) + 32 * k, 16, 1024, 2);
        const uint64_t b = matrix(shared(sb[s]) + 32 * k, 16, 1024, 2);
        MMA("f16", tmem, a, b, idesc, tile + k > 0);
      }
      commit(empty + 8 * s);
    }
    commit(done);
  }
  __syncwarp();
  wait(done, 0);
  fence_after();
  for (int n = 0; n < N; n += 8) {
    uint32_t d[8];
    LD8("32x32b.x8", d, tmem + (warp * 32 << 16) + n);
    wait_ld();
    for (int i = 0; i < 8; ++i) out[thread * N + n + i] = d[i];
  }
  fence_before();
  __syncthreads();
  if (warp == 1) dealloc(tmem, 32);
}
"""

IDESC = 1 << 4 | 32 // 8 << 17 | 128 // 16 << 24


def run():
    a, b = torch.randint(-2, 3, (128, 256)).half(), torch.randint(-2, 3, (32, 256)).half()
    out = torch.zeros(128, 32, device="cuda")
    on_device = a.cuda(), b.cuda()
    maps = tensor_map(on_device[0], (64, 128), 128), tensor_map(on_device[1], (64, 32), 128)
    Kernel(SOURCE)(1, 128, *maps, out, IDESC)
    return out, a.double() @ b.double().T
