#!POPCORN leaderboard nvfp4_gemv
#!POPCORN gpu NVIDIA
# expect: pass
"""Cooperative groups: a tile of 16 threads a row, cg::reduce; permuted scales, four at a time."""

import functools

from torch.utils.cpp_extension import load_inline


@functools.lru_cache(maxsize=None)
def extension():
    cuda = r"""
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_fp16.h>
#include <cuda_fp4.h>
#include <cuda_fp8.h>

namespace cg = cooperative_groups;
using Tile = cg::thread_block_tile<16>;

__device__ __forceinline__ float Dot64(const uchar4* x, const uchar4* y, uchar4 s, uchar4 t) {
  auto scale = [](unsigned char u, unsigned char v) {
    return __half2float(__half(__nv_cvt_fp8_to_halfraw(u, __NV_E4M3))) *
           __half2float(__half(__nv_cvt_fp8_to_halfraw(v, __NV_E4M3)));
  };
  auto pair = [](unsigned char u, unsigned char v) {
    __half2 p(__nv_cvt_fp4x2_to_halfraw2(u, __NV_E2M1));
    __half2 q(__nv_cvt_fp4x2_to_halfraw2(v, __NV_E2M1));
    return __half22float2(__hmul2(p, q));
  };
  const float scales[4] = {scale(s.x, t.x), scale(s.y, t.y), scale(s.z, t.z), scale(s.w, t.w)};
  float result = 0.f;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    const uchar4 u = x[i], v = y[i];
    const float2 d0 = pair(u.x, v.x), d1 = pair(u.y, v.y), d2 = pair(u.z, v.z), d3 = pair(u.w, v.w);
    result += ((d0.x + d0.y) + (d1.x + d1.y) + (d2.x + d2.y) + (d3.x + d3.y)) * scales[i / 2];
  }
  return result;
}

__global__ void TileGemv(const uchar4* a, const uchar4* b, const uchar4* sfa, const uchar4* sfb,
                         __half* c, int m, int groups) {
  const Tile tile = cg::tiled_partition<16>(cg::this_thread_block());
  const int row = blockIdx.x * tile.meta_group_size() + tile.meta_group_rank();
  const size_t l = blockIdx.y, rest_m = (m + 127) / 128;
  a += (l * m + row) * groups * 8;
  b += l * 128 * groups * 8;
  // [l, rest_m, rest_k, 32, 4] words of four scales
  sfa += (l * rest_m + row / 128) * groups * 128 + row % 32 * 4 + row % 128 / 32;
  sfb += l * groups * 128;
  float sum = 0.f;
  for (int g = tile.thread_rank(); g < groups; g += tile.size())
    sum += Dot64(a + g * 8, b + g * 8, sfa[g * 128], sfb[g * 128]);
  sum = cg::reduce(tile, sum, cg::plus<float>());
  if (tile.thread_rank() == 0) c[l * m + row] = __float2half(sum);
}

void gemv(const at::Tensor& a, const at::Tensor& b, const at::Tensor& sfa, const at::Tensor& sfb,
          const at::Tensor& c) {
  auto p = [](const at::Tensor& t) { return reinterpret_cast<const uchar4*>(t.data_ptr()); };
  TileGemv<<<dim3(c.size(0) / 8, c.size(2)), 128>>>(p(a), p(b), p(sfa), p(sfb),
                                                    static_cast<__half*>(c.data_ptr()), c.size(0),
                                                    a.size(1) / 32);
}
"""
    return load_inline(
        name="cg_tiles",
        cpp_sources="void gemv(const at::Tensor&, const at::Tensor&, const at::Tensor&,"
        "const at::Tensor&, const at::Tensor&);",
        cuda_sources=cuda,
        functions=["gemv"],
        extra_cuda_cflags=["-O3", "-gencode=arch=compute_100a,code=sm_100a"],
    )


def custom_kernel(data):
    a, b, _, _, sfa, sfb, c = data
    extension().gemv(a, b, sfa, sfb, c)
    return c
