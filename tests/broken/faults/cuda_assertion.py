"""An assertion of the kernel fails."""

import torch

SOURCE = r"""
#include <cuda_fp16.h>
#include <cassert>
__global__ void gemv(__half* c, int rows) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  assert(row < rows);
  c[row] = __float2half(1.0f);
}
"""

kernel = torch.cuda._compile_kernel(SOURCE, "gemv")


def custom_kernel(data):
    a, _, _, _, _, _, c = data
    m, _, l = c.shape
    kernel(grid=(m * l // 128, 1, 1), block=(128, 1, 1), args=[c, m])
    return c
