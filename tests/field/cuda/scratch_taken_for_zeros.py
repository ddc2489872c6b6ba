#!POPCORN leaderboard nvfp4_gemv
#!POPCORN gpu NVIDIA
#!EXPECT fail cause=mismatch|unwritten_global
"""Sums in memory of cudaMalloc, which are cleared after each call and not before the first."""

import torch
from torch.utils.cpp_extension import load_inline

from task import input_t, output_t

cuda_source = r"""
#include <cuda_fp16.h>
#include <cuda_fp4.h>
#include <cuda_fp8.h>
#include <cstdint>
__device__ __forceinline__ float dot16(uint2 a, uint2 b)
{
    const uint32_t wa[2] = {a.x, a.y}, wb[2] = {b.x, b.y};
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const __nv_fp4x2_storage_t xa = wa[i / 4] >> (8 * (i % 4));
        const __nv_fp4x2_storage_t xb = wb[i / 4] >> (8 * (i % 4));
        const float2 x = __half22float2(__nv_cvt_fp4x2_to_halfraw2(xa, __NV_E2M1));
        const float2 y = __half22float2(__nv_cvt_fp4x2_to_halfraw2(xb, __NV_E2M1));
        sum += x.x * y.x + x.y * y.y;
    }
    return sum;
}
__device__ __forceinline__ float scale(uint8_t code) {
    return __half2float(__nv_cvt_fp8_to_halfraw(code, __NV_E4M3));
}

constexpr int WARPS = 4, SPLITS = 4;
__global__ void gemv_kernel(const uint2* a, const uint2* b, const uint8_t* sfa, const uint8_t* sfb,
                            float* c, int m, int blocks)
{
    const int lane = threadIdx.x, batch = blockIdx.y, warp = threadIdx.y;
    const int64_t row = (int64_t)batch * m + blockIdx.x * WARPS + warp;
    a += row * blocks; sfa += row * blocks;
    b += (int64_t)batch * 128 * blocks; sfb += (int64_t)batch * 128 * blocks;
    float sum = 0;
    for (int block = lane + 32 * blockIdx.z; block < blocks; block += 32 * SPLITS)
        sum += dot16(a[block], b[block]) * (scale(sfa[block]) * scale(sfb[block]));
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffff, sum, d);
    if (lane == 0) atomicAdd(c + row, sum);
}
__global__ void finish(const float* s, __half* c, int n)
{
    int i = blockIdx.x * 128 + threadIdx.x;
    if (i < n) c[i] = __float2half(s[i]);
}

void gemv(torch::Tensor a, torch::Tensor b, torch::Tensor sfa, torch::Tensor sfb, torch::Tensor c)
{
    static float* buf = nullptr;
    if (!buf) cudaMalloc(&buf, 1 << 20);
    const int m = a.size(0), blocks = a.size(1) / 8, l = a.size(2);
    gemv_kernel<<<dim3(m / WARPS, l, SPLITS), dim3(32, WARPS)>>>(
        (const uint2*)a.data_ptr(), (const uint2*)b.data_ptr(), (const uint8_t*)sfa.data_ptr(),
        (const uint8_t*)sfb.data_ptr(), buf, m, blocks);
    finish<<<(m * l + 127) / 128, 128>>>(buf, (__half*)c.data_ptr(), m * l);
    cudaMemsetAsync(buf, 0, 4 * m * l);
    TORCH_CHECK(cudaGetLastError() == cudaSuccess, "the launch failed");
}

"""
cpp_source = """
#include <torch/extension.h>
void gemv(torch::Tensor a, torch::Tensor b, torch::Tensor sfa, torch::Tensor sfb, torch::Tensor c);
"""
module = load_inline(
    name="scratch_taken_for_zeros",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["gemv"],
    extra_cuda_cflags=["-O3", "-std=c++17", "-gencode=arch=compute_100a,code=sm_100a"],
)


def custom_kernel(data: input_t) -> output_t:
    a, b, sfa, sfb, _, _, c = data
    module.gemv(*(e.view(torch.uint8) for e in (a, b, sfa, sfb)), c)
    return c
