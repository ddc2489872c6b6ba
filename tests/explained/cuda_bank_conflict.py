#!POPCORN leaderboard nvfp4_gemv
#!POPCORN gpu NVIDIA
"""A CTA keeps partial sums in shared memory, 32 words a thread, and threads walk along them."""

from torch.utils.cpp_extension import load_inline

SRC = r"""
#include <torch/extension.h>
#include <cuda_fp16.h>
#include <cstdint>

constexpr int ROW = 32;

__global__ void gather(const uint4* a, __half* c, int m, int words)
{
    __shared__ float table[64][ROW];
    int thread = threadIdx.x, row = blockIdx.x * 64 + thread;
    for (int step = 0; step < 64; step++)
        table[step][thread % ROW] = float(step);
    __syncthreads();
    float total = 0;
    for (int round = 0; round < 16; round++) {
#pragma unroll 4
        for (int column = 0; column < ROW; column++)
            total += table[thread][column ^ round];  // <- bank_conflict
    }
    if (row < m) c[row] = __float2half(total);
}

void run(torch::Tensor a, torch::Tensor c)
{
    int m = a.size(0);
    gather<<<m / 64, 64>>>((const uint4*)a.data_ptr(), (__half*)c.data_ptr(), m, a.size(1) / 4);
}
"""

module = load_inline(
    "explained_banks", "void run(torch::Tensor, torch::Tensor);", SRC, functions=["run"]
)


def custom_kernel(data):
    a, *_, c = data
    module.run(a, c)
    return c
