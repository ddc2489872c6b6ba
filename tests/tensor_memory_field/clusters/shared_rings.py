# expect: right
"""Two CTAs each load half of every tile for both; a slot is empty when the warps of both have read it."""

import torch
from tensor_memory_field.device import Kernel

SOURCE = r"""
#include "ptx.h"

#define TILES 6
#define STAGES 2

extern "C" __global__ void kernel(const float *in, float *out) {
  __shared__ alignas(128) float tiles[STAGES][64];
  __shared__ uint64_t bars[2 * STAGES];
  const int i = threadIdx.x;
  const uint32_t full = shared(bars), empty = full + 8 * STAGES, me = rank();
  if (i == 0) {
    for (int s = 0; s < STAGES; ++s) {
      mbarrier_init(full + 8 * s, 1);
      mbarrier_init(empty + 8 * s, 4);
    }
    fence_mbarrier_init();
  }
  cluster_sync();
  if (i >= 64) {
    if (i == 64) {
      for (int tile = 0; tile < TILES; ++tile) {
        const int s = tile % STAGES;
        if (tile >= STAGES) wait_cluster(empty + 8 * s, (tile / STAGES - 1) & 1);
        expect(full + 8 * s, 256);
        bulk_load_multicast(shared(tiles[s] + 32 * me), in + 64 * tile + 32 * me, 128, full + 8 * s, 3);
      }
    }
  } else {
    float sum = 0;
    for (int tile = 0; tile < TILES; ++tile) {
      const int s = tile % STAGES;
      wait(full + 8 * s, tile / STAGES & 1);
      sum += (1 + tile) * tiles[s][me ? i : 63 - i];
      fence_proxy_async();
      __syncwarp();
      if (i % 32 < 2) arrive_remote(mapa(empty + 8 * s, i % 32));
    }
    out[me * 64 + i] = sum;
  }
  __syncwarp();
  cluster_sync();
}
"""


def run():
    x = torch.randint(-9, 9, (6, 64)).float()
    out = torch.zeros(2, 64, device="cuda")
    Kernel(SOURCE)(2, 96, x.cuda(), out, cluster=2)
    sums = (x * torch.arange(1, 7)[:, None]).sum(0)
    return out, torch.stack([sums.flip(0), sums])
