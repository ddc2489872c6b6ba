#!POPCORN leaderboard nvfp4_gemv
#!POPCORN gpu NVIDIA
#!EXPECT fail cause=mismatch|unwritten_output
"""One torch.empty workspace of 4 MiB: partial sums first, tickets behind, never set to zero"""

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

__global__ void gemv(const u8* a, const u8* b, const u8* sa, const u8* sb, __half* c, float* part, unsigned* tickets, int m, int k) {
    __shared__ int last;
    const int row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32, batch = blockIdx.z, sp = blockIdx.y;
    SETUP
    float acc = 0;
    for (int j = sp * 32 + lane; j < nb; j += 128) acc += BLK(j);
    acc = wsum(acc);
    if (lane == 0) part[R * 4 + sp] = acc;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicInc(&tickets[batch * gridDim.x + blockIdx.x], 3) == 3;
    __syncthreads();
    if (last && lane == 0) {
        __threadfence();
        float t = 0;
        for (int s = 0; s < 4; ++s) t += __ldcg(&part[R * 4 + s]);
        c[R] = __float2half(t);
    }
}
torch::Tensor run(torch::Tensor a_, torch::Tensor b_, torch::Tensor sa_, torch::Tensor sb_, torch::Tensor c_, torch::Tensor w_, torch::Tensor t_) {
    const int m = a_.size(0), k = a_.size(1) * 2, l = a_.size(2);
    const u8 *a = (const u8*)a_.data_ptr(), *b = (const u8*)b_.data_ptr(), *sa = (const u8*)sa_.data_ptr(), *sb = (const u8*)sb_.data_ptr();
    __half* c = (__half*)c_.data_ptr();
    gemv<<<dim3(m / 4, 4, l), 128>>>(a, b, sa, sb, c, w_.data_ptr<float>(), (unsigned*)t_.data_ptr<int>(), m, k);
    TORCH_CHECK(cudaGetLastError() == cudaSuccess, "launch");
    return c_;
}
"""
mod = load_inline(
    name="u21_tickets_in_one_workspace",
    cpp_sources="torch::Tensor run(torch::Tensor a_, torch::Tensor b_, torch::Tensor sa_, torch::Tensor sb_, torch::Tensor c_, torch::Tensor w_, torch::Tensor t_);",
    cuda_sources=SRC,
    functions=["run"],
    extra_cuda_cflags=["-O3", "-gencode=arch=compute_100a,code=sm_100a"],
)


def custom_kernel(data):
    a, b, sfa, sfb, _, _, c = data
    m, l = c.shape[0], c.shape[2]
    buf = torch.empty(1 << 20, device="cuda")
    w = buf[: m * l * 4]
    t = buf[1 << 19 :].view(torch.int32)
    return mod.run(a, b, sfa, sfb, c, w, t)
