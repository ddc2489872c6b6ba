# expect: pass
"""The table of FP4 values in two registers, read by __byte_perm; cudaLaunchKernel; functions="...".

Half precision holds the sum of eight products exactly, so only scaled sums are in single precision.
"""

from torch.utils.cpp_extension import load_inline

CPP = "void bytePermGemv(at::Tensor A, at::Tensor B, at::Tensor SFA, at::Tensor SFB, at::Tensor C);"

CUDA = r"""
#include <ATen/cuda/CUDAContext.h>
#include <cuda_fp16.h>

// High bytes of 0, .5, 1, 1.5 and 2, 3, 4, 6 as fp16; the low bytes are zero.
static constexpr unsigned kLow = 0x3E3C3800u, kHigh = 0x46444240u;

// Four codes in the low 16 bits of w to two half2.
__device__ inline void fourValues(unsigned w, __half2& first, __half2& second)
{
    unsigned high = __byte_perm(kLow, kHigh, w & 0x7777u);
    high |= (w & 0x8u) << 4 | (w & 0x80u) << 8 | (w & 0x800u) << 12 | (w & 0x8000u) << 16;
    unsigned u = __byte_perm(high, 0u, 0x1404), v = __byte_perm(high, 0u, 0x3424);
    first = *reinterpret_cast<__half2*>(&u);
    second = *reinterpret_cast<__half2*>(&v);
}

__device__ inline __half2 eightProducts(unsigned x, unsigned y, __half2 acc)
{
    __half2 p, q, r, s;
    for (int h = 0; h < 2; ++h, x >>= 16, y >>= 16) {
        fourValues(x, p, q);
        fourValues(y, r, s);
        acc = __hfma2(p, r, __hfma2(q, s, acc));
    }
    return acc;
}

// A finite E4M3 code: its bits, moved up, are a half that is 256 times too small.
__device__ inline float fp8(unsigned code)
{
    __half_raw raw;
    raw.x = (unsigned short)((code & 0x80u) << 8 | (code & 0x7Fu) << 7);
    return __half2float(__half(raw)) * 256.f;
}

__global__ void bytePermKernel(const uint4* A, const uint4* B, const unsigned short* SFA,
                               const unsigned short* SFB, __half* C, int m, int k)
{
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    int row = blockIdx.x * (blockDim.x >> 5) + warp;
    if (row >= m) return;
    int vectors = k / 32;
    size_t rowOfA = (size_t)blockIdx.y * m + row, rowOfB = (size_t)blockIdx.y * 128;
    float acc = 0.f;
    for (int i = lane; i < vectors; i += 32) {
        const uint4 x = __ldg(&A[rowOfA * vectors + i]);
        const uint4 y = __ldg(&B[rowOfB * vectors + i]);
        const unsigned sa = SFA[rowOfA * vectors + i], sb = SFB[rowOfB * vectors + i];
        const __half2 zero = __float2half2_rn(0.f);
        float2 d0 = __half22float2(eightProducts(x.y, y.y, eightProducts(x.x, y.x, zero)));
        float2 d1 = __half22float2(eightProducts(x.w, y.w, eightProducts(x.z, y.z, zero)));
        acc += (d0.x + d0.y) * fp8(sa & 0xFF) * fp8(sb & 0xFF);
        acc += (d1.x + d1.y) * fp8(sa >> 8) * fp8(sb >> 8);
    }
    acc += __shfl_xor_sync(0xFFFFFFFFu, acc, 16);
    acc += __shfl_xor_sync(0xFFFFFFFFu, acc, 8);
    acc += __shfl_xor_sync(0xFFFFFFFFu, acc, 4);
    acc += __shfl_xor_sync(0xFFFFFFFFu, acc, 2);
    acc += __shfl_xor_sync(0xFFFFFFFFu, acc, 1);
    if (lane == 0) C[rowOfA] = __float2half(acc);
}

void bytePermGemv(at::Tensor A, at::Tensor B, at::Tensor SFA, at::Tensor SFB, at::Tensor C)
{
    void *pA = A.data_ptr(), *pB = B.data_ptr(), *pSFA = SFA.data_ptr(), *pSFB = SFB.data_ptr();
    void* pC = C.data_ptr();
    int m = (int)A.size(0), k = (int)A.size(1) * 2;
    void* args[] = {&pA, &pB, &pSFA, &pSFB, &pC, &m, &k};
    dim3 grid((m + 7) / 8, (unsigned)A.size(2)), block(256);
    cudaError_t status = cudaLaunchKernel((const void*)bytePermKernel, grid, block, args, 0,
                                          at::cuda::getCurrentCUDAStream());
    TORCH_CHECK(status == cudaSuccess, cudaGetErrorName(status));
}
"""

library = load_inline(
    name="byte_perm_gemv",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions="bytePermGemv",
    extra_cflags=["-O3"],
    extra_cuda_cflags=["-O3", "--use_fast_math", "-gencode=arch=compute_100a,code=sm_100a"],
)


def custom_kernel(data):
    (a, b, sfa, sfb, _, _, c) = data
    library.bytePermGemv(a, b, sfa, sfb, c)
    return c
