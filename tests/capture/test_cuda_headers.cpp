// Small functions in the styles that submissions are written in, for test_cuda_headers.py. The file
// compiles with torch's own headers too, and the tests pass with them.
#include <torch/extension.h>

#include <array>
#include <map>

#include <c10/util/Optional.h>

// Tensors, by value and by reference.

torch::Tensor scaled(torch::Tensor x, double factor) {
  TORCH_CHECK(x.dim() == 2, "x must have 2 dimensions, but has ", x.dim(), ": ", x.sizes());
  auto out = torch::empty_like(x);
  const float* in = x.data_ptr<float>();
  float* result = out.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) {
    result[i] = in[i] * static_cast<float>(factor);
  }
  return out;
}

at::Tensor times(const at::Tensor& x, double factor) {
  at::Tensor out = x.clone();
  float* values = out.data_ptr<float>();
  for (int64_t i = 0; i < out.numel(); ++i) {
    values[i] *= static_cast<float>(factor);
  }
  return out;
}

void fill_rows(at::Tensor& out, const at::Tensor& values) {
  auto rows = out.accessor<float, 2>();
  auto value = values.accessor<float, 1>();
  for (int64_t i = 0; i < rows.size(0); ++i) {
    for (int64_t j = 0; j < rows.size(1); ++j) {
      rows[i][j] = value[i];
    }
  }
}

void copy_bytes(int64_t from, uintptr_t to, size_t bytes) {
  std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
}

at::Tensor same(at::Tensor x) { return x; }
at::Tensor undefined() { return at::Tensor(); }
bool is_defined(const c10::optional<at::Tensor>& x) { return x.has_value() && x->defined(); }
std::tuple<at::Tensor, at::Tensor> both(at::Tensor a, at::Tensor b) { return {b, a}; }
std::vector<at::Tensor> listed(std::vector<at::Tensor> tensors) {
  tensors.push_back(tensors.front());
  return tensors;
}

std::tuple<int64_t, std::vector<int64_t>, std::vector<int64_t>, bool, std::string> facts(
    const torch::Tensor& x) {
  TORCH_CHECK(x.size(-1) == x.sizes().back());
  TORCH_CHECK(x.stride(0) == x.strides()[0]);
  TORCH_CHECK(x.nbytes() == static_cast<size_t>(x.numel()) * x.element_size());
  TORCH_CHECK(x.itemsize() == static_cast<size_t>(x.element_size()));
  TORCH_CHECK(x.dtype() == x.scalar_type() && x.options().dtype() == x.dtype());
  TORCH_CHECK(!x.is_cuda() && x.device().is_cpu() && x.device() == torch::Device(torch::kCPU));
  return {x.storage_offset(), x.sizes().vec(), x.strides().vec(), x.is_contiguous(),
          c10::toString(x.scalar_type())};
}

// What an ArrayRef points into lives as long as a handle of the tensor.
int64_t product_of_sizes(at::Tensor x) {
  c10::IntArrayRef sizes = x.sizes();
  {
    at::Tensor other = x;
    c10::IntArrayRef again = other.contiguous().sizes();
    TORCH_CHECK(again == sizes);
  }
  int64_t product = 1;
  for (int64_t size : sizes) {
    product *= size;
  }
  return product;
}

