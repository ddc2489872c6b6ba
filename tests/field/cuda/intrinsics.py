# expect: pass
"""A warp a row, byte by byte, with the intrinsics of cuda_fp4.h and cuda_fp8.h; functions=[...]."""

from torch.utils.cpp_extension import load_inline

from task import input_t, output_t

cpp_source = """
torch::Tensor nvfp4_gemv(torch::Tensor a, torch::Tensor b, torch::Tensor sfa, torch::Tensor sfb,
                         torch::Tensor c);
"""

cuda_source = r"""
#include <cuda_fp16.h>
#include <cuda_fp4.h>
#include <cuda_fp8.h>

__global__ void gemv_kernel(const uint8_t* __restrict__ a, const uint8_t* __restrict__ b,
                            const uint8_t* __restrict__ sfa, const uint8_t* __restrict__ sfb,
                            __half* __restrict__ c, int m, int k) {
    const int lane = threadIdx.x % 32;
    const int row = blockIdx.x * 4 + threadIdx.x / 32;
    const int batch = blockIdx.y;
    if (row >= m) return;

    a += (size_t(batch) * m + row) * (k / 2);
    b += size_t(batch) * 128 * (k / 2);
    sfa += (size_t(batch) * m + row) * (k / 16);
    sfb += size_t(batch) * 128 * (k / 16);

    float total = 0.0f;
    for (int block = lane; block < k / 16; block += 32) {
        float dot = 0.0f;
        for (int i = 0; i < 8; ++i) {
            float2 x = __half22float2(__nv_cvt_fp4x2_to_halfraw2(a[block * 8 + i], __NV_E2M1));
            float2 y = __half22float2(__nv_cvt_fp4x2_to_halfraw2(b[block * 8 + i], __NV_E2M1));
            dot += x.x * y.x + x.y * y.y;
        }
        float scale_a = __half2float(__nv_cvt_fp8_to_halfraw(sfa[block], __NV_E4M3));
        float scale_b = __half2float(__nv_cvt_fp8_to_halfraw(sfb[block], __NV_E4M3));
        total += dot * (scale_a * scale_b);
    }
    for (int offset = 16; offset > 0; offset /= 2)
        total += __shfl_down_sync(0xffffffff, total, offset);
    if (lane == 0) c[size_t(batch) * m + row] = __float2half(total);
}

torch::Tensor nvfp4_gemv(torch::Tensor a, torch::Tensor b, torch::Tensor sfa, torch::Tensor sfb,
                         torch::Tensor c) {
    const int m = a.size(0), k = a.size(1) * 2, l = a.size(2);
    dim3 grid((m + 3) / 4, l);
    gemv_kernel<<<grid, 128>>>(
        static_cast<const uint8_t*>(a.data_ptr()), static_cast<const uint8_t*>(b.data_ptr()),
        static_cast<const uint8_t*>(sfa.data_ptr()), static_cast<const uint8_t*>(sfb.data_ptr()),
        reinterpret_cast<__half*>(c.data_ptr<at::Half>()), m, k);
    cudaError_t err = cudaGetLastError();
    TORCH_CHECK(err == cudaSuccess, "launch failed: ", cudaGetErrorString(err));
    return c;
}
"""

module = load_inline(
    name="nvfp4_gemv_intrinsics",
    cpp_sources=[cpp_source],
    cuda_sources=[cuda_source],
    functions=["nvfp4_gemv"],
    extra_cuda_cflags=["-O3", "-gencode=arch=compute_100a,code=sm_100a"],
    verbose=False,
)


def custom_kernel(data: input_t) -> output_t:
    a, b, sfa, sfb, _, _, c = data
    return module.nvfp4_gemv(a, b, sfa, sfb, c)
