// Functions in the styles that submissions are written in, for test_slim_torch.py. The file compiles
// with torch's own headers too.
#include <torch/extension.h>

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>

// Tensors.

std::tuple<std::vector<int64_t>, std::vector<int64_t>, bool, std::string> facts(
    const torch::Tensor& x) {
  TORCH_CHECK(x.size(-1) == x.sizes().back() && x.stride(0) == x.strides()[0]);
  TORCH_CHECK(torch::size(x, 0) == x.size(0));
  TORCH_CHECK(x.dtype() == x.scalar_type() && x.options().dtype() == x.dtype());
  TORCH_CHECK(x.is_cuda() && x.device() == torch::Device("cuda:0") && x.get_device() == 0);
  return {x.sizes().vec(), x.strides().vec(), x.is_contiguous(), c10::toString(x.scalar_type())};
}
// The integers that an ArrayRef points to outlive the handle that it came from.
int64_t product_of_sizes(at::Tensor x) {
  c10::IntArrayRef sizes = x.sizes();
  {
    at::Tensor other = x;
    c10::IntArrayRef again = other.contiguous().sizes();
    TORCH_CHECK(again == sizes);
  }
  int64_t product = 1;
  for (int64_t size : sizes) product *= size;
  return product;
}
std::vector<torch::Tensor> shapes(torch::Tensor x) {
  return {x.slice(0, 1, 3), x.select(0, 0), x[2], x.transpose(0, 1)[1][2],
          x.permute({1, 0}), x.view({2, -1}).t().contiguous().reshape({-1}).unsqueeze(0).squeeze(0)};
}
std::vector<torch::Tensor> made(torch::Tensor like) {
  auto options = torch::TensorOptions().dtype(torch::kInt32).device(like.device());
  auto last = torch::zeros({2, 2}, torch::TensorOptions(at::kDouble).device("cuda"));
  last[0] = torch::ones({2}, last.options());
  return {torch::zeros({2, 3}, options), torch::ones({2}, like.options()),
          torch::full({2, 1}, 3.5, torch::dtype(torch::kHalf)),
          torch::zeros_like(like, like.options().dtype(torch::kUInt8)),
          torch::empty({0, 4}, torch::kBFloat16), at::zeros(3, at::kLong), last};
}
std::vector<torch::Tensor> converted(torch::Tensor x) {
  return {x.to(torch::kHalf), x.to(at::ScalarType::Int), x.to(x.options().dtype(torch::kBool)),
          x.to(torch::kCUDA), x.view(torch::kInt32), x.clone(), x.cpu(), x.cpu().cuda()};
}
at::Tensor same(at::Tensor x) { return x; }
at::Tensor undefined() { return at::Tensor(); }
std::vector<int64_t> undefined_sizes() {
  at::Tensor x;
  TORCH_CHECK(x.numel() == 0 && x.dim() == 1 && !x.is_cuda() && !x.defined());
  return {x.size(0), x.sizes()[0]};
}
std::tuple<at::Tensor, at::Tensor> both(at::Tensor a, at::Tensor b) { return {b, a}; }
std::vector<at::Tensor> listed(std::vector<at::Tensor> tensors) {
  tensors.push_back(tensors.front());
  return tensors;
}

// Numbers, strings, containers.

std::string numbers(int a, int64_t b, uint32_t c, float d, bool e, uint8_t f) {
  return c10::str(a, " ", b, " ", c, " ", d, " ", e, " ", static_cast<int>(f));
}
int64_t sum_of(at::IntArrayRef values, std::vector<double> more) {
  double sum = 0;
  for (int64_t value : values) sum += static_cast<double>(value);
  for (double value : more) sum += value;
  return static_cast<int64_t>(sum);
}
std::string texts(const std::string& a, std::string b) { return a + b; }
at::ScalarType dtype(at::ScalarType type) { return type; }

// Exceptions.

void fail(const std::string& how) {
  if (how == "runtime_error") throw std::runtime_error(how);
  if (how == "invalid_argument") throw std::invalid_argument(how);
  if (how == "out_of_range") throw std::out_of_range(how);
  if (how == "TORCH_CHECK") TORCH_CHECK(false);
  if (how == "NOT_IMPLEMENTED") TORCH_CHECK_NOT_IMPLEMENTED(how.empty(), how);
  if (how == "view") torch::zeros({2, 3}).view({4});
  if (how == "index") torch::zeros({2})[5];
  if (how == "undefined") torch::Tensor().clone();
  if (how == "cuda") AT_CUDA_CHECK(cudaErrorInvalidValue);
  if (how == "guard") at::cuda::CUDAGuard guard(torch::Device(torch::kCPU));
}
std::string caught() {
  try {
    torch::zeros({2, 3}).view({4});
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "nothing";
}

// Small floats: every 16-bit pattern as float, and back.

template <typename T>
int64_t wrong_round_trips(at::Tensor values, at::Tensor floats, at::Tensor rounded) {
  int64_t wrong = 0;
  const T* bits = values.data_ptr<T>();
  const float* wide = floats.data_ptr<float>();
  const T* narrow = rounded.data_ptr<T>();
  for (int64_t i = 0; i < values.numel(); ++i) {
    const float value = bits[i];
    wrong += !(value == wide[i] || (value != value && wide[i] != wide[i]));
    const T back = T(wide[i] * 1.0009765f);
    wrong += !(back.x == narrow[i].x || (static_cast<float>(back) != static_cast<float>(back)));
  }
  return wrong;
}

// Kernels.

template <typename scalar_t>
__global__ void scale(
    const scalar_t* __restrict__ x, scalar_t* __restrict__ y, float factor, int64_t n) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i < n) y[i] = static_cast<scalar_t>(static_cast<float>(x[i]) * factor);
}
torch::Tensor scaled(torch::Tensor x, double factor) {
  const at::cuda::OptionalCUDAGuard guard(device_of(x));
  auto y = torch::empty_like(x);
  const int64_t n = x.numel();
  auto stream = at::cuda::getCurrentCUDAStream();
  AT_DISPATCH_FLOATING_TYPES_AND_HALF(
      x.scalar_type(), "scaled", ([&] {
        scale<scalar_t><<<(n + 255) / 256, 256, 0, stream>>>(
            x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), static_cast<float>(factor), n);
      }));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}
