// Streams, guards, events and error checks of c10::cuda and at::cuda.
#pragma once

#include <cuda_runtime_api.h>

#include "exception.h"
#include "options.h"

namespace slim {
// Streams are Python's: torch.cuda.current_stream() and its like. Handles are cudaStream_t.
void* current_stream();
void* default_stream();
void* stream_from_pool(int priority);
void set_current_stream(void* handle);
bool stream_query(void* handle);
void stream_synchronize(void* handle);
int current_device();
int device_count();
void set_current_device(int index);
void synchronize_device();
}  // namespace slim

namespace c10 {

class CUDAError : public Error {
  using Error::Error;
};

// A stream of any device; only CUDA's are there.
class Stream {
 public:
  enum Unsafe { UNSAFE };
  Stream(Unsafe, Device device, void* handle) : device_(device), handle_(handle) {}
  Device device() const { return device_; }
  DeviceType device_type() const { return device_.type(); }
  DeviceIndex device_index() const { return device_.index(); }
  void* slim_handle() const { return handle_; }
  bool operator==(const Stream& other) const {
    return device_ == other.device_ && handle_ == other.handle_;
  }
  bool operator!=(const Stream& other) const { return !(*this == other); }

 private:
  Device device_;
  void* handle_;
};

}  // namespace c10

namespace c10::cuda {

class CUDAStream {
 public:
  enum Unchecked { UNCHECKED };
  explicit CUDAStream(Stream stream) : stream_(stream) {}
  explicit CUDAStream(Unchecked, Stream stream) : stream_(stream) {}
  cudaStream_t stream() const { return static_cast<cudaStream_t>(stream_.slim_handle()); }
  operator cudaStream_t() const { return stream(); }
  operator Stream() const { return stream_; }
  Stream unwrap() const { return stream_; }
  Device device() const { return stream_.device(); }
  DeviceType device_type() const { return kCUDA; }
  DeviceIndex device_index() const { return stream_.device_index(); }
  bool query() const { return slim::stream_query(stream()); }
  void synchronize() const { slim::stream_synchronize(stream()); }
  bool operator==(const CUDAStream& other) const { return stream_ == other.stream_; }
  bool operator!=(const CUDAStream& other) const { return stream_ != other.stream_; }

 private:
  Stream stream_;
};

inline DeviceIndex current_device() { return static_cast<DeviceIndex>(slim::current_device()); }
inline DeviceIndex device_count() { return static_cast<DeviceIndex>(slim::device_count()); }
inline void set_device(DeviceIndex index) { slim::set_current_device(index); }
inline void device_synchronize() { slim::synchronize_device(); }

inline CUDAStream slim_stream(void* handle, DeviceIndex index) {
  return CUDAStream(Stream(
      Stream::UNSAFE, Device(kCUDA, index == -1 ? current_device() : index), handle));
}
inline CUDAStream getCurrentCUDAStream(DeviceIndex index = -1) {
  return slim_stream(slim::current_stream(), index);
}
inline CUDAStream getDefaultCUDAStream(DeviceIndex index = -1) {
  return slim_stream(slim::default_stream(), index);
}
inline CUDAStream getStreamFromPool(int priority, DeviceIndex index = -1) {
  return slim_stream(slim::stream_from_pool(priority), index);
}
inline CUDAStream getStreamFromPool(bool high_priority = false, DeviceIndex index = -1) {
  return getStreamFromPool(high_priority ? -1 : 0, index);
}
inline CUDAStream getStreamFromExternal(cudaStream_t stream, DeviceIndex index) {
  return slim_stream(stream, index);
}
inline void setCurrentCUDAStream(CUDAStream stream) {
  slim::set_current_stream(stream.stream());
}

// Throws c10::CUDAError for anything but success, and forgets the error.
inline void c10_cuda_check_implementation(
    int32_t error, const char* file, const char* function, uint32_t line, bool) {
  if (error != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    throw CUDAError(
        SourceLocation{function, file, line},
        std::string("CUDA error: ") + cudaGetErrorString(static_cast<cudaError_t>(error)));
  }
}

// The current device is this one while the guard lives.
class OptionalCUDAGuard {
 public:
  OptionalCUDAGuard() = default;
  explicit OptionalCUDAGuard(std::optional<Device> device) {
    if (device) {
      set_device(*device);
    }
  }
  explicit OptionalCUDAGuard(std::optional<DeviceIndex> index) {
    if (index) {
      set_index(*index);
    }
  }
  ~OptionalCUDAGuard() { reset(); }
  OptionalCUDAGuard(const OptionalCUDAGuard&) = delete;
  OptionalCUDAGuard& operator=(const OptionalCUDAGuard&) = delete;
  void set_device(Device device) {
    TORCH_CHECK(device.is_cuda(), "Expected a CUDA device, but got ", device);
    set_index(device.index());
  }
  void set_index(DeviceIndex index) {
    if (!original_) {
      original_ = cuda::current_device();
    }
    if (index >= 0 && index != cuda::current_device()) {
      slim::set_current_device(index);
    }
  }
  void reset() {
    if (original_ && *original_ != cuda::current_device()) {
      slim::set_current_device(*original_);
    }
    original_.reset();
  }
  std::optional<Device> original_device() const {
    return original_ ? std::optional<Device>(Device(kCUDA, *original_)) : std::nullopt;
  }
  std::optional<Device> current_device() const {
    return original_ ? std::optional<Device>(Device(kCUDA, cuda::current_device())) : std::nullopt;
  }

