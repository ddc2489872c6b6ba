#!POPCORN leaderboard nvfp4_gemv
#!POPCORN gpu NVIDIA
# expect: pass
"""A first kernel decodes b and its scales, negates both, encodes them again; a second multiplies.

cvt.rn.satfinite to E2M1 and E4M3 is exact for values that came from there. The second kernel is a
programmatic dependent launch.
"""

import torch
from torch.utils.cpp_extension import load_inline

from task import input_t, output_t

source = r"""
#include <c10/cuda/CUDAGuard.h>
#include <ATen/cuda/CUDAContext.h>
#include <cuda_fp16.h>

struct F8 { float v[8]; };

__device__ __forceinline__ F8 decode(unsigned word)
{
    unsigned h[4];
    asm("{ .reg .b8 c0, c1, c2, c3;\n"
        "  mov.b32 {c0, c1, c2, c3}, %4;\n"
        "  cvt.rn.f16x2.e2m1x2 %0, c0;\n"
        "  cvt.rn.f16x2.e2m1x2 %1, c1;\n"
        "  cvt.rn.f16x2.e2m1x2 %2, c2;\n"
        "  cvt.rn.f16x2.e2m1x2 %3, c3; }"
        : "=r"(h[0]), "=r"(h[1]), "=r"(h[2]), "=r"(h[3]) : "r"(word));
    F8 out;
    for (int i = 0; i < 4; ++i) {
        float2 f = __half22float2(*(__half2*)&h[i]);
        out.v[2 * i] = f.x;
        out.v[2 * i + 1] = f.y;
    }
    return out;
}

// The first source of each conversion becomes the high nibble.
__device__ __forceinline__ unsigned encode(const F8& x)
{
    unsigned word;
    asm("{ .reg .b8 c0, c1, c2, c3;\n"
        "  cvt.rn.satfinite.e2m1x2.f32 c0, %2, %1;\n"
        "  cvt.rn.satfinite.e2m1x2.f32 c1, %4, %3;\n"
        "  cvt.rn.satfinite.e2m1x2.f32 c2, %6, %5;\n"
        "  cvt.rn.satfinite.e2m1x2.f32 c3, %8, %7;\n"
        "  mov.b32 %0, {c0, c1, c2, c3}; }"
        : "=r"(word)
        : "f"(x.v[0]), "f"(x.v[1]), "f"(x.v[2]), "f"(x.v[3]), "f"(x.v[4]), "f"(x.v[5]), "f"(x.v[6]), "f"(x.v[7]));
    return word;
}

__device__ __forceinline__ float2 decode_scales(unsigned short two)
{
    unsigned h;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(h) : "h"(two));
    return __half22float2(*(__half2*)&h);
}

__device__ __forceinline__ unsigned short encode_scales(float2 s)
{
    unsigned short two;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(two) : "f"(s.y), "f"(s.x));
    return two;
}

// A thread: 32 elements of b and their two scales.
__global__ void recode(const uint4* b, const unsigned short* sfb, uint4* b_out, unsigned short* sfb_out, int groups)
{
    asm volatile("griddepcontrol.launch_dependents;");
    const int group = blockIdx.x * blockDim.x + threadIdx.x;
    if (group >= groups) return;
    const long long in = 128ll * blockIdx.y * groups + group, out = 1ll * blockIdx.y * groups + group;
    uint4 v = b[in];
    unsigned* w = &v.x;
    for (int i = 0; i < 4; ++i) {
        F8 x = decode(w[i]);
        for (float& f : x.v) f = -f;
        w[i] = encode(x);
    }
    b_out[out] = v;
    const float2 s = decode_scales(sfb[in]);
    sfb_out[out] = encode_scales(make_float2(-s.x, -s.y));
}

template <int LANES, int ROWS>
__global__ __launch_bounds__(128) void multiply(const uint4* __restrict__ a, const unsigned short* __restrict__ sfa,
                                                const uint4* b, const unsigned short* sfb, __half* c, int m, int groups)
{
    const int lane = threadIdx.x % LANES;
    const int row = (blockIdx.x * (128 / LANES) + threadIdx.x / LANES) * ROWS;
    const long long base = (1ll * blockIdx.y * m + row) * groups;
    const bool inside = row < m;  // the same for the LANES that add up together
    float sum[ROWS] = {};
    asm volatile("griddepcontrol.wait;" ::: "memory");
    for (int g = lane; inside && g < groups; g += LANES) {
        const uint4 vb = b[1ll * blockIdx.y * groups + g];
        const float2 sb = decode_scales(sfb[1ll * blockIdx.y * groups + g]);
        for (int r = 0; r < ROWS; ++r) {
            uint4 va;
            asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(va.x), "=r"(va.y), "=r"(va.z), "=r"(va.w) : "l"(a + base + 1ll * r * groups + g));
            const float2 sa = decode_scales(sfa[base + 1ll * r * groups + g]);
            float dots[2] = {0.f, 0.f};
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const F8 x = decode((&va.x)[i]), y = decode((&vb.x)[i]);
                for (int j = 0; j < 8; ++j) dots[i / 2] += x.v[j] * y.v[j];
            }
            sum[r] += dots[0] * (sa.x * sb.x) + dots[1] * (sa.y * sb.y);
        }
    }
    for (int r = 0; r < ROWS; ++r) {
        for (int d = LANES / 2; d; d >>= 1) sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], d, LANES);
        if (lane == r && inside) c[1ll * blockIdx.y * m + row + r] = __float2half(sum[r]);
    }
}

template <int LANES, int ROWS>
static void launch_multiply(cudaStream_t stream, const torch::Tensor& a, const torch::Tensor& sfa, const torch::Tensor& b,
                            const torch::Tensor& sfb, torch::Tensor& c)
{
    const int m = a.size(0), groups = a.size(1) / 16, l = a.size(2);
    const int rows = 128 / LANES * ROWS;
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3((m + rows - 1) / rows, l);
    config.blockDim = dim3(128);
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    const cudaError_t status = cudaLaunchKernelEx(
        &config, multiply<LANES, ROWS>, (const uint4*)a.data_ptr(), (const unsigned short*)sfa.data_ptr(),
        (const uint4*)b.data_ptr(), (const unsigned short*)sfb.data_ptr(), (__half*)c.data_ptr(), m, groups);
    TORCH_CHECK(status == cudaSuccess, cudaGetErrorString(status));
}

torch::Tensor run(torch::Tensor a, torch::Tensor b, torch::Tensor sfa, torch::Tensor sfb, torch::Tensor c)
{
    const at::cuda::OptionalCUDAGuard guard(a.device());
    const auto stream = at::cuda::getCurrentCUDAStream().stream();
    const int groups = a.size(1) / 16, l = a.size(2);
    const auto bytes = torch::TensorOptions().dtype(torch::kUInt8).device(a.device());
    auto b_coded = torch::empty({l, groups * 16}, bytes);
    auto sfb_coded = torch::empty({l, groups * 2}, bytes);
    recode<<<dim3((groups + 63) / 64, l), 64, 0, stream>>>(
        (const uint4*)b.data_ptr(), (const unsigned short*)sfb.data_ptr(), (uint4*)b_coded.data_ptr(),
        (unsigned short*)sfb_coded.data_ptr(), groups);
    if (groups >= 256) launch_multiply<32, 4>(stream, a, sfa, b_coded, sfb_coded, c);
    else if (groups >= 32) launch_multiply<32, 2>(stream, a, sfa, b_coded, sfb_coded, c);
    else launch_multiply<8, 1>(stream, a, sfa, b_coded, sfb_coded, c);
    return c;
}
"""

header = "torch::Tensor run(torch::Tensor a, torch::Tensor b, torch::Tensor sfa, torch::Tensor sfb, torch::Tensor c);"

module = load_inline(
    name="blackwell_recode",
    cpp_sources=header,
    cuda_sources=source,
    functions=["run"],
    extra_cuda_cflags=[
        "--generate-code=arch=compute_100a,code=[sm_100a,compute_100a]",
        "-O3",
        "--expt-relaxed-constexpr",
        "-Wno-deprecated-gpu-targets",
    ],
)


def custom_kernel(data: input_t) -> output_t:
    a, b, sfa, sfb, _, _, c = data
    with torch.no_grad():
        return module.run(a, b, sfa, sfb, c)
