# expect: right
"""Two CTAs of a cluster multiply rows of their own by one b, of which each loads a half for both."""

import torch
from tensor_memory_field.device import Kernel, tensor_map

SOURCE = r"""
#include "ptx.h"
#define STAGES 2
#define TILES 4
#define N 32
#define commit_both(bar) \
  asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;" \
               ::"r"(bar), "h"((uint16_t)3) : "memory")

struct alignas(64) Map { char bytes[128]; };

extern "C" __global__ void kernel(const __grid_constant__ Map of_a, const __grid_constant__ Map of_b, uint32_t *out,
                                  uint32_t idesc) {
  __shared__ alignas(1024) uint8_t sa[STAGES][128 * 128], sb[STAGES][N * 128];
  __shared__ uint64_t bars[2 * STAGES + 1];
  __shared__ uint32_t at;
  const int thread = threadIdx.x, warp = thread / 32, me = rank();
  const uint32_t full = shared(bars), empty = full + 8 * STAGES, done = empty + 8 * STAGES;
  if (thread == 0) {
    for (int s = 0; s < STAGES; ++s) {
      mbarrier_init(full + 8 * s, 1);
      mbarrier_init(empty + 8 * s, 2);
    }
    mbarrier_init(done, 1);
    fence_mbarrier_init();
  }
  if (warp == 1) {
    alloc(&at, 32);
    relinquish();
  }
  fence_before();
  cluster_sync();
  fence_after();
  const uint32_t tmem = at;
  if (thread == 0) {
    for (int tile = 0; tile < TILES; ++tile) {
      const int s = tile % STAGES;
      if (tile >= STAGES) wait_cluster(empty + 8 * s, (tile / STAGES - 1) & 1);
      expect(full + 8 * s, (128 + N) * 128);
      tile_load(shared(sa[s]), &of_a, 64 * tile, 128 * me, full + 8 * s);
      tile_load_multicast(shared(sb[s] + N / 2 * 128 * me), &of_b, 64 * tile, N / 2 * me, full + 8 * s, 3);
    }
  } else if (thread == 32) {
    for (int tile = 0; tile < TILES; ++tile) {
      const int s = tile % STAGES;
      wait_cluster(full + 8 * s, tile / STAGES & 1);
      fence_after();
      for (int k = 0; k < 4; ++k) {
        const uint64_t a = matrix(shared(sa[s]) + 32 * k, 16, 1024, 2);
        const uint64_t b = matrix(shared(sb[s]) + 32 * k, 16, 1024, 2);
        MMA("f16", tmem, a, b, idesc, tile + k > 0);
      }
      commit_both(empty + 8 * s);
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
    for (int i = 0; i < 8; ++i) out[(128 * me + thread) * N + n + i] = d[i];
  }
  fence_before();
  cluster_sync();
  if (warp == 1) dealloc(tmem, 32);
}
"""

IDESC = 1 << 4 | 32 // 8 << 17 | 128 // 16 << 24


def run():
    a, b = torch.randint(-2, 3, (256, 256)).half(), torch.randint(-2, 3, (32, 256)).half()
    out = torch.zeros(256, 32, device="cuda")
    on_device = a.cuda(), b.cuda()
    maps = tensor_map(on_device[0], (64, 128), 128), tensor_map(on_device[1], (64, 16), 128)
    Kernel(SOURCE)(2, 128, *maps, out, IDESC, cluster=2)
    return out, a.double() @ b.double().T
