// Streams, guards and error checks of c10::cuda and at::cuda, those that a header of torch's has:
// it asks for them by macros (build.py). There is one device.
#include <cuda_runtime_api.h>

#include "streams.h"

#ifndef C10_CUDA_CHECK
#define C10_CUDA_CHECK(EXPR)                                                          \
  do {                                                                                \
    const cudaError_t slim_error = EXPR;                                              \
    if (slim_error != cudaSuccess) static_cast<void>(cudaGetLastError());             \
    TORCH_CHECK(slim_error == cudaSuccess, "CUDA error: ", cudaGetErrorString(slim_error)); \
  } while (0)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
#endif

#if defined(SLIM_EXCEPTIONS) && !defined(AT_CUDA_CHECK)
#define AT_CUDA_CHECK(EXPR) C10_CUDA_CHECK(EXPR)
#endif

#if defined(SLIM_STREAM) && !defined(SLIM_HAS_STREAM)
#define SLIM_HAS_STREAM
namespace slim {
// The handle of torch.cuda.current_stream().
void* current_stream();
}  // namespace slim

namespace c10::cuda {

class CUDAStream {
 public:
  explicit CUDAStream(cudaStream_t handle) : handle_(handle) {}
  cudaStream_t stream() const { return handle_; }
  operator cudaStream_t() const { return handle_; }
  void synchronize() const { C10_CUDA_CHECK(cudaStreamSynchronize(handle_)); }

 private:
  cudaStream_t handle_;
};

inline CUDAStream getCurrentCUDAStream(DeviceIndex = -1) {
  return CUDAStream(static_cast<cudaStream_t>(slim::current_stream()));
}
inline CUDAStream getStreamFromPool(bool = false, DeviceIndex = -1) {
  cudaStream_t stream;
  C10_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return CUDAStream(stream);
}
}  // namespace c10::cuda
#endif

#if defined(SLIM_GUARD) && !defined(SLIM_HAS_GUARD)
#define SLIM_HAS_GUARD
namespace c10::cuda {
// The current device is this one while the guard lives.
class CUDAGuard {
 public:
  explicit CUDAGuard(Device device) {
    TORCH_CHECK(device.is_cuda(), "Expected a CUDA device, but got ", device);
    if (device.has_index()) {
      C10_CUDA_CHECK(cudaSetDevice(device.index()));
    }
  }
  explicit CUDAGuard(DeviceIndex index) : CUDAGuard(Device(kCUDA, index)) {}
  CUDAGuard(const CUDAGuard&) = delete;
  ~CUDAGuard() {}
};

class OptionalCUDAGuard {
 public:
  explicit OptionalCUDAGuard(std::optional<Device> device) {
    if (device) CUDAGuard guard(*device);
  }
};
}  // namespace c10::cuda

namespace at {
inline std::optional<c10::Device> device_of(const Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor.device()) : std::nullopt;
}
}  // namespace at
#endif

namespace c10::cuda {}
namespace at::cuda {
using namespace c10::cuda;
}  // namespace at::cuda

#if defined(SLIM_PROPERTIES) && !defined(SLIM_HAS_PROPERTIES)
#define SLIM_HAS_PROPERTIES
namespace at::cuda {
inline cudaDeviceProp* getDeviceProperties(c10::DeviceIndex index) {
  static cudaDeviceProp properties;
  C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
  return &properties;
}
inline cudaDeviceProp* getCurrentDeviceProperties() { return getDeviceProperties(0); }
}  // namespace at::cuda
#endif
