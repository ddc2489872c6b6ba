// The functions of libc10_cuda and libtorch_cuda that extensions call, for torch's own headers.
//
// A build of torch without CUDA lacks these libraries; in one with CUDA they would ask a driver.

#include <Python.h>

#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <ostream>
#include <string>

namespace {

// The handle of a stream of torch.cuda, by the name of the function that gives it.
int64_t torch_stream(const char *function) {
  PyGILState_STATE state = PyGILState_Ensure();
  PyObject *module = PyImport_ImportModule("torch.cuda");
  PyObject *stream = module ? PyObject_CallMethod(module, function, nullptr) : nullptr;
  PyObject *handle = stream ? PyObject_GetAttrString(stream, "cuda_stream") : nullptr;
  const int64_t value = handle ? PyLong_AsLongLong(handle) : 0;
  PyErr_Clear();
  Py_XDECREF(handle);
  Py_XDECREF(stream);
  Py_XDECREF(module);
  PyGILState_Release(state);
  return value;
}

thread_local int64_t own_stream = -1;

}  // namespace

namespace c10::cuda {

namespace {
CUDAStream with_handle(int64_t handle) {
  return CUDAStream(CUDAStream::UNCHECKED,
                    Stream(Stream::UNSAFE, Device(DeviceType::CUDA, 0), handle));
}
}  // namespace

DeviceIndex device_count() noexcept { return 1; }
DeviceIndex device_count_ensure_non_zero() { return 1; }
DeviceIndex current_device() { return 0; }
void set_device(DeviceIndex device, const bool) { C10_CUDA_CHECK(cudaSetDevice(device)); }
void device_synchronize() { C10_CUDA_CHECK(cudaDeviceSynchronize()); }
void warn_or_error_on_sync() {}
cudaError_t GetDeviceCount(int *count) { return cudaGetDeviceCount(count); }
cudaError_t GetDevice(DeviceIndex *device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t SetDevice(DeviceIndex device, const bool) { return cudaSetDevice(device); }
cudaError_t MaybeSetDevice(DeviceIndex device) { return cudaSetDevice(device); }
DeviceIndex ExchangeDevice(DeviceIndex) { return 0; }
DeviceIndex MaybeExchangeDevice(DeviceIndex) { return 0; }
void SetTargetDevice() {}

bool CUDAStream::query() const { return cudaStreamQuery(stream()) == cudaSuccess; }
void CUDAStream::synchronize() const { C10_CUDA_CHECK(cudaStreamSynchronize(stream())); }
cudaStream_t CUDAStream::stream() const { return reinterpret_cast<cudaStream_t>(stream_.id()); }
CUDAStream getStreamFromPool(const bool, DeviceIndex) {
  cudaStream_t stream;
  C10_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return with_handle(reinterpret_cast<int64_t>(stream));
}
CUDAStream getStreamFromPool(const int, DeviceIndex device) {
  return getStreamFromPool(true, device);
}
CUDAStream getStreamFromExternal(cudaStream_t stream, DeviceIndex) {
  return with_handle(reinterpret_cast<int64_t>(stream));
}
CUDAStream getDefaultCUDAStream(DeviceIndex) { return with_handle(0); }
CUDAStream getCurrentCUDAStream(DeviceIndex) {
  return with_handle(own_stream >= 0 ? own_stream : torch_stream("current_stream"));
}
void setCurrentCUDAStream(CUDAStream stream) { own_stream = stream.id(); }
std::ostream &operator<<(std::ostream &out, const CUDAStream &stream) {
  return out << stream.unwrap();
}

namespace {
void check(int32_t error) {
  if (error == cudaSuccess) return;
  const std::string text = cudaGetErrorString(static_cast<cudaError_t>(error));
  cudaGetLastError();
  TORCH_CHECK(false, "CUDA error: ", text);
}
}  // namespace

// The type of the line's number has changed between releases of torch.
__attribute__((visibility("default"))) void c10_cuda_check_implementation(
    const int32_t error, const char *, const char *, const uint32_t, const bool) {
  check(error);
}
__attribute__((visibility("default"))) void c10_cuda_check_implementation(
    const int32_t error, const char *, const char *, const int32_t, const bool) {
  check(error);
}

namespace CUDACachingAllocator {
std::atomic<CUDAAllocator *> allocator{nullptr};
}

}  // namespace c10::cuda

namespace at::cuda {

cudaDeviceProp *getCurrentDeviceProperties() {
  static cudaDeviceProp properties = [] {
    cudaDeviceProp found;
    C10_CUDA_CHECK(cudaGetDeviceProperties(&found, 0));
    return found;
  }();
  return &properties;
}
cudaDeviceProp *getDeviceProperties(c10::DeviceIndex) { return getCurrentDeviceProperties(); }
int warp_size() { return 32; }
bool canDeviceAccessPeer(c10::DeviceIndex, c10::DeviceIndex) { return false; }

}  // namespace at::cuda
