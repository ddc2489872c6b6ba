#!POPCORN leaderboard nvfp4_gemv
#!POPCORN gpu NVIDIA
# expect: pass
"""Types of cuda_fp4.h, cuda_fp8.h and cuda_bf16.h that nothing includes but torch's own headers."""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>

__device__ __forceinline__ float2 values(__nv_fp4x2_storage_t pair) {
  __half2_raw raw = __nv_cvt_fp4x2_to_halfraw2(pair, __NV_E2M1);
  return __half22float2(*reinterpret_cast<__half2*>(&raw));
}

__device__ __forceinline__ float scale(__nv_fp8_storage_t code) {
  __half_raw raw = __nv_cvt_fp8_to_halfraw(code, __NV_E4M3);
  return __half2float(*reinterpret_cast<__half*>(&raw));
}

// A block of 64 threads a row; each takes blocks of 16 elements.
__global__ void gemv(const uint2* a, const uint2* b, const __nv_fp8_storage_t* sfa,
                     const __nv_fp8_storage_t* sfb, __half* c, int m, int blocks) {
  __shared__ float warps[2];
  const int row = blockIdx.x, batch = blockIdx.y;
  const size_t at = ((size_t)batch * m + row) * blocks, from = (size_t)batch * 128 * blocks;
  float sum = 0.f;
  for (int i = threadIdx.x; i < blocks; i += 64) {
    const uint2 x = a[at + i], y = b[from + i];
    float part = 0.f;
    for (int n = 0; n < 8; ++n) {
      const unsigned shift = 8 * (n % 4);
      const float2 u = values((n < 4 ? x.x : x.y) >> shift & 255u);
      const float2 v = values((n < 4 ? y.x : y.y) >> shift & 255u);
      part += u.x * v.x + u.y * v.y;
    }
    sum += part * scale(sfa[at + i]) * scale(sfb[from + i]);
  }
  for (int s = 16; s > 0; s >>= 1) sum += __shfl_down_sync(0xffffffffu, sum, s);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) c[(size_t)batch * m + row] = __float2half(warps[0] + warps[1]);
}

torch::Tensor nvfp4_gemv(torch::Tensor a, torch::Tensor b, torch::Tensor sfa, torch::Tensor sfb,
                         torch::Tensor c) {
  const int m = a.size(0), blocks = a.size(1) / 8;
  gemv<<<dim3(m, a.size(2)), 64>>>(
      reinterpret_cast<const uint2*>(a.data_ptr()), reinterpret_cast<const uint2*>(b.data_ptr()),
      reinterpret_cast<const __nv_fp8_storage_t*>(sfa.data_ptr()),
      reinterpret_cast<const __nv_fp8_storage_t*>(sfb.data_ptr()),
      reinterpret_cast<__half*>(c.data_ptr()), m, blocks);
  return c;
}
"""

extension = load_inline(
    name="no_includes",
    cpp_sources=[
        "torch::Tensor nvfp4_gemv(torch::Tensor a, torch::Tensor b, torch::Tensor sfa, torch::Tensor sfb, torch::Tensor c);"
    ],
    cuda_sources=[SOURCE],
    functions=["nvfp4_gemv"],
    extra_cuda_cflags=["-O3", "-gencode=arch=compute_100a,code=sm_100a"],
)


def custom_kernel(data):
    a, b, sfa, sfb, _, _, c = data
    return extension.nvfp4_gemv(a, b, sfa, sfb, c)
