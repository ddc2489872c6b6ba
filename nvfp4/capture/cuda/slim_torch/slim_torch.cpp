// Definitions for the slim headers: tensors, bindings and operators by way of Python's C API.
//
// Compiled once and linked into the shared object of every submission, with hidden visibility.
#include <new>
#include <set>
#include <stdexcept>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda.h"
#include "torch.h"

#include "python.inl"
#include "tensor.inl"
#include "bindings.inl"

namespace slim {
unsigned short half_of(float value) { return __half_as_ushort(__float2half(value)); }
unsigned short bfloat_of(float value) { return __bfloat16_as_ushort(__float2bfloat16(value)); }
float of_half(unsigned short bits) { return __half2float(__ushort_as_half(bits)); }
float of_bfloat(unsigned short bits) { return __bfloat162float(__ushort_as_bfloat16(bits)); }
}  // namespace slim
