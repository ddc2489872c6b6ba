#!POPCORN leaderboard nvfp4_gemv
#!POPCORN gpu NVIDIA
# expect: pass
"""Both values of a byte from a const table on the device; TORCH_LIBRARY without a schema.

The table is spelled by macros. 8 threads along k and 16 rows a CTA. The architecture comes from
TORCH_CUDA_ARCH_LIST, and the library is built at the first call.
"""

import functools
import os

import torch

os.environ["TORCH_CUDA_ARCH_LIST"] = "10.0a"

KERNEL = """
#include <torch/library.h>
#include <cuda_fp16.h>

#define ROW(hi) {0.f, hi}, {.5f, hi}, {1.f, hi}, {1.5f, hi}, {2.f, hi}, {3.f, hi}, {4.f, hi}, \\
    {6.f, hi}, {-0.f, hi}, {-.5f, hi}, {-1.f, hi}, {-1.5f, hi}, {-2.f, hi}, {-3.f, hi}, \\
    {-4.f, hi}, {-6.f, hi}

__device__ const float2 PAIRS[256] = {
    ROW(0.f), ROW(.5f), ROW(1.f), ROW(1.5f), ROW(2.f), ROW(3.f), ROW(4.f), ROW(6.f),
    ROW(-0.f), ROW(-.5f), ROW(-1.f), ROW(-1.5f), ROW(-2.f), ROW(-3.f), ROW(-4.f), ROW(-6.f)};

#undef ROW

/* finite E4M3 by hand */
__device__ float e4m3(unsigned char code)
{
    int exponent = code >> 3 & 15, mantissa = code & 7;
    float magnitude = exponent ? ldexpf(8 + mantissa, exponent - 10) : ldexpf(mantissa, -9);
    return code & 128 ? -magnitude : magnitude;
}

__global__ void gemv_8x16(const uint2* a, const uint2* b, const unsigned char* sfa,
                          const unsigned char* sfb, __half* c, int blocks)
{
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    const int m = gridDim.x * blockDim.y;
    const long first_a = (blockIdx.y * (long)m + row) * blocks;
    const long first_b = blockIdx.y * 128L * blocks;
    float acc = 0.f;
    for (int i = threadIdx.x; i < blocks; i += blockDim.x) {
        union { uint2 words; unsigned char bytes[8]; } x, y;
        x.words = __ldcs(a + first_a + i);
        y.words = __ldg(b + first_b + i);
        float dot = 0.f;
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
            const float2 p = PAIRS[x.bytes[j]], q = PAIRS[y.bytes[j]];
            dot = fmaf(p.x, q.x, dot);
            dot = fmaf(p.y, q.y, dot);
        }
        acc += dot * e4m3(sfa[first_a + i]) * e4m3(sfb[first_b + i]);
    }
    for (int offset = 4; offset; offset >>= 1)
        acc += __shfl_xor_sync(0xffffffff, acc, offset, 8);
    if (threadIdx.x == 0) c[blockIdx.y * (long)m + row] = __float2half(acc);
}

at::Tensor gemv(at::Tensor a, at::Tensor b, at::Tensor sfa, at::Tensor sfb, at::Tensor c)
{
    TORCH_CHECK(a.size(0) % 16 == 0, "m must be a multiple of 16");
    gemv_8x16<<<dim3(a.size(0) / 16, a.size(2)), dim3(8, 16)>>>(
        (const uint2*)a.const_data_ptr(), (const uint2*)b.const_data_ptr(),
        (const unsigned char*)sfa.const_data_ptr(), (const unsigned char*)sfb.const_data_ptr(),
        (__half*)c.mutable_data_ptr(), (int)sfa.size(1));
    return c;
}

TORCH_LIBRARY(pair_table, lib) { lib.def("gemv", &gemv); }
"""


@functools.cache
def ops():
    from torch.utils import cpp_extension

    cpp_extension.load_inline("pair_table", [""], [KERNEL], is_python_module=False)
    return torch.ops.pair_table


def custom_kernel(data):
    a, b, sfa, sfb, _, _, c = data
    return ops().gemv(a, b, sfa, sfb, c)
