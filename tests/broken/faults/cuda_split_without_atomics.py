"""Two CTAs add to one element of c."""

import torch

SOURCE = r"""
#include <cuda_fp16.h>
__global__ void gemv(__half* c) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  c[row] = __float2half(__half2float(c[row]) + 1.0f + blockIdx.y);
}
"""

kernel = torch.cuda._compile_kernel(SOURCE, "gemv")


def custom_kernel(data):
    a, _, _, _, _, _, c = data
    m, _, l = c.shape
    c.zero_()
    kernel(grid=(m * l // 128, 2, 1), block=(128, 1, 1), args=[c])
    return c