torch::Tensor shapes(torch::Tensor x) {
  const int m = static_cast<int>(x.size(0));
  return x.view({m, -1}).t().contiguous().reshape({-1}).unsqueeze(0).squeeze(0).flatten();
}
std::vector<torch::Tensor> slices(torch::Tensor x) {
  return {x.slice(0, 1, 3), x.select(0, 0), x.narrow(1, 1, 2), x[2], x.transpose(0, 1)[1][2],
          x.permute({1, 0})};
}
std::vector<torch::Tensor> made(torch::Tensor like) {
  auto options = torch::TensorOptions().dtype(torch::kInt32).device(like.device());
  return {torch::zeros({2, 3}, options),
          torch::ones({2}, like.options()),
          torch::full({2, 1}, 3.5, torch::dtype(torch::kHalf)),
          torch::zeros_like(like, like.options().dtype(torch::kUInt8)),
          torch::empty({0, 4}, torch::kBFloat16),
          at::zeros(3, at::kLong),
          like.new_zeros({2}),
          torch::empty({2, 2}, torch::TensorOptions(at::kDouble).device("cpu")).fill_(4)};
}
std::vector<torch::Tensor> converted(torch::Tensor x) {
  return {x.to(torch::kHalf), x.to(at::ScalarType::Int), x.to(torch::kCPU, torch::kDouble),
          x.to(x.options().dtype(torch::kBool)), x.to(torch::kCPU), x.toType(at::kChar),
          x.view(torch::kInt32)};
}
std::tuple<double, int64_t, float, bool> items(torch::Tensor x) {
  return {x.item<double>(), x.item().toLong(), x.item().to<float>(), x.item<bool>()};
}
torch::Tensor of_memory(int64_t rows, bool* freed) {
  float* memory = new float[4]{1, 2, 3, 4};
  return torch::from_blob(
      memory, {rows, 4 / rows}, [freed](void* pointer) {
        delete[] static_cast<float*>(pointer);
        *freed = true;
      },
      torch::kFloat);
}
static bool was_freed = false;

// Numbers, strings, containers.

std::string numbers(int a, int64_t b, uint32_t c, float d, bool e, uint8_t f) {
  return c10::str(a, " ", b, " ", c, " ", d, " ", e, " ", static_cast<int>(f));
}
std::string texts(const std::string& a, std::string_view b, const char* c) {
  return a + std::string(b) + c;
}
int64_t sum_of(at::IntArrayRef values, std::vector<double> more) {
  int64_t sum = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    sum += values[i];
  }
  for (double value : more) {
    sum += static_cast<int64_t>(value);
  }
  return sum;
}
std::map<std::string, int> lengths(std::map<std::string, std::string> texts) {
  std::map<std::string, int> result;
  for (const auto& [key, value] : texts) {
    result[key] = static_cast<int>(value.size());
  }
  return result;
}
std::pair<std::optional<int64_t>, std::array<double, 2>> options(
    c10::optional<int64_t> a, std::array<double, 2> b) {
  return {a, {b[1], b[0]}};
}
std::string kinds(at::ScalarType type, c10::Device device) {
  return c10::str(type, " ", device, " ", device.is_cuda());
}
bool takes_scalar(at::Scalar) { return true; }
std::vector<int64_t> undefined_sizes() {
  at::Tensor x;
  TORCH_CHECK(x.numel() == 0 && x.dim() == 1 && !x.is_cuda() && !x.defined());
  return {x.size(0), x.sizes()[0]};
}
bool without_gradients(const at::Tensor& x) {
  torch::NoGradGuard guard;
  return x.clone().requires_grad();
}
bool in_inference_mode(const at::Tensor& x) {
  c10::InferenceMode guard;
  int64_t count = 0;
  for (auto i : c10::irange(x.size(0))) {
    count += i;
  }
  TORCH_CHECK(count == x.size(0) * (x.size(0) - 1) / 2);
  return x.clone().requires_grad();
}
at::ScalarType type_of(const at::Tensor& x) { return x.scalar_type(); }

int overloaded(int) { return 1; }
int overloaded(const std::string&) { return 2; }
int overloaded(const at::Tensor&) { return 3; }

// Exceptions.

