#!POPCORN leaderboard nvfp4_gemv
#!POPCORN gpu NVIDIA
"""Two tiles of k are under way before the first is used.

Idea: an iteration issues the loads of two tiles and then works on both. Memory answers after some
hundred cycles; what an SM has asked for by then decides its bandwidth.
Buys: 72 bytes under way a thread instead of 36, for sure: before, the compiler decided that. nvcc
13.0 unrolls the loop of shape_tuned by four, and ptxas moves as many loads ahead as it likes.
Costs: a condition on each tile, since a row may have an odd number of them. 40 registers instead
of 48, because this loop is not unrolled as far. Accuracy is as before.
"""

from torch.utils.cpp_extension import load_inline

from task import input_t, output_t

cpp_source = """
void gemv(torch::Tensor a, torch::Tensor b, torch::Tensor sfa, torch::Tensor sfb, torch::Tensor c);
"""

cuda_source = r"""
#include <cuda_fp16.h>
#include <cuda_fp8.h>

__device__ float2 e4m3x2(uint16_t codes) {
    return __half22float2(__nv_cvt_fp8x2_to_halfraw2(codes, __NV_E4M3));
}

__device__ uint32_t multiply_add(uint32_t a, uint32_t b, uint32_t sums) {
    asm("{\n"
        ".reg .b8 p<4>, q<4>;\n"
        ".reg .b32 x<4>, y<4>;\n"
        "mov.b32 {p0, p1, p2, p3}, %1;\n"
        "mov.b32 {q0, q1, q2, q3}, %2;\n"
#define MULTIPLY_ADD(i)                        \
        "cvt.rn.f16x2.e2m1x2 x" #i ", p" #i ";\n" \
        "cvt.rn.f16x2.e2m1x2 y" #i ", q" #i ";\n" \
        "fma.rn.f16x2 %0, x" #i ", y" #i ", %0;\n"
        MULTIPLY_ADD(0) MULTIPLY_ADD(1) MULTIPLY_ADD(2) MULTIPLY_ADD(3)
        "}"
        : "+r"(sums) : "r"(a), "r"(b));
    return sums;
}

__device__ float block_sum(uint32_t a0, uint32_t a1, uint32_t b0, uint32_t b1) {
    const uint32_t bits = multiply_add(a1, b1, multiply_add(a0, b0, 0));
    const __half2 sums = reinterpret_cast<const __half2&>(bits);
    return __low2float(sums) + __high2float(sums);
}

__device__ float add_tile(uint4 a, uint4 b, uint16_t sfa, uint16_t sfb, float total) {
    const float2 scales_a = e4m3x2(sfa), scales_b = e4m3x2(sfb);
    total += block_sum(a.x, a.y, b.x, b.y) * (scales_a.x * scales_b.x);
    total += block_sum(a.z, a.w, b.z, b.w) * (scales_a.y * scales_b.y);
    return total;
}

constexpr int tiles_at_once = 2;

template <int threads_k, int rows>
__global__ void kernel(const uint4* a, const uint4* b, const uint16_t* sfa, const uint16_t* sfb,
                       __half* c, int m, int k) {
    const int lane = threadIdx.x, tiles = k / 32;
    const size_t row = size_t(blockIdx.y) * m + blockIdx.x * rows + threadIdx.y;
    const size_t vector = size_t(blockIdx.y) * 128;
    a += row * tiles;
    b += vector * tiles;
    sfa += row * tiles;
    sfb += vector * tiles;

    float total = 0.0f;
    for (int first = lane; first < tiles; first += tiles_at_once * threads_k) {
        uint4 words_a[tiles_at_once] = {}, words_b[tiles_at_once] = {};
        uint16_t scales_a[tiles_at_once] = {}, scales_b[tiles_at_once] = {};
        for (int i = 0; i < tiles_at_once; ++i) {
            const int tile = first + i * threads_k;
            if (tile < tiles) {
                words_a[i] = a[tile];
                words_b[i] = b[tile];
                scales_a[i] = sfa[tile];
                scales_b[i] = sfb[tile];
            }
        }
        for (int i = 0; i < tiles_at_once; ++i)
            total = add_tile(words_a[i], words_b[i], scales_a[i], scales_b[i], total);
    }
    for (int offset = threads_k / 2; offset > 0; offset /= 2)
        total += __shfl_xor_sync(0xffffffff, total, offset);
    if (lane == 0) c[row] = __float2half(total);
}

struct Choice {
    decltype(&kernel<32, 4>) function;
    int threads_k, rows;
};

Choice choice(int k) {
    if (k >= 16384) return {kernel<32, 4>, 32, 4};
    if (k >= 4096) return {kernel<16, 8>, 16, 8};
    return {kernel<8, 16>, 8, 16};
}

void gemv(torch::Tensor a, torch::Tensor b, torch::Tensor sfa, torch::Tensor sfb, torch::Tensor c) {
    const int m = a.size(0), k = 2 * a.size(1), l = a.size(2);
    const auto [kernel, threads_k, rows] = choice(k);
    kernel<<<dim3(m / rows, l), dim3(threads_k, rows)>>>(
        static_cast<const uint4*>(a.data_ptr()), static_cast<const uint4*>(b.data_ptr()),
        static_cast<const uint16_t*>(sfa.data_ptr()), static_cast<const uint16_t*>(sfb.data_ptr()),
        static_cast<__half*>(c.data_ptr()), m, k);
}
"""

module = load_inline(
    name="nvfp4_gemv_two_tiles",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["gemv"],
    extra_cuda_cflags=["-O3", "-gencode=arch=compute_100a,code=sm_100a"],
)


def custom_kernel(data: input_t) -> output_t:
    a, b, sfa, sfb, _, _, c = data
    module.gemv(a, b, sfa, sfb, c)
    return c
