#!POPCORN leaderboard nvfp4_gemv
#!POPCORN gpu NVIDIA
#!EXPECT fail cause=mismatch|unwritten_output
"""A persistent grid of 148 CTAs takes its rows by %smid"""

import torch
from torch.utils.cpp_extension import load_inline

SRC = r"""
#include <cuda_fp16.h>
#include <cuda_fp4.h>
#include <cuda_fp8.h>

using u8 = unsigned char;
__device__ __forceinline__ float e8(u8 s) { return __half2float(__half(__nv_cvt_fp8_to_halfraw(s, __NV_E4M3))); }
__device__ __forceinline__ float dot16(const u8* x, const u8* y) {
    const uint2 p = *reinterpret_cast<const uint2*>(x), q = *reinterpret_cast<const uint2*>(y);
    const unsigned pw[2] = {p.x, p.y}, qw[2] = {q.x, q.y};
    float s = 0.f;
#pragma unroll
    for (int w = 0; w < 2; ++w)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            float2 f = __half22float2(__half2(__nv_cvt_fp4x2_to_halfraw2((pw[w] >> 8 * i) & 255, __NV_E2M1)));
            float2 g = __half22float2(__half2(__nv_cvt_fp4x2_to_halfraw2((qw[w] >> 8 * i) & 255, __NV_E2M1)));
            s = fmaf(f.x, g.x, s);
            s = fmaf(f.y, g.y, s);
        }
    return s;
}
__device__ __forceinline__ float wsum(float v) {
#pragma unroll
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
    return v;
}
#define SETUP const long R = (long)batch * m + row; const u8* ar = a + R * (k / 2); const u8* br = b + (long)batch * 64 * k; const u8* sar = sa + R * (k / 16); const u8* sbr = sb + (long)batch * 8 * k; const int nb = k / 16;
#define BLK(j) (dot16(ar + 8 * (j), br + 8 * (j)) * (e8(sar[j]) * e8(sbr[j])))

__global__ void gemv(const u8* a, const u8* b, const u8* sa, const u8* sb, __half* c, int m, int k) {
    unsigned smid; asm volatile("mov.u32 %0, %smid;" : "=r"(smid)); const int lane = threadIdx.x % 32, batch = blockIdx.y;
    for (int row = smid * 4 + threadIdx.x / 32; row < m; row += 148 * 4) { SETUP
    float acc = 0;
    for (int j = lane; j < nb; j += 32) acc += BLK(j);
    acc = wsum(acc);
    if (lane == 0) c[R] = __float2half(acc); }
}
torch::Tensor run(torch::Tensor a_, torch::Tensor b_, torch::Tensor sa_, torch::Tensor sb_, torch::Tensor c_) {
    const int m = a_.size(0), k = a_.size(1) * 2, l = a_.size(2);
    const u8 *a = (const u8*)a_.data_ptr(), *b = (const u8*)b_.data_ptr(), *sa = (const u8*)sa_.data_ptr(), *sb = (const u8*)sb_.data_ptr();
    __half* c = (__half*)c_.data_ptr();
    gemv<<<dim3(148, l), 128>>>(a, b, sa, sb, c, m, k);
    TORCH_CHECK(cudaGetLastError() == cudaSuccess, "launch");
    return c_;
}
"""
mod = load_inline(
    name="o06_smid_rows",
    cpp_sources="torch::Tensor run(torch::Tensor a_, torch::Tensor b_, torch::Tensor sa_, torch::Tensor sb_, torch::Tensor c_);",
    cuda_sources=SRC,
    functions=["run"],
    extra_cuda_cflags=["-O3", "-gencode=arch=compute_100a,code=sm_100a"],
)


def custom_kernel(data):
    a, b, sfa, sfb, _, _, c = data
    return mod.run(a, b, sfa, sfb, c)
