# expect: pass
"""The vector by one bulk copy that a cuda::barrier waits for, rows from global memory.

The source is a string.Template; the module holds an instance for each k of the contest and a
general one.
"""

from string import Template

from torch.utils.cpp_extension import load_inline

TEMPLATE = Template(r"""
#include <cuda/barrier>
#include <cuda_fp16.h>
#include <cuda_fp4.h>
#include <cuda_fp8.h>
#include <utility>

using barrier = cuda::barrier<cuda::thread_scope_block>;

constexpr int rows_per_block = $rows;

template <int K>  // 0: known at run time only
__global__ void gemv(const __nv_fp4x2_storage_t* a, const __nv_fp4x2_storage_t* b,
                     const __nv_fp8_storage_t* sfa, const __nv_fp8_storage_t* sfb, __half* c, int m,
                     int k_argument) {
  const int k = K ? K : k_argument;
  const int packed = k / 2;
  extern __shared__ __align__(128) __nv_fp4x2_storage_t vector[];
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ barrier arrived;
  if (threadIdx.x == 0) {
    init(&arrived, blockDim.x);
    cuda::device::experimental::fence_proxy_async_shared_cta();
  }
  __syncthreads();

  barrier::arrival_token token;
  if (threadIdx.x == 0) {
    const auto size = cuda::aligned_size_t<16>(packed);
    cuda::device::memcpy_async_tx(vector, b + blockIdx.y * 128ull * packed, size, arrived);
    token = cuda::device::barrier_arrive_tx(arrived, 1, packed);
  } else {
    token = arrived.arrive();
  }
  arrived.wait(std::move(token));

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const size_t row = blockIdx.y * size_t(m) + blockIdx.x * rows_per_block + warp;
  float sum = 0;
#pragma unroll 2
  for (int block = lane; block < k / 16; block += 32) {
    __half2 dot = __half2half2(__ushort_as_half(0));
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      __half2 x(__nv_cvt_fp4x2_to_halfraw2(a[row * packed + block * 8 + i], __NV_E2M1));
      __half2 y(__nv_cvt_fp4x2_to_halfraw2(vector[block * 8 + i], __NV_E2M1));
      dot = __hfma2(x, y, dot);
    }
    __half s(__nv_cvt_fp8_to_halfraw(sfa[row * (k / 16) + block], __NV_E4M3));
    __half t(__nv_cvt_fp8_to_halfraw(sfb[blockIdx.y * 128ull * (k / 16) + block], __NV_E4M3));
    sum += (__low2float(dot) + __high2float(dot)) * (__half2float(s) * __half2float(t));
  }
  for (int i = 1; i < 32; i *= 2) sum += __shfl_xor_sync(0xffffffff, sum, i);
  if (lane == 0) c[row] = __float2half(sum);
}

void run(at::Tensor a, at::Tensor b, at::Tensor sfa, at::Tensor sfb, at::Tensor c) {
  const int m = a.size(0), k = 2 * a.size(1);
  const dim3 grid(m / rows_per_block, a.size(2));
  auto launch = [&](auto kernel) {
    kernel<<<grid, 32 * rows_per_block, k / 2>>>(
        (const __nv_fp4x2_storage_t*)a.data_ptr(), (const __nv_fp4x2_storage_t*)b.data_ptr(),
        (const __nv_fp8_storage_t*)sfa.data_ptr(), (const __nv_fp8_storage_t*)sfb.data_ptr(),
        (__half*)c.data_ptr(), m, k);
  };
  switch (k) {
$cases
    default: launch(gemv<0>);
  }
}
""")

sizes = (16384, 7168, 2048)
cases = "\n".join(f"    case {k}: launch(gemv<{k}>); break;" for k in sizes)
module = load_inline(
    name="bulk_vector",
    cpp_sources="void run(at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor);",
    cuda_sources=TEMPLATE.substitute(rows=8, cases=cases),
    functions=["run"],
    extra_cuda_cflags=["-O3", "-std=c++17", "-gencode=arch=compute_100a,code=sm_100a"],
)


def custom_kernel(data):
    a, b, sfa, sfb, _, _, c = data
    module.run(a, b, sfa, sfb, c)
    return c
