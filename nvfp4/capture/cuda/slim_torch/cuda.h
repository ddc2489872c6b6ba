// Streams, guards and error checks of c10::cuda and at::cuda. There is one device.
#pragma once

#include <cuda_runtime_api.h>

#include "tensor.h"

#ifdef SLIM_TORCH_EVERYTHING
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cusolverDn.h>
#include <cusparse.h>
#endif

#define C10_CUDA_CHECK(EXPR)                                                          \
  do {                                                                                \
    const cudaError_t slim_error = EXPR;                                              \
    if (slim_error != cudaSuccess) static_cast<void>(cudaGetLastError());             \
    TORCH_CHECK(slim_error == cudaSuccess, "CUDA error: ", cudaGetErrorString(slim_error)); \
  } while (0)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
#define AT_CUDA_CHECK(EXPR) C10_CUDA_CHECK(EXPR)

namespace slim {
// torch.cuda.current_stream() and set_stream(), by handles.
void* current_stream();
void set_current_stream(void* handle);
}  // namespace slim

namespace c10::cuda {

class CUDAStream {
 public:
  explicit CUDAStream(cudaStream_t handle) : handle_(handle) {}
  cudaStream_t stream() const { return handle_; }
  operator cudaStream_t() const { return handle_; }
  Device device() const { return Device(kCUDA, 0); }
  DeviceIndex device_index() const { return 0; }
  bool query() const { return cudaStreamQuery(handle_) == cudaSuccess; }
  void synchronize() const { C10_CUDA_CHECK(cudaStreamSynchronize(handle_)); }
  bool operator==(const CUDAStream& other) const { return handle_ == other.handle_; }
  bool operator!=(const CUDAStream& other) const { return handle_ != other.handle_; }

 private:
  cudaStream_t handle_;
};

inline DeviceIndex current_device() { return 0; }
inline DeviceIndex device_count() { return 1; }
inline void set_device(DeviceIndex index) { C10_CUDA_CHECK(cudaSetDevice(index)); }
inline void device_synchronize() { C10_CUDA_CHECK(cudaDeviceSynchronize()); }

inline CUDAStream getCurrentCUDAStream(DeviceIndex = -1) {
  return CUDAStream(static_cast<cudaStream_t>(slim::current_stream()));
}
inline CUDAStream getDefaultCUDAStream(DeviceIndex = -1) { return CUDAStream(nullptr); }
inline CUDAStream getStreamFromPool(bool = false, DeviceIndex = -1) {
  cudaStream_t stream;
  C10_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return CUDAStream(stream);
}
inline CUDAStream getStreamFromPool(int, DeviceIndex = -1) { return getStreamFromPool(); }
inline CUDAStream getStreamFromExternal(cudaStream_t stream, DeviceIndex) {
  return CUDAStream(stream);
}
inline void setCurrentCUDAStream(CUDAStream stream) { slim::set_current_stream(stream.stream()); }

// The current device is this one while the guard lives.
class CUDAGuard {
 public:
  explicit CUDAGuard(Device device) {
    TORCH_CHECK(device.is_cuda(), "Expected a CUDA device, but got ", device);
    if (device.has_index()) {
      cuda::set_device(device.index());
    }
  }
  explicit CUDAGuard(DeviceIndex index) : CUDAGuard(Device(kCUDA, index)) {}
  CUDAGuard(const CUDAGuard&) = delete;
  ~CUDAGuard() {}
};
class OptionalCUDAGuard {
 public:
  OptionalCUDAGuard() = default;
  explicit OptionalCUDAGuard(std::optional<Device> device) {
    if (device) {
      guard_.emplace(*device);
    }
  }

 private:
  std::optional<CUDAGuard> guard_;
};

// The current stream is this one while the guard lives.
class CUDAStreamGuard {
 public:
  explicit CUDAStreamGuard(CUDAStream stream) : original_(getCurrentCUDAStream()) {
    setCurrentCUDAStream(stream);
  }
  ~CUDAStreamGuard() { setCurrentCUDAStream(original_); }
  CUDAStreamGuard(const CUDAStreamGuard&) = delete;

 private:
  CUDAStream original_;
};

}  // namespace c10::cuda

namespace at::cuda {

using namespace c10::cuda;

inline cudaDeviceProp* getDeviceProperties(c10::DeviceIndex index) {
  static cudaDeviceProp properties;
  C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
  return &properties;
}
inline cudaDeviceProp* getCurrentDeviceProperties() { return getDeviceProperties(0); }

}  // namespace at::cuda

namespace torch::cuda {
inline bool is_available() { return true; }
inline size_t device_count() { return 1; }
inline void synchronize(int64_t = -1) { c10::cuda::device_synchronize(); }
}  // namespace torch::cuda
