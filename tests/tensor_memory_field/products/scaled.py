# expect: right
"""A product of NVFP4, 128 x 64 x 64: tcgen05.cp brings the scales, 16 elements sharing one."""

import torch
from tensor_memory_field.device import Kernel

SOURCE = r"""
#include "ptx.h"
#define KIND "mxf4nvf4.block_scale.block16"
#define N 64

extern "C" __global__ void kernel(const uint4 *a, const uint4 *b, const uint4 *sfa, const uint4 *sfb, uint32_t *out,
                                  uint32_t idesc) {
  __shared__ alignas(128) uint4 sa[128 * 2], sb[N * 2], scales_a[32], scales_b[32];
  __shared__ uint64_t done;
  __shared__ uint32_t at;
  const int row = threadIdx.x, warp = row / 32;
  const uint32_t bar = shared(&done);
  for (int i = 0; i < 2; ++i) {
    sa[row / 8 * 16 + i * 8 + row % 8] = a[row * 2 + i];
    if (row < N) sb[row / 8 * 16 + i * 8 + row % 8] = b[row * 2 + i];
  }
  if (row < 32) scales_a[row] = sfa[row];
  if (row < 32) scales_b[row] = sfb[row];
  fence_proxy_async();
  if (warp == 0) {
    alloc(&at, 128);
    relinquish();
  }
  if (row == 0) mbarrier_init(bar, 1);
  fence_before();
  __syncthreads();
  fence_after();
  const uint32_t tmem = at, of_sfa = tmem + N, of_sfb = tmem + N + 4;
  if (row == 0) {
    CP("32x128b.warpx4", of_sfa, matrix(shared(scales_a), 0, 128, 0));
    CP("32x128b.warpx4", of_sfb, matrix(shared(scales_b), 0, 128, 0));
    MMA_SCALED(KIND, tmem, matrix(shared(sa), 128, 256, 0), matrix(shared(sb), 128, 256, 0), idesc, of_sfa, of_sfb, 0);
    commit(bar);
  }
  __syncwarp();
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
  if (warp == 0) dealloc(tmem, 128);
}
"""

IDESC = 1 << 7 | 1 << 10 | 64 // 8 << 17 | 0 << 23 | 128 // 128 << 27
BLOCK = 16


def values(codes):
    """Of bytes of two e2m1."""
    magnitudes = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    table = torch.cat([magnitudes, -magnitudes]).double()
    return torch.stack([table[codes.int() & 15], table[codes.int() >> 4]], -1).flatten(1)


def scales(codes):
    return codes.view(torch.float8_e4m3fn).double()


def scale_codes(rows):
    choice = torch.tensor([0x28, 0x30, 0x38, 0x44], dtype=torch.uint8)
    return choice[torch.randint(0, 4, (rows, 4))]


def chunk(codes):
    """As tensor memory wants them: rows 32 apart beside each other."""
    all_rows = torch.nn.functional.pad(codes, (0, 0, 0, 128 - len(codes)))
    return all_rows.view(4, 32, 4).transpose(0, 1).contiguous()


def run():
    a, b = (torch.randint(0, 256, (rows, 32), dtype=torch.uint8) for rows in (128, 64))
    sfa, sfb = scale_codes(128), scale_codes(64)
    out = torch.zeros(128, 64, device="cuda")
    Kernel(SOURCE)(1, 128, a.cuda(), b.cuda(), chunk(sfa).cuda(), chunk(sfb).cuda(), out, IDESC)
    wide = [scales(each).repeat_interleave(BLOCK, 1)[:, :64] for each in (sfa, sfb)]
    return out, (values(a) * wide[0]) @ (values(b) * wide[1]).T
