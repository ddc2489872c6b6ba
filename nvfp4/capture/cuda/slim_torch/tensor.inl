// at::Tensor's methods, each a call of Python; dtypes, devices and streams.

namespace slim {

struct TensorState {
  explicit TensorState(PyObject* stolen) : object(stolen) {}
  std::atomic<long> references{1};
  PyObject* object;
  std::vector<int64_t> sizes, strides;
};

// One state for each Python tensor, so that what sizes() returns lives as long as any handle of
// the tensor. Guarded by the GIL.
std::unordered_map<PyObject*, TensorState*>& live_states() {
  static auto* states = new std::unordered_map<PyObject*, TensorState*>();
  return *states;
}

TensorState* state_of(PyObject* tensor) {
  TensorState*& state = live_states()[tensor];
  if (state) {
    // One whose last handle is going away on another thread is left to that thread.
    long count = state->references.load();
    while (count > 0) {
      if (state->references.compare_exchange_weak(count, count + 1)) {
        return state;
      }
    }
  }
  Py_INCREF(tensor);
  state = new TensorState(tensor);
  return state;
}

void drop(TensorState* state) {
  if (!state || --state->references > 0 || !Py_IsInitialized()) {
    return;
  }
  const WithGil gil;
  const auto found = live_states().find(state->object);
  if (found != live_states().end() && found->second == state) {
    live_states().erase(found);
  }
  Py_DECREF(state->object);
  delete state;
}

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

void read_integers(const Ref& tuple, std::vector<int64_t>* values) {
  values->clear();
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple.get()); ++i) {
    values->push_back(to_int(to_python(PyTuple_GET_ITEM(tuple.get(), i))));
  }
}

// torch's names of dtypes in C++ and in Python, in ScalarType's order.
constexpr struct {
  const char *cpp, *python;
} dtype_names[] = {
    {"Byte", "uint8"}, {"Char", "int8"}, {"Short", "int16"}, {"Int", "int32"}, {"Long", "int64"},
    {"Half", "float16"}, {"Float", "float32"}, {"Double", "float64"}, {"ComplexHalf", "complex32"},
    {"ComplexFloat", "complex64"}, {"ComplexDouble", "complex128"}, {"Bool", "bool"},
    {"QInt8", "qint8"}, {"QUInt8", "quint8"}, {"QInt32", "qint32"}, {"BFloat16", "bfloat16"},
    {"QUInt4x2", "quint4x2"}, {"QUInt2x4", "quint2x4"}, {"Bits1x8", "bits1x8"},
    {"Bits2x4", "bits2x4"}, {"Bits4x2", "bits4x2"}, {"Bits8", "bits8"}, {"Bits16", "bits16"},
    {"Float8_e5m2", "float8_e5m2"}, {"Float8_e4m3fn", "float8_e4m3fn"},
    {"Float8_e5m2fnuz", "float8_e5m2fnuz"}, {"Float8_e4m3fnuz", "float8_e4m3fnuz"},
    {"UInt16", "uint16"}, {"UInt32", "uint32"}, {"UInt64", "uint64"}, {"UInt1", "uint1"},
    {"UInt2", "uint2"}, {"UInt3", "uint3"}, {"UInt4", "uint4"}, {"UInt5", "uint5"},
    {"UInt6", "uint6"}, {"UInt7", "uint7"}, {"Int1", "int1"}, {"Int2", "int2"}, {"Int3", "int3"},
    {"Int4", "int4"}, {"Int5", "int5"}, {"Int6", "int6"}, {"Int7", "int7"},
    {"Float8_e8m0fnu", "float8_e8m0fnu"}, {"Float4_e2m1fn_x2", "float4_e2m1fn_x2"},
    {"Undefined", nullptr}};
constexpr int dtype_count = static_cast<int>(c10::ScalarType::Undefined);

