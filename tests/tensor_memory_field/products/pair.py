# expect: right
"""A pair of CTAs makes one product of 256 x 64: each stores its rows of a and half of those of b."""

import torch
from tensor_memory_field.device import Kernel

SOURCE = r"""
#include "ptx.h"
#define N 64
#define ROW 64  // bytes of a row: two products

extern "C" __global__ void kernel(const uint4 *a, const uint4 *b, uint32_t *out, uint32_t idesc) {
  __shared__ alignas(128) uint4 sa[128 * ROW / 16], sb[N / 2 * ROW / 16];
  __shared__ uint64_t done;
  __shared__ uint32_t at;
  const int row = threadIdx.x, warp = row / 32, me = rank();
  const uint32_t bar = shared(&done);
  for (int i = 0; i < ROW / 16; ++i) {
    sa[row / 8 * (ROW / 2) + i * 8 + row % 8] = a[(128 * me + row) * (ROW / 16) + i];
    if (row < N / 2) sb[row / 8 * (ROW / 2) + i * 8 + row % 8] = b[(N / 2 * me + row) * (ROW / 16) + i];
  }
  fence_proxy_async();
  if (warp == 0) {
    asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], 64;" ::"r"(shared(&at)) : "memory");
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;");
  }
  if (row == 0) {
    mbarrier_init(bar, 1);
    fence_mbarrier_init();
  }
  fence_before();
  cluster_sync();
  fence_after();
  const uint32_t tmem = at;
  if (me == 0 && row == 0) {
    for (uint32_t k = 0; k < ROW / 32; ++k) {
      const uint64_t of_a = matrix(shared(sa) + 256 * k, 128, 8 * ROW, 0);
      const uint64_t of_b = matrix(shared(sb) + 256 * k, 128, 8 * ROW, 0);
      asm volatile("{ .reg .pred p; setp.ne.u32 p, %4, 0; tcgen05.mma.cta_group::2.kind::f16 [%0], %1, %2, %3, p; }" ::"r"(tmem), "l"(of_a), "l"(of_b), "r"(idesc), "r"(k) : "memory");
    }
    asm volatile("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;" ::"r"(bar), "h"((uint16_t)3) : "memory");
  }
  __syncwarp();
  wait_cluster(bar, 0);
  fence_after();
  for (int n = 0; n < N; n += 8) {
    uint32_t d[8];
    LD8("32x32b.x8", d, tmem + (warp * 32 << 16) + n);
    wait_ld();
    for (int i = 0; i < 8; ++i) out[(128 * me + row) * N + n + i] = d[i];
  }
  fence_before();
  cluster_sync();
  if (warp == 0) asm volatile("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, 64;" ::"r"(tmem) : "memory");
}
"""

IDESC = 1 << 4 | 64 // 8 << 17 | 256 // 16 << 24


def run():
    a, b = torch.randint(-2, 3, (256, 32)).half(), torch.randint(-2, 3, (64, 32)).half()
    out = torch.zeros(256, 64, device="cuda")
    Kernel(SOURCE)(2, 128, a.cuda(), b.cuda(), out, IDESC, cluster=2)
    return out, a.double() @ b.double().T
