"""A vector of 16 bytes is loaded at every eighth byte."""

import torch

SOURCE = r"""
#include <cuda_fp16.h>
__global__ void gemv(const unsigned char* a, __half* c) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  const uint4 bytes = *reinterpret_cast<const uint4*>(a + 8 * row);
  c[row] = __ushort_as_half(bytes.x ^ bytes.y ^ bytes.z ^ bytes.w);
}
"""

kernel = torch.cuda._compile_kernel(SOURCE, "gemv")


def custom_kernel(data):
    a, _, _, _, _, _, c = data
    m, _, l = c.shape
    kernel(grid=(m * l // 128, 1, 1), block=(128, 1, 1), args=[a, c])
    return c
