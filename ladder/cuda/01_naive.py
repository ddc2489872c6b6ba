#!POPCORN leaderboard nvfp4_gemv
#!POPCORN gpu NVIDIA
"""A thread a row, byte by byte, every number decoded by hand.

Idea: none. Sign, exponent and mantissa are taken apart and put together by ldexpf.
Buys: a place to begin, which shows what the formats are.
Costs: more than forty instructions an element, a load for every byte, and lanes of a warp that
read a byte each of 32 far-apart rows: 32 sectors for 32 bytes. 56 CTAs for 148 SMs. Block sums are
exact, sums f32; a NaN among the scales would be read as 480.
"""

from torch.utils.cpp_extension import load_inline

from task import input_t, output_t

cpp_source = """
void gemv(torch::Tensor a, torch::Tensor b, torch::Tensor sfa, torch::Tensor sfb, torch::Tensor c);
"""

cuda_source = r"""
#include <cuda_fp16.h>

constexpr int rows = 128;  // of a CTA, a thread each

__device__ float e2m1(int code) {
    const int exponent = code >> 1 & 3, mantissa = code & 1;
    const float value = exponent ? ldexpf(1.0f + mantissa / 2.0f, exponent - 1) : mantissa / 2.0f;
    return code & 8 ? -value : value;
}

__device__ float e4m3(int code) {
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    const float significand = mantissa / 8.0f + (exponent ? 1.0f : 0.0f);
    const float value = ldexpf(significand, exponent ? exponent - 7 : -6);
    return code & 128 ? -value : value;
}

__global__ void kernel(const uint8_t* a, const uint8_t* b, const uint8_t* sfa, const uint8_t* sfb,
                       __half* c, int m, int k) {
    const size_t row = size_t(blockIdx.y) * m + blockIdx.x * rows + threadIdx.x;
    const size_t vector = size_t(blockIdx.y) * 128;
    a += row * (k / 2);
    b += vector * (k / 2);
    sfa += row * (k / 16);
    sfb += vector * (k / 16);

    float total = 0.0f;
    for (int block = 0; block < k / 16; ++block) {
        float sum = 0.0f;
        for (int i = 8 * block; i < 8 * block + 8; ++i) {
            sum += e2m1(a[i] & 15) * e2m1(b[i] & 15);
            sum += e2m1(a[i] >> 4) * e2m1(b[i] >> 4);
        }
        total += sum * (e4m3(sfa[block]) * e4m3(sfb[block]));
    }
    c[row] = __float2half(total);
}

void gemv(torch::Tensor a, torch::Tensor b, torch::Tensor sfa, torch::Tensor sfb, torch::Tensor c) {
    const int m = a.size(0), k = 2 * a.size(1), l = a.size(2);
    kernel<<<dim3(m / rows, l), rows>>>(
        static_cast<const uint8_t*>(a.data_ptr()), static_cast<const uint8_t*>(b.data_ptr()),
        static_cast<const uint8_t*>(sfa.data_ptr()), static_cast<const uint8_t*>(sfb.data_ptr()),
        static_cast<__half*>(c.data_ptr()), m, k);
}
"""

module = load_inline(
    name="nvfp4_gemv_naive",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["gemv"],
    extra_cuda_cflags=["-O3", "-gencode=arch=compute_100a,code=sm_100a"],
)


def custom_kernel(data: input_t) -> output_t:
    a, b, sfa, sfb, _, _, c = data
    module.gemv(a, b, sfa, sfb, c)
    return c
