#!POPCORN leaderboard nvfp4_gemv
#!POPCORN gpu NVIDIA
# expect: pass
"""CUTLASS's FP4 and scale types and its converter, from its C++ headers; CuTe's layouts."""

from torch.utils.cpp_extension import load_inline

CUDA_SRC = r"""
#include <cutlass/cutlass.h>
#include <cutlass/array.h>
#include <cutlass/numeric_conversion.h>
#include <cutlass/numeric_types.h>
#include <cute/layout.hpp>
#include <cute/tensor.hpp>

using namespace cute;
using Fp4 = cutlass::float_e2m1_t;
using Scale = cutlass::float_ue4m3_t;
using Block = cutlass::Array<Fp4, 16>;
using ToFloat = cutlass::NumericArrayConverter<float, Fp4, 16>;

// A warp a row: [m, k / 16] blocks and scales, the scale of a block beside it.
__global__ void gemv(const Block* a, const Block* b, const Scale* sfa, const Scale* sfb,
                     cutlass::half_t* c, int m, int blocks) {
  const int row = blockIdx.x * blockDim.y + threadIdx.y, batch = blockIdx.y;
  if (row >= m) return;
  auto rows = make_layout(make_shape(blocks, m, int(gridDim.y)), LayoutLeft{});
  auto vectors = make_layout(make_shape(blocks, 128, int(gridDim.y)), LayoutLeft{});
  Tensor scales = make_tensor(make_gmem_ptr(sfa), rows);
  ToFloat convert;
  float sum = 0.f;
  for (int i = threadIdx.x; i < blocks; i += 32) {
    const auto x = convert(a[rows(i, row, batch)]);
    const auto y = convert(b[vectors(i, 0, batch)]);
    float part = 0.f;
    CUTE_UNROLL
    for (int n = 0; n < 16; ++n) part += x[n] * y[n];
    sum += part * float(scales(i, row, batch)) * float(sfb[vectors(i, 0, batch)]);
  }
  CUTLASS_PRAGMA_UNROLL
  for (int s = 16; s > 0; s /= 2) sum += __shfl_xor_sync(0xffffffff, sum, s);
  if (threadIdx.x == 0) c[batch * m + row] = cutlass::half_t(sum);
}

void gemv_cutlass(torch::Tensor a, torch::Tensor b, torch::Tensor sfa, torch::Tensor sfb, torch::Tensor c) {
  const int m = a.size(0), blocks = a.size(1) / 8, l = a.size(2);
  gemv<<<dim3((m + 3) / 4, l), dim3(32, 4)>>>(
      static_cast<const Block*>(a.data_ptr()), static_cast<const Block*>(b.data_ptr()),
      static_cast<const Scale*>(sfa.data_ptr()), static_cast<const Scale*>(sfb.data_ptr()),
      static_cast<cutlass::half_t*>(c.data_ptr()), m, blocks);
}
"""

mod = load_inline(
    name="gemv_cutlass",
    cpp_sources=[
        "void gemv_cutlass(torch::Tensor a, torch::Tensor b, torch::Tensor sfa, torch::Tensor sfb, torch::Tensor c);"
    ],
    cuda_sources=[CUDA_SRC],
    functions=["gemv_cutlass"],
    extra_cuda_cflags=[
        "-std=c++17",
        "-O3",
        "--expt-relaxed-constexpr",
        "-gencode=arch=compute_100a,code=sm_100a",
    ],
    extra_include_paths=["/opt/cutlass/include", "/opt/cutlass/tools/util/include"],
)


def custom_kernel(data):
    a, b, sfa, sfb, _, _, c = data
    mod.gemv_cutlass(a, b, sfa, sfb, c)
    return c
