# expect: pass
# quick: yes
"""load() of three files in a temporary folder; two stages of __pipeline_memcpy_async."""

import os
import tempfile

from torch.utils.cpp_extension import load

FILES = {
    "fp4.cuh": r"""
#pragma once
#include <cuda_fp16.h>
#include <cuda_fp4.h>
#include <cuda_fp8.h>

namespace nvfp4 {

// Sum of 16 products; x and y hold 8 bytes each.
__device__ inline float dot_block(const __nv_fp4x2_storage_t* x, const __nv_fp4x2_storage_t* y) {
  __half2 sum = __float2half2_rn(0.f);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const __half2 u = __half2(__nv_cvt_fp4x2_to_halfraw2(x[i], __NV_E2M1));
    const __half2 v = __half2(__nv_cvt_fp4x2_to_halfraw2(y[i], __NV_E2M1));
    sum = __hfma2(u, v, sum);
  }
  return __low2float(sum) + __high2float(sum);
}

__device__ inline float scale(__nv_fp8_storage_t code) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(code, __NV_E4M3)));
}

}  // namespace nvfp4
""",
    "kernel.cu": r"""
#include "fp4.cuh"
#include <cuda_pipeline.h>
#include <cuda_runtime.h>
#include <cstdint>

constexpr int ROWS = 16, THREADS = 64, TILE = 64;  // bytes of a row in a tile; 4 threads a row

__global__ void __launch_bounds__(THREADS)
staged(const uint8_t* a, const uint8_t* b, const uint8_t* sfa, const uint8_t* sfb, __half* c, int m,
       int bytes) {
  __shared__ __align__(16) uint8_t tiles[2][ROWS][TILE];
  const int row = threadIdx.x / 4, part = threadIdx.x % 4;
  const size_t global_row = size_t(blockIdx.y) * m + blockIdx.x * ROWS + row;
  const size_t vector_row = size_t(blockIdx.y) * 128;
  const uint8_t* from = a + global_row * bytes;

  auto fetch = [&](int tile) {
    const int i = tile * TILE + part * 16;
    if (i < bytes) __pipeline_memcpy_async(&tiles[tile & 1][row][part * 16], from + i, 16);
    __pipeline_commit();
  };

  float acc = 0.f;
  const int count = (bytes + TILE - 1) / TILE;
  fetch(0);
  for (int tile = 0; tile < count; ++tile) {
    if (tile + 1 < count) fetch(tile + 1); else __pipeline_commit();
    __pipeline_wait_prior(1);
    __syncthreads();
    // Interleaved: the parts take the blocks 0 4, 1 5, 2 6, 3 7 of the tile.
    for (int block = part; block < TILE / 8; block += 4) {
      const int i = tile * TILE + block * 8;
      if (i >= bytes) break;
      const uint8_t* x = &tiles[tile & 1][row][block * 8];
      const float dot = nvfp4::dot_block(x, b + vector_row * bytes + i);
      acc += dot * nvfp4::scale(sfa[(global_row * bytes + i) / 8]) *
             nvfp4::scale(sfb[(vector_row * bytes + i) / 8]);
    }
    __syncthreads();
  }
  acc += __shfl_xor_sync(0xffffffff, acc, 1);
  acc += __shfl_xor_sync(0xffffffff, acc, 2);
  if (part == 0) c[global_row] = __float2half(acc);
}

void launch(const void* a, const void* b, const void* sfa, const void* sfb, void* c, int m,
            int bytes, int l) {
  staged<<<dim3(m / ROWS, l), THREADS>>>((const uint8_t*)a, (const uint8_t*)b, (const uint8_t*)sfa,
                                         (const uint8_t*)sfb, (__half*)c, m, bytes);
}
""",
    "binding.cpp": r"""
#include <torch/extension.h>

void launch(const void* a, const void* b, const void* sfa, const void* sfb, void* c, int m,
            int bytes, int l);

static void gemv(const torch::Tensor& a, const torch::Tensor& b, const torch::Tensor& sfa,
                 const torch::Tensor& sfb, torch::Tensor& c) {
  TORCH_CHECK(a.is_cuda(), "a must be a CUDA tensor");
  launch(a.data_ptr(), b.data_ptr(), sfa.data_ptr(), sfb.data_ptr(), c.data_ptr(), a.size(0),
         a.size(1), a.size(2));
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("gemv", &gemv); }
""",
}


def build():
    folder = tempfile.mkdtemp(prefix="nvfp4_")
    for name, text in FILES.items():
        with open(os.path.join(folder, name), "w") as file:
            file.write(text)
    return load(
        name="staged_gemv",
        sources=[os.path.join(folder, "binding.cpp"), os.path.join(folder, "kernel.cu")],
        extra_cuda_cflags=["-gencode=arch=compute_100a,code=sm_100a"],
        extra_include_paths=[folder],
    )


extension = build()


def custom_kernel(data):
    a, b, sfa, sfb, _, _, c = data
    extension.gemv(a, b, sfa, sfb, c)
    return c