void fail(const std::string& how) {
  if (how == "runtime_error") throw std::runtime_error(how);
  if (how == "invalid_argument") throw std::invalid_argument(how);
  if (how == "out_of_range") throw std::out_of_range(how);
  if (how == "TORCH_CHECK") TORCH_CHECK(false);
  if (how == "VALUE") TORCH_CHECK_VALUE(how.empty(), how);
  if (how == "INDEX") TORCH_CHECK_INDEX(how.empty(), how);
  if (how == "TYPE") TORCH_CHECK_TYPE(how.empty(), how);
  if (how == "NOT_IMPLEMENTED") TORCH_CHECK_NOT_IMPLEMENTED(how.empty(), how);
  if (how == "EQ") TORCH_CHECK_EQ(how.size(), 3);
  if (how == "AT_ERROR") AT_ERROR("value is ", 3);
  if (how == "ASSERT") TORCH_INTERNAL_ASSERT(how.empty(), "no");
  if (how == "view") torch::zeros({2, 3}).view({4});
  if (how == "item") torch::zeros({2}).item<float>();
  if (how == "index") torch::zeros({2})[5];
  if (how == "undefined") torch::Tensor().clone();
  if (how == "int overflow") torch::full({1}, 300).item<int8_t>();
}
std::string caught() {
  try {
    torch::zeros({2, 3}).view({4});
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "nothing";
}

template <typename scalar_t>
double total(const at::Tensor& x) {
  double sum = 0;
  const scalar_t* values = x.data_ptr<scalar_t>();
  for (int64_t i = 0; i < x.numel(); ++i) {
    sum += static_cast<double>(static_cast<float>(values[i]));
  }
  return sum;
}
double dispatched(at::Tensor x) {
  double sum = 0;
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::ScalarType::Half, at::ScalarType::BFloat16, x.scalar_type(), "dispatched",
      [&] { sum = total<scalar_t>(x); });
  return sum;
}
int64_t size_of_type(at::Tensor x) {
  return AT_DISPATCH_SWITCH(
      x.scalar_type(), "size_of_type",
      AT_DISPATCH_CASE_INTEGRAL_TYPES([&] { return static_cast<int64_t>(sizeof(scalar_t)); })
          AT_DISPATCH_CASE(at::kFloat8_e4m3fn, [&] { return static_cast<int64_t>(-1); }));
}
// Every 16-bit pattern as float, and back.
template <typename T>
int64_t wrong_round_trips(at::Tensor bits_as_float, at::Tensor floats, at::Tensor rounded) {
  int64_t wrong = 0;
  const T* bits = bits_as_float.data_ptr<T>();
  const float* wide = floats.data_ptr<float>();
  const T* narrow = rounded.data_ptr<T>();
  for (int64_t i = 0; i < bits_as_float.numel(); ++i) {
    const float value = bits[i];
    wrong += !(value == wide[i] || (value != value && wide[i] != wide[i]));
    const T back = T(wide[i] * 1.0009765f);
    wrong += !(back.x == narrow[i].x || (static_cast<float>(back) != static_cast<float>(back)));
  }
  return wrong;
}

