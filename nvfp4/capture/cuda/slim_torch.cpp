// What the slim headers declare: tensors, bindings and operators by way of Python's C API.
//
// Compiled once and linked into the shared object of every submission, with hidden visibility:
//   g++ -std=c++17 -O1 -fPIC -fvisibility=hidden -I headers -I <Python's include> -c slim_torch.cpp
#include <atomic>
#include <functional>
#include <mutex>
#include <new>

#include <slim_torch/library.h>
#include <slim_torch/module.h>
#include <slim_torch/functions.h>

extern "C" const char* slim_torch_registration_error();

#include "slim_torch/calls.h"
#include "slim_torch/errors.inl"
#include "slim_torch/values.inl"
#include "slim_torch/tensor.inl"
#include "slim_torch/functions.inl"
#include "slim_torch/blob.inl"
#include "slim_torch/convert.inl"
#include "slim_torch/binding.inl"
#include "slim_torch/library.inl"
#include "slim_torch/cuda.inl"
