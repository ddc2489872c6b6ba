# expect: pass
"""torch.cuda._compile_kernel: a warp a row, the number of rows a block a template argument."""

import torch

from task import input_t, output_t

SOURCE = r"""
#include <cuda_fp16.h>
#include <cuda_fp8.h>

__constant__ float e2m1[16] = {0.f, .5f, 1.f, 1.5f, 2.f, 3.f, 4.f, 6.f,
                               -0.f, -.5f, -1.f, -1.5f, -2.f, -3.f, -4.f, -6.f};

__device__ __forceinline__ float e4m3(unsigned char code) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(code, __NV_E4M3)));
}

__device__ __forceinline__ float dot8(unsigned x, unsigned y) {
  float sum = 0.f;
#pragma unroll
  for (int i = 0; i < 32; i += 4) sum += e2m1[(x >> i) & 15] * e2m1[(y >> i) & 15];
  return sum;
}

template <int Rows>
__global__ void __launch_bounds__(32 * Rows) gemv(const uint2 *a, const uint2 *b,
                                                  const unsigned char *sfa,
                                                  const unsigned char *sfb, __half *c, int m,
                                                  int blocks) {
  const int lane = threadIdx.x, row = blockIdx.x * Rows + threadIdx.y, batch = blockIdx.y;
  if (row >= m) return;
  const size_t of_a = (size_t(batch) * m + row) * blocks, of_b = size_t(batch) * 128 * blocks;
  float sum = 0.f;
  for (int i = lane; i < blocks; i += 32) {
    const uint2 x = a[of_a + i], y = b[of_b + i];
    sum += (dot8(x.x, y.x) + dot8(x.y, y.y)) * (e4m3(sfa[of_a + i]) * e4m3(sfb[of_b + i]));
  }
  for (int step = 16; step; step >>= 1) sum += __shfl_xor_sync(0xffffffff, sum, step);
  if (lane == 0) c[size_t(batch) * m + row] = __float2half(sum);
}
"""

ROWS = 4
kernel = torch.cuda._compile_kernel(SOURCE, f"gemv<{ROWS}>", nvcc_options=["-std=c++17"])


def custom_kernel(data: input_t) -> output_t:
    a, b, sfa, sfb, _, _, c = data
    m, k_bytes, l = a.shape
    kernel(
        grid=((m + ROWS - 1) // ROWS, l, 1),
        block=(32, ROWS, 1),
        args=[a, b, sfa, sfb, c, m, k_bytes // 8],
    )
    return c