// With the GIL released: tensor methods take it by themselves.
double without_gil(at::Tensor x) {
  TORCH_CHECK(!PyGILState_Check(), "the GIL is held");
  at::Tensor copy = x;
  return copy.clone().item<double>();
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.doc() = "Functions to test.";
  m.attr("answer") = 42;
  m.def("scaled", torch::wrap_pybind_function(scaled), "Scales x.", py::arg("x"),
        py::arg("factor") = 2.0);
  m.def("fill_rows", &fill_rows);
  m.def("copy_bytes", &copy_bytes);
  m.def("same", &same);
  m.def("undefined", &undefined);
  m.def("is_defined", &is_defined, py::arg("x") = py::none());
  m.def("both", &both);
  m.def("listed", &listed);
  m.def("facts", &facts);
  m.def("product_of_sizes", &product_of_sizes);
  m.def("shapes", &shapes);
  m.def("slices", &slices);
  m.def("made", &made);
  m.def("converted", &converted);
  m.def("items", &items);
  m.def("of_memory", [](int64_t rows) { return of_memory(rows, &was_freed); });
  m.def("was_freed", []() { return was_freed; });
  m.def("numbers", &numbers, py::arg("a"), py::arg("b"), py::arg("c") = 3, py::arg("d") = 0.5,
        py::arg("e") = true, py::arg("f") = 255);
  m.def("texts", &texts);
  m.def("sum_of", &sum_of, py::arg("values"), py::arg("more") = std::vector<double>{0.0, 1.0});
  m.def("lengths", &lengths);
  m.def("options", &options);
  m.def("kinds", &kinds);
  m.def("takes_scalar", &takes_scalar);
  m.def("undefined_sizes", &undefined_sizes);
  m.def("without_gradients", &without_gradients);
  m.def("in_inference_mode", &in_inference_mode);
  m.def("fail_plainly", &fail);
  m.def("type_of", &type_of);
  m.def("overloaded", static_cast<int (*)(int)>(&overloaded));
  m.def("overloaded", static_cast<int (*)(const std::string&)>(&overloaded));
  m.def("overloaded", static_cast<int (*)(const at::Tensor&)>(&overloaded));
  m.def("fail", torch::wrap_pybind_function(fail));
  m.def("caught", &caught);
  m.def("dispatched", torch::wrap_pybind_function(dispatched));
  m.def("size_of_type", &size_of_type);
  m.def("wrong_half", &wrong_round_trips<at::Half>);
  m.def("wrong_bfloat16", &wrong_round_trips<at::BFloat16>);
  m.def("wrong_e4m3", &wrong_round_trips<c10::Float8_e4m3fn>);
  m.def("wrong_e5m2", &wrong_round_trips<c10::Float8_e5m2>);
  m.def("total_of_half", torch::wrap_pybind_function(total<at::Half>));
  m.def("without_gil", &without_gil, py::call_guard<py::gil_scoped_release>());
  m.def("call", [](py::object function, py::list list) {
    list.append(3);
    py::object result = function(list.size(), "text");
    return py::str(result.attr("upper")());
  });
}

// Operators.

at::Tensor plus(const at::Tensor& x, double value, int64_t times, c10::optional<at::Tensor> bias) {
  at::Tensor sum = x.clone();
  float* values = sum.data_ptr<float>();
  for (int64_t i = 0; i < sum.numel(); ++i) {
    values[i] += static_cast<float>(value * static_cast<double>(times));
    values[i] += bias ? bias->data_ptr<float>()[i] : 0.0f;
  }
  return sum;
}
void negate(at::Tensor& x, at::IntArrayRef, std::string) { x.copy_(times(x, -1)); }
std::string scalar(const at::Tensor& x, const at::Scalar& value) {
  at::Tensor filled = at::full_like(x, value);
  return c10::str(value, " ", value.isFloatingPoint(), " ", filled.item().toDouble());
}
at::Tensor doubled(const at::Tensor& x) { return times(x, 2); }

TORCH_LIBRARY(slim_test, m) {
  m.def("plus(Tensor x, float value, int times=2, *, Tensor? bias=None) -> Tensor");
  m.def("negate(Tensor(a!) x, int[] sizes, str text='none') -> ()");
  m.def("doubled", &doubled);
  m.def("scalar", &scalar);
}
TORCH_LIBRARY_IMPL(slim_test, CPU, m) {
  m.impl("plus", &plus);
  m.impl("negate", TORCH_FN(negate));
}
TORCH_LIBRARY_FRAGMENT(slim_test, m) {
  m.def("tripled(Tensor x) -> Tensor", [](const at::Tensor& x) { return times(x, 3); });
  m.def("halved(Tensor x) -> Tensor");
  m.impl("halved", torch::kCPU, [](const at::Tensor& x) { return times(x, 0.5); });
}
TORCH_LIBRARY_FRAGMENT(slim_test, m) {
  m.def("first(Tensor[] x, ScalarType? dtype=None) -> (Tensor, Tensor)",
        [](at::TensorList x, c10::optional<at::ScalarType> dtype) {
          return std::make_tuple(x[0], dtype ? x[0].to(*dtype) : x[0]);
        });
}
