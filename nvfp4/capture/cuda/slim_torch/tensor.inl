// at::Tensor's methods, each a call of Python; dtypes, devices and streams.

namespace slim {

PyObject* object_of(const at::Tensor& tensor) {
  TORCH_CHECK(
      tensor.defined(), "Expected a proper Tensor but got None (or an undefined Tensor in C++)");
  return tensor.slim_object();
}

Ref get(const at::Tensor& tensor, const char* name) { return attribute(object_of(tensor), name); }

// tensor.<name>(...).
template <typename... Args>
Ref method(const at::Tensor& tensor, const char* name, const Args&... arguments) {
  return call(get(tensor, name), arguments...);
}

at::Tensor to_tensor(const Ref& object) { return at::Tensor::slim_wrap(object.get()); }
void* to_pointer(const Ref& object) { return PyLong_AsVoidPtr(object.get()); }

// A view of a tuple of integers, which are kept for good: the view may outlive its tensor.
at::IntArrayRef interned(const Ref& tuple) {
  static auto* known = new std::set<std::vector<int64_t>>();  // guarded by the GIL
  std::vector<int64_t> values;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple.get()); ++i) {
    values.push_back(to_int(to_python(PyTuple_GET_ITEM(tuple.get(), i))));
  }
  return *known->insert(std::move(values)).first;
}

constexpr struct Dtype {
  at::ScalarType type;
  const char *cpp, *python;
  size_t bytes;
} dtypes[] = {
#define DTYPE(T, name, number, python) {at::ScalarType::name, #name, #python, sizeof(T)},
    SLIM_FOR_EACH_TYPE(DTYPE)
#undef DTYPE
};

const Dtype& dtype_of(at::ScalarType type) {
  for (const Dtype& each : dtypes) {
    if (each.type == type) {
      return each;
    }
  }
  throw at::Error("this dtype has no size");
}

bool load_dtype(PyObject* source, at::ScalarType* value) {
  std::string text;
  if (is_a(source, "dtype") && load_string(Ref(PyObject_Str(source)).get(), &text)) {
    for (const Dtype& each : dtypes) {
      if (text == std::string("torch.") + each.python) {
        *value = each.type;
        return true;
      }
    }
  }
  return false;
}
PyObject* cast_dtype(at::ScalarType value) {
  return torch_attribute(dtype_of(value).python).release();
}

bool load_device(PyObject* source, at::Device* value) {
  std::string text;
  if (!is_a(source, "device") || !load_string(Ref(PyObject_Str(source)).get(), &text)) {
    return false;
  }
  *value = at::Device(text);
  return true;
}
PyObject* cast_device(const at::Device& value) {
  return call(torch_attribute("device"), value.str()).release();
}

// The keyword arguments of a function that makes a tensor.
Keywords keywords(const at::TensorOptions& options) {
  Keywords keywords;
  return std::move(keywords.set_if("dtype", options.dtype_opt_scalar_type())
                       .set_if("device", options.device_opt()));
}

void* current_stream() {
  const WithGil gil;
  const Ref cuda = torch_attribute("cuda");
  const Ref stream = call(attribute(cuda.get(), "current_stream"));
  return PyLong_AsVoidPtr(attribute(stream.get(), "cuda_stream").get());
}
}  // namespace slim

namespace c10 {

const char* toString(ScalarType type) {
  return type == ScalarType::Undefined ? "Undefined" : slim::dtype_of(type).cpp;
}

size_t elementSize(ScalarType type) { return slim::dtype_of(type).bytes; }

Device::Device(const std::string& text) : type_(kCPU), index_(-1) {
  const size_t colon = std::min(text.find(':'), text.size());
  const std::string type = text.substr(0, colon), index = text.substr(colon);
  TORCH_CHECK(
      (type == "cpu" || type == "cuda") &&
          (index.empty() || (index.size() == 2 && index[1] >= '0' && index[1] <= '9')),
      "Invalid device string: '", text, "'");
  type_ = type == "cuda" ? kCUDA : kCPU;
  index_ = index.empty() ? -1 : static_cast<DeviceIndex>(index[1] - '0');
}
std::string Device::str() const {
  return (is_cuda() ? "cuda" : "cpu") + (has_index() ? ":" + std::to_string(index_) : "");
}

caffe2::TypeMeta TensorOptions::dtype() const {
  const slim::WithGil gil;
  ScalarType type = dtype_.value_or(kFloat);
  if (!dtype_) {
    slim::load_dtype(slim::call(slim::torch_attribute("get_default_dtype")).get(), &type);
  }
  return type;
}

}  // namespace c10

// Bodies of methods that are one call.
#define METHOD(convert, ...)                  \
  {                                           \
    const slim::WithGil gil;                  \
    return slim::convert(slim::__VA_ARGS__);  \
  }
#define TENSOR(...) METHOD(to_tensor, method(*this, __VA_ARGS__))
#define MAKE(name, ...)                                                                  \
  METHOD(to_tensor, call_with(slim::torch_attribute(name), slim::keywords(options), __VA_ARGS__))