 private:
  std::optional<DeviceIndex> original_;
};

class CUDAGuard {
 public:
  explicit CUDAGuard(DeviceIndex index) : guard_(std::optional<DeviceIndex>(index)) {}
  explicit CUDAGuard(Device device) : guard_(std::optional<Device>(device)) {}
  CUDAGuard(const CUDAGuard&) = delete;
  void set_device(Device device) { guard_.set_device(device); }
  void reset_device(Device device) { guard_.set_device(device); }
  void set_index(DeviceIndex index) { guard_.set_index(index); }
  Device original_device() const { return *guard_.original_device(); }
  Device current_device() const { return *guard_.current_device(); }

 private:
  OptionalCUDAGuard guard_;
};

// The current stream is this one while the guard lives.
class CUDAStreamGuard {
 public:
  explicit CUDAStreamGuard(Stream stream)
      : original_(getCurrentCUDAStream()), current_(CUDAStream(stream)) {
    setCurrentCUDAStream(current_);
  }
  ~CUDAStreamGuard() { setCurrentCUDAStream(original_); }
  CUDAStreamGuard(const CUDAStreamGuard&) = delete;
  void reset_stream(Stream stream) {
    current_ = CUDAStream(stream);
    setCurrentCUDAStream(current_);
  }
  CUDAStream original_stream() const { return original_; }
  CUDAStream current_stream() const { return current_; }
  Device original_device() const { return original_.device(); }
  Device current_device() const { return current_.device(); }

 private:
  CUDAStream original_, current_;
};

}  // namespace c10::cuda

namespace c10 {
// On the CPU there is nothing to guard.
class OptionalDeviceGuard {
 public:
  OptionalDeviceGuard() = default;
  explicit OptionalDeviceGuard(std::optional<Device> device) {
    if (device && device->is_cuda()) {
      guard_.set_device(*device);
    }
  }

 private:
  cuda::OptionalCUDAGuard guard_;
};
class DeviceGuard {
 public:
  explicit DeviceGuard(Device device) : guard_(std::optional<Device>(device)) {}

 private:
  OptionalDeviceGuard guard_;
};
}  // namespace c10

#define C10_CUDA_CHECK(EXPR)                                                           \
  do {                                                                                 \
    const cudaError_t slim_error = EXPR;                                               \
    ::c10::cuda::c10_cuda_check_implementation(                                        \
        static_cast<int32_t>(slim_error), __FILE__, __func__,                          \
        static_cast<uint32_t>(__LINE__), true);                                        \
  } while (0)
#define C10_CUDA_CHECK_WARN(EXPR)                                               \
  do {                                                                          \
    const cudaError_t slim_error = EXPR;                                        \
    if (slim_error != cudaSuccess) {                                            \
      static_cast<void>(cudaGetLastError());                                    \
      TORCH_WARN("CUDA warning: ", cudaGetErrorString(slim_error));             \
    }                                                                           \
  } while (0)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
#define C10_CUDA_ERROR_HANDLED(EXPR) EXPR
#define C10_CUDA_IGNORE_ERROR(EXPR)            \
  do {                                         \
    if ((EXPR) != cudaSuccess) {               \
      static_cast<void>(cudaGetLastError());   \
    }                                          \
  } while (0)
#define C10_CUDA_CLEAR_ERROR()               \
  do {                                       \
    static_cast<void>(cudaGetLastError());   \
  } while (0)
#define AT_CUDA_CHECK(EXPR) C10_CUDA_CHECK(EXPR)
