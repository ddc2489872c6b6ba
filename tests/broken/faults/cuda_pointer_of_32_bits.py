"""An address is passed as an int, which torch hands to the kernel with 32 bits."""

import torch

SOURCE = r"""
#include <cuda_fp16.h>
__global__ void gemv(const float* workspace, __half* c) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  c[row] = __float2half(workspace[row]);
}
"""

kernel = torch.cuda._compile_kernel(SOURCE, "gemv")


def custom_kernel(data):
    a, _, _, _, _, _, c = data
    m, _, l = c.shape
    workspace = torch.empty(m * l, device=c.device)
    kernel(grid=(m * l // 128, 1, 1), block=(128, 1, 1), args=[workspace.data_ptr(), c])
    return c
