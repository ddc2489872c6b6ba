#!POPCORN leaderboard nvfp4_gemv
#!POPCORN gpu NVIDIA
# expect: pass
"""The last warp adds up: a ticket by an atomic in shared memory, and fences."""

import torch
from torch.utils.cpp_extension import load_inline

src = r"""

#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cstdint>
__device__ __forceinline__ float f8(uint8_t s) { return __half2float(__half(__nv_cvt_fp8_to_halfraw(s, __NV_E4M3))); }
__device__ __forceinline__ float f4(unsigned n) { return __half2float(__ushort_as_half((unsigned short)((n & 7) << 9 | (n & 8) << 12))) * 16384.f; }
__device__ __forceinline__ float block16(const uint8_t* x, const uint8_t* y) {
  float d = 0;
  for (int i = 0; i < 8; ++i) d += f4(x[i] & 15) * f4(y[i] & 15) + f4(x[i] >> 4) * f4(y[i] >> 4);
  return d;
}

// the last warp to arrive (shared atomic ticket, fences) adds up the partial sums of all warps
__global__ void kern(const uint8_t* a, const uint8_t* b, const uint8_t* sfa, const uint8_t* sfb, __half* c, int m, int k) {
  __shared__ float part[8]; __shared__ unsigned count;
  const int row = blockIdx.x, z = blockIdx.y, lane = threadIdx.x & 31, warp = threadIdx.x >> 5; float acc = 0;
  if (threadIdx.x == 0) count = 0;
  __syncthreads();
  for (int j = threadIdx.x; j < k / 16; j += blockDim.x) acc += block16(a + ((size_t)z * m + row) * (k / 2) + 8 * j, b + (size_t)z * 64 * k + 8 * j) * f8(sfa[((size_t)z * m + row) * (k / 16) + j]) * f8(sfb[(size_t)z * 8 * k + j]);
  for (int o = 16; o; o >>= 1) acc += __shfl_xor_sync(~0u, acc, o);
  if (lane == 0) {
    *(volatile float*)&part[warp] = acc;
    __threadfence_block();
    if (atomicAdd(&count, 1u) == blockDim.x / 32 - 1) {
      __threadfence_block();
      float s = 0; for (int w = 0; w < blockDim.x / 32; ++w) s += *(volatile float*)&part[w];
      c[(size_t)z * m + row] = __float2half(s);
    }
  }
}
void run(torch::Tensor a, torch::Tensor b, torch::Tensor sfa, torch::Tensor sfb, torch::Tensor c) { int m = a.size(0), k = 2 * a.size(1), l = a.size(2); kern<<<dim3(m, l), 256>>>((const uint8_t*)a.data_ptr(), (const uint8_t*)b.data_ptr(), (const uint8_t*)sfa.data_ptr(), (const uint8_t*)sfb.data_ptr(), (__half*)c.data_ptr(), m, k); }

"""
mod = load_inline(
    name="c37_last_warp_ticket",
    cpp_sources="void run(torch::Tensor a, torch::Tensor b, torch::Tensor sfa, torch::Tensor sfb, torch::Tensor c);",
    cuda_sources=src,
    functions=["run"],
)


def custom_kernel(data):
    a, b, sfa, sfb, _, _, c = data
    mod.run(a, b, sfa, sfb, c)
    return c
