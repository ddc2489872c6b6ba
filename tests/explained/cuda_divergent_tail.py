#!POPCORN leaderboard nvfp4_gemv
#!POPCORN gpu NVIDIA
"""A warp a row, 32 bytes of it a lane: what is left over at a row's end is for a few lanes."""

from torch.utils.cpp_extension import load_inline

SRC = r"""
#include <torch/extension.h>
#include <cuda_fp16.h>
#include <cstdint>

__device__ __forceinline__ __half2 decoded(uint32_t byte)
{
    uint32_t pair;
    asm("{ .reg .b8 low; cvt.u8.u32 low, %1; cvt.rn.f16x2.e2m1x2 %0, low; }"
        : "=r"(pair) : "r"(byte));
    return reinterpret_cast<__half2&>(pair);
}

__device__ __forceinline__ __half2 dot(uint4 x, uint4 y, __half2 sum)
{
    uint32_t p[4] = {x.x, x.y, x.z, x.w}, q[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
    for (int i = 0; i < 16; i++)
        sum = __hfma2(decoded(p[i / 4] >> i % 4 * 8), decoded(q[i / 4] >> i % 4 * 8), sum);
    return sum;
}

__global__ void warps(const uint4* a, const uint4* b, __half* c, int count)
{
    int lane = threadIdx.x, row = blockIdx.x * blockDim.y + threadIdx.y;
    a += (long)row * count;
    __half2 sum = __float2half2_rn(0.f);
    int even = count / 32 * 32;
    for (int i = lane; i < even; i += 32)
        sum = dot(a[i], b[i], sum);
    if (lane == 0)  // <- divergence
        for (int i = even; i < count; i++)
            sum = dot(a[i], b[i], sum);
    float total = __low2float(sum) + __high2float(sum);
    for (int distance = 16; distance; distance /= 2)
        total += __shfl_xor_sync(~0u, total, distance);
    if (lane == 0) c[row] = __float2half(total);
}

void run(torch::Tensor a, torch::Tensor b, torch::Tensor c)
{
    int m = a.size(0);
    warps<<<m / 4, dim3(32, 4)>>>((const uint4*)a.data_ptr(), (const uint4*)b.data_ptr(),
                                  (__half*)c.data_ptr(), a.size(1) / 16);
}
"""

module = load_inline(
    "explained_tail",
    "void run(torch::Tensor, torch::Tensor, torch::Tensor);",
    SRC,
    functions=["run"],
)


def custom_kernel(data):
    a, b, *_, c = data
    module.run(a, b, c)
    return c
