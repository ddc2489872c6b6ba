#!POPCORN leaderboard nvfp4_gemv
#!POPCORN gpu NVIDIA
# expect: pass
# quick: yes
"""Partial sums in slots in the order of arrival; the last CTA adds up, torch rounds."""

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

// split-K: each CTA takes the next slot of its group by an atomic; the last adds the slots up, in the order of arrival
__global__ void kern(const uint8_t* a, const uint8_t* b, const uint8_t* sfa, const uint8_t* sfb, float* c, float* ws, unsigned* slots, int m, int k) {
  const int row = blockIdx.x * 64 + threadIdx.x, z = blockIdx.z, g = z * gridDim.x + blockIdx.x; __shared__ unsigned slot, done;
  float s = 0;
  if (row < m) for (int j = blockIdx.y; j < k / 16; j += gridDim.y) s += block16(a + ((size_t)z * m + row) * (k / 2) + 8 * j, b + (size_t)z * 64 * k + 8 * j) * f8(sfa[((size_t)z * m + row) * (k / 16) + j]) * f8(sfb[(size_t)z * 8 * k + j]);
  if (threadIdx.x == 0) slot = atomicAdd(slots + 2 * g, 1u);
  __syncthreads();
  float* w = ws + (size_t)g * gridDim.y * 64;
  w[slot * 64 + threadIdx.x] = s;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) done = atomicAdd(slots + 2 * g + 1, 1u);
  __syncthreads();
  if (done == gridDim.y - 1) {
    __threadfence();
    float t = 0;
    for (int i = 0; i < gridDim.y; ++i) t += __ldcg(w + i * 64 + threadIdx.x);
    if (row < m) c[(size_t)z * m + row] = t;
  }
}
void run(torch::Tensor a, torch::Tensor b, torch::Tensor sfa, torch::Tensor sfb, torch::Tensor c) { int m = a.size(0), k = 2 * a.size(1), l = a.size(2);
  const int g = (m + 63) / 64, splits = 8;
  auto ws = torch::empty({l * g * splits * 64}, c.options().dtype(torch::kFloat32));
  auto slots = torch::zeros({l * g * 2}, c.options().dtype(torch::kInt32));
  kern<<<dim3(g, splits, l), 64>>>((const uint8_t*)a.data_ptr(), (const uint8_t*)b.data_ptr(), (const uint8_t*)sfa.data_ptr(), (const uint8_t*)sfb.data_ptr(), (float*)c.data_ptr(), ws.data_ptr<float>(), (unsigned*)slots.data_ptr<int>(), m, k); }

"""
mod = load_inline(
    name="c41_slots_in_order_of_arrival",
    cpp_sources="void run(torch::Tensor a, torch::Tensor b, torch::Tensor sfa, torch::Tensor sfb, torch::Tensor c);",
    cuda_sources=src,
    functions=["run"],
)


def custom_kernel(data):
    a, b, sfa, sfb, _, _, c = data
    out = torch.empty((c.shape[2], c.shape[0]), dtype=torch.float32, device="cuda")
    mod.run(a, b, sfa, sfb, out)
    c.copy_(out.t().unsqueeze(1))
    return c
