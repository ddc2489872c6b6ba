#!POPCORN leaderboard nvfp4_gemv
#!POPCORN gpu NVIDIA
# expect: pass
"""Twice the FP4 values are integers: __dp4a, and __reduce_add_sync over the two lanes of a block.

Tensors in a std::vector; functions={name: docstring}.
"""

import torch
from torch.utils.cpp_extension import load_inline

cpp_decl = "#include <vector>\nat::Tensor gemv(std::vector<at::Tensor> inputs, at::Tensor out);"

cuda_impl = r"""
#include <cuda_fp8.h>
#include <cuda_fp16.h>
#include <vector>

typedef unsigned int u32;
typedef unsigned char u8;

/* four codes to four signed bytes: 2x their values */
__device__ __forceinline__ int bytes_of(u32 codes) {
  const u32 magnitude = __byte_perm(0x03020100, 0x0c080604, codes & 0x7777);
  u32 negative;  /* 0xff where the sign is set: prmt replicates the top bit of a byte */
  asm("prmt.b32 %0, %1, %2, 0xd9c8;" : "=r"(negative) : "r"(codes << 4), "r"(codes));
  return (int)__vsub4(magnitude ^ negative, negative);
}

__device__ __forceinline__ int dot8(u32 x, u32 y) {
  return __dp4a(bytes_of(x >> 16), bytes_of(y >> 16),
                __dp4a(bytes_of(x & 0xffff), bytes_of(y & 0xffff), 0));
}

__global__ void gemv_dp4a(const u32 *__restrict__ a, const u32 *__restrict__ b,
                          const u8 *__restrict__ sfa, const u8 *__restrict__ sfb,
                          __half *__restrict__ out, int words) {
  const int lane = threadIdx.x, row = blockIdx.x * blockDim.y + threadIdx.y;
  const size_t row_a = (size_t)blockIdx.y * gridDim.x * blockDim.y + row;
  const size_t row_b = (size_t)blockIdx.y * 128;
  const u32 pair = 3u << (lane & ~1);
  float acc = 0.0f;
  for (int base = 0; base < words; base += 32) {
    const int i = base + lane;
    if (i < words) {
      int dot = dot8(a[row_a * words + i], b[row_b * words + i]);
      dot = __reduce_add_sync(pair, dot);
      if ((lane & 1) == 0) {
        __nv_fp8_e4m3 x, y;
        x.__x = sfa[row_a * (words / 2) + i / 2];
        y.__x = sfb[row_b * (words / 2) + i / 2];
        acc += 0.25f * (float)dot * ((float)x * (float)y);
      }
    }
  }
  for (int d = 2; d < 32; d *= 2) acc += __shfl_down_sync(0xffffffff, acc, d);
  if (lane == 0) out[row_a] = __float2half_rn(acc);
}

at::Tensor gemv(std::vector<at::Tensor> in, at::Tensor out) {
  const auto m = in[0].size(0), bytes = in[0].size(1), l = in[0].size(2);
  gemv_dp4a<<<dim3(m / 4, l), dim3(32, 4)>>>(
      (const u32 *)in[0].data_ptr(), (const u32 *)in[1].data_ptr(), in[2].data_ptr<u8>(),
      in[3].data_ptr<u8>(), (__half *)out.data_ptr<at::Half>(), bytes / 4);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}
"""

mod = load_inline(
    "integer_dots",
    cpp_sources=cpp_decl,
    cuda_sources="#include <c10/cuda/CUDAException.h>\n" + cuda_impl,
    functions={"gemv": "c = (a * sfa) (b * sfb)"},
    extra_cuda_cflags=["-O3", "-std=c++17", "-gencode=arch=compute_100a,code=sm_100a"],
)


def custom_kernel(data):
    a, b, sfa, sfb, c = data[0], data[1], data[2], data[3], data[6]
    scales = [t.view(torch.uint8) for t in (sfa, sfb)]
    return mod.gemv([a, b] + scales, c)