#define IN_PLACE(...)                          \
  {                                            \
    const slim::WithGil gil;                   \
    slim::method(*this, __VA_ARGS__);          \
    return const_cast<Tensor&>(*this);         \
  }

namespace at {

Tensor Tensor::slim_wrap(PyObject* borrowed) {
  Tensor tensor;
  if (borrowed != Py_None) {
    Py_INCREF(borrowed);
    tensor.object_.reset(borrowed, slim::release);
  }
  return tensor;
}

// An undefined tensor has one dimension of no elements.
IntArrayRef Tensor::sizes() const {
  static const int64_t none = 0;
  if (!defined()) {
    return none;
  }
  METHOD(interned, get(*this, "shape"))
}
int64_t Tensor::dim() const { return static_cast<int64_t>(sizes().size()); }
int64_t Tensor::numel() const {
  int64_t count = 1;
  for (int64_t size : sizes()) {
    count *= size;
  }
  return count;
}
int64_t Tensor::size(int64_t dim) const {
  if (!defined() && (dim == 0 || dim == -1)) {
    return 0;
  }
  METHOD(to_int, method(*this, "size", dim))
}
int64_t Tensor::stride(int64_t dim) const METHOD(to_int, method(*this, "stride", dim))
IntArrayRef Tensor::strides() const METHOD(interned, method(*this, "stride"))
bool Tensor::is_cuda() const { return defined() && device().is_cuda(); }
bool Tensor::is_contiguous() const METHOD(to_int, method(*this, "is_contiguous"))
ScalarType Tensor::scalar_type() const {
  ScalarType type = ScalarType::Undefined;
  if (defined()) {
    const slim::WithGil gil;
    slim::load_dtype(slim::get(*this, "dtype").get(), &type);
  }
  return type;
}
Device Tensor::device() const {
  const slim::WithGil gil;
  Device device(kCPU);
  slim::load_device(slim::get(*this, "device").get(), &device);
  return device;
}

void* Tensor::data_ptr() const METHOD(to_pointer, method(*this, "data_ptr"))
void* Tensor::checked_data_ptr(ScalarType wanted) const {
  const ScalarType found = scalar_type();
  TORCH_CHECK(wanted == found, "expected scalar type ", wanted, " but found ", found);
  return data_ptr();
}
Tensor Tensor::contiguous() const TENSOR("contiguous")
Tensor Tensor::view(IntArrayRef size) const TENSOR("view", size)
Tensor Tensor::view(ScalarType dtype) const TENSOR("view", dtype)
Tensor Tensor::reshape(IntArrayRef shape) const TENSOR("reshape", shape)
Tensor Tensor::permute(IntArrayRef dims) const TENSOR("permute", dims)
Tensor Tensor::transpose(int64_t dim0, int64_t dim1) const TENSOR("transpose", dim0, dim1)
Tensor Tensor::t() const TENSOR("t")
Tensor Tensor::squeeze() const TENSOR("squeeze")
Tensor Tensor::squeeze(int64_t dim) const TENSOR("squeeze", dim)
Tensor Tensor::unsqueeze(int64_t dim) const TENSOR("unsqueeze", dim)
Tensor Tensor::slice(int64_t dim, int64_t start, int64_t end, int64_t step) const {
  const slim::WithGil gil;
  const slim::Ref aten = slim::attribute(slim::torch_attribute("ops").get(), "aten");
  return slim::to_tensor(
      slim::call(slim::attribute(aten.get(), "slice"), *this, dim, start, end, step));
}
Tensor Tensor::select(int64_t dim, int64_t index) const TENSOR("select", dim, index)

Tensor Tensor::to(TensorOptions options, bool non_blocking, bool copy) const {
  const slim::WithGil gil;
  slim::Keywords keywords = slim::keywords(options);
  keywords.set_if("non_blocking", std::optional(non_blocking)).set_if("copy", std::optional(copy));
  return slim::to_tensor(slim::call_with(slim::get(*this, "to"), keywords));
}
Tensor Tensor::clone() const TENSOR("clone")
Tensor& Tensor::zero_() const IN_PLACE("zero_")
Tensor& Tensor::copy_(const Tensor& source, bool non_blocking) const
    IN_PLACE("copy_", source, non_blocking)

// Functions that make tensors: torch.<name>(...), as it stands in Python at the time.
Tensor empty(IntArrayRef size, TensorOptions options) MAKE("empty", size)
Tensor zeros(IntArrayRef size, TensorOptions options) MAKE("zeros", size)
Tensor ones(IntArrayRef size, TensorOptions options) MAKE("ones", size)
Tensor full(IntArrayRef size, const Scalar& value, TensorOptions options) MAKE("full", size, value)
Tensor empty_like(const Tensor& like, TensorOptions options) MAKE("empty_like", like)
Tensor zeros_like(const Tensor& like, TensorOptions options) MAKE("zeros_like", like)
Tensor ones_like(const Tensor& like, TensorOptions options) MAKE("ones_like", like)

}  // namespace at
