"""Spins on a flag that nobody sets."""

import torch

SOURCE = r"""
#include <cuda_fp16.h>
__global__ void gemv(const int* flag, __half* c) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  while (*(const volatile int*)flag == 0) {
  }
  c[row] = __float2half(1.0f);
}
"""

kernel = torch.cuda._compile_kernel(SOURCE, "gemv")


def custom_kernel(data):
    a, _, _, _, _, _, c = data
    m, _, l = c.shape
    flag = torch.zeros(1, dtype=torch.int32, device=c.device)
    kernel(grid=(m * l // 128, 1, 1), block=(128, 1, 1), args=[flag, c])
    return c
