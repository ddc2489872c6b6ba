// Streams, guards and error checks, for test_cuda_headers.py. Of CUDA's runtime only what reports
// errors is used, and it is here.
#include <torch/extension.h>

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/Exceptions.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

static cudaError_t last_error = cudaSuccess;
extern "C" cudaError_t cudaGetLastError() {
  return std::exchange(last_error, cudaSuccess);
}
extern "C" const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorInvalidValue ? "invalid argument" : "another error";
}

static int64_t handle(cudaStream_t stream) { return reinterpret_cast<int64_t>(stream); }

int64_t current() { return handle(at::cuda::getCurrentCUDAStream()); }
bool is_default() {
  return c10::cuda::getCurrentCUDAStream() == c10::cuda::getDefaultCUDAStream();
}
std::vector<int64_t> switched() {
  const c10::cuda::CUDAStream mine = at::cuda::getStreamFromPool();
  std::vector<int64_t> seen = {current()};
  {
    c10::cuda::CUDAStreamGuard guard(mine);
    seen.push_back(current());
    TORCH_CHECK(handle(mine) == current() && mine.query());
    mine.synchronize();
  }
  seen.push_back(current());
  return seen;
}
int64_t guarded(const at::Tensor& x) {
  const at::cuda::OptionalCUDAGuard optional(device_of(x));
  const at::cuda::CUDAGuard guard(x.device());
  const c10::DeviceGuard device_guard(x.device());
  TORCH_CHECK(guard.current_device().is_cuda());
  return c10::cuda::current_device() + at::cuda::getCurrentCUDAStream().device_index();
}
at::Tensor on_device(int64_t size) {
  auto x = torch::ones({size}, torch::dtype(torch::kHalf).device(torch::kCUDA));
  TORCH_CHECK(x.is_cuda() && x.device().index() == 0 && x.get_device() == 0);
  TORCH_CHECK(torch::cuda::is_available() && x.options().device().is_cuda());
  torch::cuda::synchronize();
  TORCH_CHECK(torch::zeros_like(x).size(0) == size);
  return x.to(torch::kFloat).to(x.device()).cuda();
}
void check(bool launch) {
  last_error = cudaErrorInvalidValue;
  if (launch) {
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  } else {
    AT_CUDA_CHECK(cudaErrorInvalidValue);
  }
}
bool forgotten() { return last_error == cudaSuccess; }

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("current", &current);
  m.def("is_default", &is_default);
  m.def("switched", &switched);
  m.def("guarded", &guarded);
  m.def("on_device", &on_device);
  m.def("check", &check);
  m.def("forgotten", &forgotten);
}
