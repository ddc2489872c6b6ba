// at::cuda: properties of the device, and events.
#pragma once

#include "cuda.h"

#ifdef SLIM_TORCH_EVERYTHING
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cusolverDn.h>
#include <cusparse.h>
#endif

namespace at {
using namespace c10;
}

namespace at::cuda {

using namespace c10::cuda;

inline bool is_available() { return c10::cuda::device_count() > 0; }
inline int64_t getNumGPUs() { return c10::cuda::device_count(); }

inline cudaDeviceProp* getDeviceProperties(c10::DeviceIndex index) {
  static cudaDeviceProp properties;
  C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
  return &properties;
}
inline cudaDeviceProp* getCurrentDeviceProperties() {
  return getDeviceProperties(c10::cuda::current_device());
}
inline int warp_size() { return getCurrentDeviceProperties()->warpSize; }

}  // namespace at::cuda
