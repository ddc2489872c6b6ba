#!POPCORN leaderboard nvfp4_gemv
#!POPCORN gpu NVIDIA
"""A warp a row; each word of a comes with scales that eight other words need as well.

The scales are read by inline PTX, once for each of a lane's four words, though two words share one.
"""

from torch.utils.cpp_extension import load_inline

SRC = r"""
#include <torch/extension.h>
#include <cuda_fp16.h>
#include <cstdint>

__device__ float scale(const uint8_t* at)
{
    uint32_t pair;
    asm volatile("{\n\t"
                 ".reg .b16 both;\n\t"
                 "ld.global.nc.u8 both, [%1];\n\t"
                 "cvt.rn.f16x2.e4m3x2 %0, both;\n\t"
                 "}"
                 : "=r"(pair) : "l"(at));  // <- redundant_load
    return __low2float(reinterpret_cast<__half2&>(pair));
}

__device__ uint32_t decoded(uint32_t byte)
{
    uint32_t pair;
    asm("{ .reg .b8 low; cvt.u8.u32 low, %1; cvt.rn.f16x2.e2m1x2 %0, low; }"
        : "=r"(pair) : "r"(byte));
    return pair;
}

__global__ void warps(const uint4* a, const uint4* b, const uint8_t* sfa, const uint8_t* sfb,
                      __half* c, int m, int k)
{
    int lane = threadIdx.x, row = blockIdx.x * blockDim.y + threadIdx.y, count = k / 32;
    a += (long)row * count;
    sfa += (long)row * (k / 16);
    float total = 0;
    for (int i = lane; i < count; i += 32) {
        uint4 mine = a[i], other = b[i];
        const uint32_t* x = &mine.x;
        const uint32_t* y = &other.x;
#pragma unroll
        for (int word = 0; word < 4; word++)
#pragma unroll
            for (int byte = 0; byte < 4; byte++) {
                uint32_t p = decoded(x[word] >> 8 * byte), q = decoded(y[word] >> 8 * byte);
                __half2 both = __hmul2((__half2&)p, (__half2&)q);
                float2 two = __half22float2(both);
                total += (two.x + two.y) * scale(sfa + 2 * i + word / 2);
            }
    }
    for (int distance = 16; distance; distance /= 2)
        total += __shfl_xor_sync(~0u, total, distance);
    if (lane == 0) c[row] = __float2half(total);
}

void run(torch::Tensor a, torch::Tensor b, torch::Tensor sfa, torch::Tensor sfb, torch::Tensor c)
{
    int m = a.size(0), k = 2 * a.size(1);
    warps<<<m / 4, dim3(32, 4)>>>((const uint4*)a.data_ptr(), (const uint4*)b.data_ptr(),
                                  (uint8_t*)sfa.data_ptr(), (uint8_t*)sfb.data_ptr(),
                                  (__half*)c.data_ptr(), m, k);
}
"""

module = load_inline(
    "explained_scales",
    "void run(torch::Tensor, torch::Tensor, torch::Tensor, torch::Tensor, torch::Tensor);",
    SRC,
    functions=["run"],
)


def custom_kernel(data):
    a, b, sfa, sfb, _, _, c = data
    module.run(a, b, sfa, sfb, c)
    return c
