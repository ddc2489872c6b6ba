# expect: right
"""Lanes load sums, store them to shared memory, and a bulk copy takes them out."""

import torch
from tensor_memory_field.device import Kernel

SOURCE = r"""
#include "ptx.h"

extern "C" __global__ void kernel(const uint32_t *in, uint32_t *out) {
  __shared__ alignas(128) uint32_t tile[32 * 8];
  __shared__ uint32_t at;
  const int lane = threadIdx.x;
  alloc(&at, 32);
  relinquish();
  __syncwarp();
  const uint32_t tmem = at;
  uint32_t v[8];
  for (int i = 0; i < 8; ++i) v[i] = in[lane * 8 + i];
  ST8("32x32b.x8", tmem, v);
  wait_st();
  for (int round = 0; round < 2; ++round) {
    LD8("32x32b.x8", v, tmem);
    wait_ld();
    for (int i = 0; i < 8; ++i) tile[lane * 8 + i] = v[i] + round;
    fence_proxy_async();
    __syncwarp();
    if (lane == 0) {
      asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 1024;" ::"l"(out + 256 * round), "r"(shared(tile)) : "memory");
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    }
    __syncwarp();
  }
  dealloc(tmem, 32);
  if (lane == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
"""


def run():
    x = torch.randint(0, 99, (32, 8), dtype=torch.int32)
    out = torch.zeros(2, 32, 8, dtype=torch.int32, device="cuda")
    Kernel(SOURCE)(1, 32, x.cuda(), out)
    return out, torch.stack([x, x + 1])
