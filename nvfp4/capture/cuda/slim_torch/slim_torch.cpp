// Definitions for the slim headers: tensors, bindings and operators by way of Python's C API.
//
// Compiled once and linked into the shared object of every submission, with hidden visibility.
#include <new>
#include <set>
#include <stdexcept>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define SLIM_CONVERSION(function, value) function { return value; }  // of floats.h, for all sources
#include "cuda.h"
#include "torch.h"

#include "python.inl"
#include "tensor.inl"
#include "bindings.inl"
