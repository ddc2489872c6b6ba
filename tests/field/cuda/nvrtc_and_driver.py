# expect: pass
# quick: yes
"""NVRTC and the driver API of cuda.bindings: a block a row, dynamic shared memory above 48 KiB."""

import ctypes

import torch
from cuda.bindings import driver, nvrtc

from task import input_t, output_t

THREADS = 128
SHARED_BYTES = 64 * 1024

SOURCE = rb"""
#include <cuda_fp16.h>
#include "codes.h"

extern "C" __global__ void gemv(const unsigned char *a, const unsigned char *b,
                                const unsigned char *sfa, const unsigned char *sfb, __half *c,
                                int m, int k_bytes) {
  extern __shared__ float partial[];
  const size_t row = size_t(blockIdx.y) * m + blockIdx.x;
  a += row * k_bytes;
  sfa += row * (k_bytes / 8);
  b += size_t(blockIdx.y) * 128 * k_bytes;
  sfb += size_t(blockIdx.y) * 128 * (k_bytes / 8);
  float sum = 0.f;
  for (int block = threadIdx.x; block < k_bytes / 8; block += blockDim.x) {
    float dot = 0.f;
    for (int i = 0; i < 8; ++i) {
      const unsigned x = a[block * 8 + i], y = b[block * 8 + i];
      dot += e2m1(x & 15) * e2m1(y & 15) + e2m1(x >> 4) * e2m1(y >> 4);
    }
    sum += dot * e4m3(sfa[block]) * e4m3(sfb[block]);
  }
  partial[threadIdx.x] = sum;
  for (int half = blockDim.x / 2; half; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
  }
  if (threadIdx.x == 0) c[row] = __float2half(partial[0]);
}
"""

CODES = rb"""
__device__ inline float e2m1(unsigned code) {
  const float magnitude[8] = {0.f, .5f, 1.f, 1.5f, 2.f, 3.f, 4.f, 6.f};
  return code & 8 ? -magnitude[code & 7] : magnitude[code & 7];
}
__device__ inline float e4m3(unsigned code) {
  const int exponent = (code >> 3) & 15, mantissa = code & 7;
  const float value = exponent ? ldexpf(8 + mantissa, exponent - 10) : ldexpf(mantissa, -9);
  return code & 128 ? -value : value;
}
"""


def check(result):
    error, *values = result
    if error.value:
        raise RuntimeError(str(error))
    return values[0] if len(values) == 1 else values


def compiled():
    program = check(nvrtc.nvrtcCreateProgram(SOURCE, b"gemv.cu", 1, [CODES], [b"codes.h"]))
    options = [b"--gpu-architecture=compute_100", b"--std=c++17", b"-I/usr/local/cuda/include"]
    (error,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if error.value:
        log = b" " * check(nvrtc.nvrtcGetProgramLogSize(program))
        check(nvrtc.nvrtcGetProgramLog(program, log))
        raise RuntimeError(log.decode())
    ptx = b" " * check(nvrtc.nvrtcGetPTXSize(program))
    check(nvrtc.nvrtcGetPTX(program, ptx))
    check(nvrtc.nvrtcDestroyProgram(program))
    return ptx


check(driver.cuInit(0))
device = check(driver.cuDeviceGet(torch.cuda.current_device()))
check(driver.cuCtxSetCurrent(check(driver.cuDevicePrimaryCtxRetain(device))))
module = check(driver.cuModuleLoadData(compiled()))
kernel = check(driver.cuModuleGetFunction(module, b"gemv"))
check(
    driver.cuFuncSetAttribute(
        kernel,
        driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
        SHARED_BYTES,
    )
)


def custom_kernel(data: input_t) -> output_t:
    a, b, sfa, sfb, _, _, c = data
    m, k_bytes, l = a.shape
    values = (*(each.data_ptr() for each in (a, b, sfa, sfb, c)), m, k_bytes)
    types = (ctypes.c_void_p,) * 5 + (ctypes.c_int,) * 2
    stream = driver.CUstream(torch.cuda.current_stream().cuda_stream)
    check(
        driver.cuLaunchKernel(
            kernel, m, l, 1, THREADS, 1, 1, SHARED_BYTES, stream, (values, types), 0
        )
    )
    return c
