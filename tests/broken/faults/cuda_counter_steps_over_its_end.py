"""The counter is never equal to its end."""

import torch

SOURCE = r"""
#include <cuda_fp16.h>
__global__ void gemv(__half* c, unsigned end) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = 0;
  for (unsigned i = 0; i != end; i += 2) {
    sum = 0.5f * sum + i;
    c[row] = __float2half(sum);
  }
}
"""

kernel = torch.cuda._compile_kernel(SOURCE, "gemv")


def custom_kernel(data):
    a, _, _, _, _, _, c = data
    m, _, l = c.shape
    kernel(grid=(m * l // 128, 1, 1), block=(128, 1, 1), args=[c, 101])
    return c