// The torch.dtype objects; null for those that this torch lacks.
PyObject* const* dtype_objects() {
  static PyObject* objects[dtype_count];
  if (!objects[0]) {
    const Ref torch = import("torch");
    for (int i = dtype_count - 1; i >= 0; --i) {
      objects[i] = PyObject_GetAttrString(torch.get(), dtype_names[i].python);
      PyErr_Clear();
    }
  }
  return objects;
}

bool load_dtype(PyObject* source, at::ScalarType* value) {
  PyObject* const* objects = dtype_objects();
  PyObject* const* found = std::find(objects, objects + dtype_count, source);
  *value = static_cast<at::ScalarType>(found - objects);
  return *value != at::ScalarType::Undefined;
}

PyObject* cast_dtype(at::ScalarType value) {
  const auto i = static_cast<unsigned>(value);
  PyObject* object = i < dtype_count ? dtype_objects()[i] : nullptr;
  TORCH_CHECK_TYPE(object, "this torch has no dtype ", value);
  Py_INCREF(object);
  return object;
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
  const auto i = static_cast<unsigned>(type);
  return i <= slim::dtype_count ? slim::dtype_names[i].cpp : "UNKNOWN_SCALAR";
}

size_t elementSize(ScalarType type) {
  const slim::WithGil gil;
  const slim::Ref dtype(slim::cast_dtype(type));
  return static_cast<size_t>(slim::to_int(slim::attribute(dtype.get(), "itemsize")));
}

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

Tensor::Tensor(const Tensor& other) : state_(other.state_) {
  if (state_) {
    ++state_->references;
  }
}
Tensor& Tensor::operator=(const Tensor& other) & {
  Tensor copy(other);
  std::swap(state_, copy.state_);
  return *this;
}
Tensor& Tensor::operator=(Tensor&& other) & noexcept {
  std::swap(state_, other.state_);
  return *this;
}
Tensor::~Tensor() { slim::drop(state_); }

Tensor Tensor::slim_wrap(PyObject* borrowed) {
  Tensor tensor;
  if (borrowed != Py_None) {
    tensor.state_ = slim::state_of(borrowed);
  }
  return tensor;
}
PyObject* Tensor::slim_object() const { return state_ ? state_->object : nullptr; }

// An undefined tensor has one dimension of no elements.
IntArrayRef Tensor::sizes() const {
  static const int64_t none = 0;
  if (!state_) {
    return none;
  }
  const slim::WithGil gil;
  slim::read_integers(slim::get(*this, "shape"), &state_->sizes);
  return state_->sizes;
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
  if (!state_ && (dim == 0 || dim == -1)) {
    return 0;
  }
  METHOD(to_int, method(*this, "size", dim))
}
int64_t Tensor::stride(int64_t dim) const METHOD(to_int, method(*this, "stride", dim))
IntArrayRef Tensor::strides() const {
  slim::object_of(*this);
  const slim::WithGil gil;
  slim::read_integers(slim::method(*this, "stride"), &state_->strides);
  return state_->strides;
}
bool Tensor::is_cuda() const { return state_ && device().is_cuda(); }
bool Tensor::is_contiguous() const METHOD(to_int, method(*this, "is_contiguous"))
ScalarType Tensor::scalar_type() const {
  ScalarType type = ScalarType::Undefined;
  if (state_) {
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
Tensor Tensor::slice(
    int64_t dim, std::optional<int64_t> start, std::optional<int64_t> end, int64_t step) const {
  const slim::WithGil gil;
  const slim::Ref aten = slim::attribute(slim::torch_attribute("ops").get(), "aten");
  return slim::to_tensor(
      slim::call(slim::attribute(aten.get(), "slice"), *this, dim, start, end, step));
}
Tensor Tensor::select(int64_t dim, int64_t index) const TENSOR("select", dim, index)
Tensor Tensor::narrow(int64_t dim, int64_t start, int64_t length) const
    TENSOR("narrow", dim, start, length)

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
