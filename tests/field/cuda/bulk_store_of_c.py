#!POPCORN leaderboard nvfp4_gemv
#!POPCORN gpu NVIDIA
# expect: pass
"""A thread a row; 128 results leave the block as one bulk copy out of shared memory."""

from torch.utils.cpp_extension import load_inline

SRC = r"""
#include <cuda_fp16.h>
#include <cuda_fp4.h>
#include <cuda_fp8.h>
#include <torch/extension.h>

constexpr int BLOCK = 128;

__device__ __forceinline__ float2 pair(uint8_t byte) {
  return __half22float2(__half2(__nv_cvt_fp4x2_to_halfraw2(byte, __NV_E2M1)));
}

__device__ __forceinline__ float e4m3(uint8_t byte) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(byte, __NV_E4M3)));
}

__global__ __launch_bounds__(BLOCK) void rows(const uint8_t* __restrict__ a,
                                              const uint8_t* __restrict__ b,
                                              const uint8_t* __restrict__ sfa,
                                              const uint8_t* __restrict__ sfb, half* c, int m,
                                              int packed) {
  __shared__ alignas(128) half results[BLOCK];
  const size_t l = blockIdx.y, row = l * m + blockIdx.x * BLOCK + threadIdx.x;
  const uint8_t* mine = a + row * packed;
  const uint8_t* other = b + l * 128 * packed;
  const int blocks = packed / 8;
  float total = 0.f;
  for (int s = 0; s < blocks; ++s) {
    float dot = 0.f;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float2 x = pair(mine[s * 8 + i]), y = pair(other[s * 8 + i]);
      dot = fmaf(x.x, y.x, fmaf(x.y, y.y, dot));
    }
    total = fmaf(dot, e4m3(sfa[row * blocks + s]) * e4m3(sfb[l * 128 * blocks + s]), total);
  }
  results[threadIdx.x] = __float2half_rn(total);
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    const uint32_t from = static_cast<uint32_t>(__cvta_generic_to_shared(results));
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                 ::"l"(c + l * m + blockIdx.x * BLOCK), "r"(from), "n"(2 * BLOCK) : "memory");
    asm volatile("cp.async.bulk.commit_group;");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
}

torch::Tensor gemv(torch::Tensor a, torch::Tensor b, torch::Tensor sfa, torch::Tensor sfb,
                   torch::Tensor c) {
  const int m = a.size(0), packed = a.size(1), l = a.size(2);
  auto bytes = [](const torch::Tensor& t) { return static_cast<const uint8_t*>(t.data_ptr()); };
  rows<<<dim3(m / BLOCK, l), BLOCK>>>(bytes(a), bytes(b), bytes(sfa), bytes(sfb),
                                      reinterpret_cast<half*>(c.data_ptr()), m, packed);
  return c;
}
"""

ext = load_inline(
    "bulk_store_of_c",
    cpp_sources="torch::Tensor gemv(torch::Tensor, torch::Tensor, torch::Tensor, torch::Tensor, "
    "torch::Tensor);",
    cuda_sources=SRC,
    functions=["gemv"],
    extra_cuda_cflags=["-O3", "-gencode=arch=compute_100a,code=sm_100a"],
)


def custom_kernel(data):
    a, b, sfa, sfb, _, _, c = data
    return ext.gemv(a, b, sfa, sfb, c)