__global__ void add(const at::Half* x, const __nv_bfloat16* y, at::Half* out) {
  const at::BFloat16 other = y[threadIdx.x];
  out[threadIdx.x] = x[threadIdx.x] + at::Half(static_cast<float>(other));
}
torch::Tensor added(const torch::Tensor& x, const torch::Tensor& y) {
  at::cuda::CUDAGuard guard(x.device());
  auto out = torch::empty_like(x);
  add<<<1, x.numel()>>>(
      x.data_ptr<at::Half>(), reinterpret_cast<const __nv_bfloat16*>(y.data_ptr()),
      out.data_ptr<at::Half>());
  return out;
}

// Streams.

static int64_t handle(cudaStream_t stream) { return reinterpret_cast<int64_t>(stream); }
int64_t current() { return handle(at::cuda::getCurrentCUDAStream()); }
int64_t another() {
  const c10::cuda::CUDAStream mine = at::cuda::getStreamFromPool();
  mine.synchronize();
  return handle(mine);
}
int multiprocessors() { return at::cuda::getCurrentDeviceProperties()->multiProcessorCount; }

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("scaled", torch::wrap_pybind_function(scaled), "Scales x.");
  m.def("added", &added);
  m.def("facts", &facts);
  m.def("product_of_sizes", &product_of_sizes);
  m.def("shapes", &shapes);
  m.def("made", &made);
  m.def("converted", &converted);
  m.def("same", &same);
  m.def("undefined", &undefined);
  m.def("undefined_sizes", &undefined_sizes);
  m.def("both", &both);
  m.def("listed", &listed);
  m.def("numbers", &numbers);
  m.def("sum_of", &sum_of);
  m.def("texts", &texts);
  m.def("dtype", &dtype);
  m.def("fail", torch::wrap_pybind_function(fail));
  m.def("caught", &caught);
  m.def("wrong_half", &wrong_round_trips<at::Half>);
  m.def("wrong_bfloat16", &wrong_round_trips<at::BFloat16>);
  m.def("current", &current);
  m.def("another", &another);
  m.def("multiprocessors", &multiprocessors);
  m.def("less", [](int a, int b) { return a - b; }, "a - b", py::arg("a"), py::arg("b"));
}

// Operators.

at::Tensor plus(const at::Tensor& x, double value) {
  at::Tensor sum = x.clone();
  float* values = sum.data_ptr<float>();
  for (int64_t i = 0; i < sum.numel(); ++i) values[i] += static_cast<float>(value);
  return sum;
}
void clear(at::Tensor& x, at::IntArrayRef, std::string) { x.zero_(); }
std::tuple<at::Tensor, at::Tensor> twice(const at::Tensor& x) { return {x.clone(), x}; }

TORCH_LIBRARY(slim_test, m) {
  m.def("plus(Tensor x, float value) -> Tensor");
  m.def("clear(Tensor(a!) x, int[] sizes, str text) -> ()");
  m.def("twice(Tensor x) -> (Tensor, Tensor)", &twice);
  m.def("row(Tensor x, int i) -> Tensor", [](const at::Tensor& x, int64_t i) { return x[i].clone(); });
  m.impl("plus", &plus);
  m.impl("clear", clear);
}

// Other blocks may come first, and each declares or implements some operators.
TORCH_LIBRARY_IMPL(slim_test, CPU, m) {
  m.impl("place", [](const at::Tensor&) { return std::string("CPU"); });
}
TORCH_LIBRARY_FRAGMENT(slim_test, m) { m.def("place(Tensor x) -> str"); }
TORCH_LIBRARY_FRAGMENT(slim_test, m) { m.def("copied(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(slim_test, CUDA, m) {
  m.impl("slim_test::place", [](const at::Tensor&) { return std::string("CUDA"); });
  m.impl("copied", [](const at::Tensor& x) { return x.clone(); });
}
TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) { m.def("two() -> int", [] { return int64_t{2}; }); }
