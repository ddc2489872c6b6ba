// at::Tensor's methods, each a call of Python.

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

void read_integers(const Ref& tuple, std::vector<int64_t>* values) {
  values->clear();
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple.get()); ++i) {
    values->push_back(to_int(to_python(PyTuple_GET_ITEM(tuple.get(), i))));
  }
}

std::vector<at::Tensor> to_tensors(const Ref& sequence) {
  std::vector<at::Tensor> tensors;
  const Items items(sequence.get());
  for (Py_ssize_t i = 0; i < items.size(); ++i) {
    tensors.push_back(at::Tensor::slim_wrap(items[i]));
  }
  return tensors;
}

std::tuple<at::Tensor, at::Tensor> to_pair(const Ref& sequence) {
  std::vector<at::Tensor> tensors = to_tensors(sequence);
  return {tensors.at(0), tensors.at(1)};
}

// What options leave open, from a tensor.
at::TensorOptions filled_in(const at::TensorOptions& options, const at::Tensor& tensor) {
  const at::TensorOptions filled = options.has_dtype() ? options : options.dtype(tensor.dtype());
  return filled.has_device() ? filled : filled.device(std::optional<at::Device>(tensor.device()));
}

// The keyword arguments of a function that makes a tensor.
Keywords factory_keywords(
    const at::TensorOptions& options, std::optional<at::MemoryFormat> format = std::nullopt) {
  TORCH_CHECK(options.layout() == at::kStrided, "only strided tensors are supported");
  Keywords keywords;
  keywords.set_if("dtype", options.dtype_opt_scalar_type())
      .set_if("device", options.device_opt())
      .set_if("requires_grad", options.requires_grad_opt())
      .set_if("pin_memory", options.pinned_memory_opt());
  return std::move(keywords.set_if(
      "memory_format", format ? format : options.memory_format_opt()));
}

}  // namespace slim

// Bodies of methods that are one call. aten's operators have the C++ signatures' arguments.
#define METHOD(convert, ...)                  \
  {                                           \
    const slim::WithGil gil;                  \
    return slim::convert(slim::__VA_ARGS__);  \
  }
#define TENSOR(...) METHOD(to_tensor, __VA_ARGS__)
#define ATEN(name, ...) TENSOR(call(slim::aten(name), *this, ##__VA_ARGS__))
#define IN_PLACE(name, ...)                    \
  {                                            \
    const slim::WithGil gil;                   \
    slim::method(*this, name, ##__VA_ARGS__);  \
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
void Tensor::reset() {
  slim::drop(state_);
  state_ = nullptr;
}
bool Tensor::is_same(const Tensor& other) const { return slim_object() == other.slim_object(); }

Tensor Tensor::slim_wrap(PyObject* borrowed) {
  Tensor tensor;
  if (borrowed != Py_None) {
    tensor.state_ = slim::state_of(borrowed);
  }
  return tensor;
}
PyObject* Tensor::slim_object() const { return state_ ? state_->object : nullptr; }

// An undefined tensor has one dimension of no elements.
int64_t Tensor::dim() const {
  if (!state_) {
    return 1;
  }
  METHOD(to_int, method(*this, "dim"))
}
int64_t Tensor::size(int64_t dim) const {
  if (!state_ && (dim == 0 || dim == -1)) {
    return 0;
  }
  METHOD(to_int, method(*this, "size", dim))
}
int64_t Tensor::stride(int64_t dim) const
    METHOD(to_int, method(*this, "stride", dim))
int64_t Tensor::numel() const {
  if (!state_) {
    return 0;
  }
  METHOD(to_int, method(*this, "numel"))
}
int64_t Tensor::storage_offset() const
    METHOD(to_int, method(*this, "storage_offset"))
size_t Tensor::itemsize() const METHOD(to_int, method(*this, "element_size"))
size_t Tensor::nbytes() const { return static_cast<size_t>(numel()) * itemsize(); }
bool Tensor::is_cuda() const {
  if (!state_) {
    return false;
  }
  METHOD(to_bool, get(*this, "is_cuda"))
}
bool Tensor::is_contiguous(MemoryFormat format) const {
  const slim::WithGil gil;
  slim::Keywords keywords;
  keywords.set("memory_format", format);
  return slim::to_bool(slim::call_with(slim::get(*this, "is_contiguous"), keywords));
}
bool Tensor::is_non_overlapping_and_dense() const
    METHOD(to_bool, call(slim::aten("is_non_overlapping_and_dense"), *this))
bool Tensor::is_floating_point() const
    METHOD(to_bool, method(*this, "is_floating_point"))
bool Tensor::is_complex() const METHOD(to_bool, method(*this, "is_complex"))
bool Tensor::is_signed() const METHOD(to_bool, method(*this, "is_signed"))
bool Tensor::is_pinned() const METHOD(to_bool, method(*this, "is_pinned"))
bool Tensor::requires_grad() const METHOD(to_bool, get(*this, "requires_grad"))
const Tensor& Tensor::set_requires_grad(bool value) const IN_PLACE("requires_grad_", value)
Layout Tensor::layout() const { return options().layout(); }

IntArrayRef Tensor::sizes() const {
  static const int64_t none = 0;
  if (!state_) {
    return none;
  }
  const slim::WithGil gil;
  slim::read_integers(slim::get(*this, "shape"), &state_->sizes);
  return state_->sizes;
}
IntArrayRef Tensor::strides() const {
  slim::object_of(*this);
  const slim::WithGil gil;
  slim::read_integers(slim::method(*this, "stride"), &state_->strides);
  return state_->strides;
}
ScalarType Tensor::scalar_type() const {
  if (!state_) {
    return ScalarType::Undefined;
  }
  const slim::WithGil gil;
  ScalarType type = ScalarType::Undefined;
  slim::load_dtype(slim::get(*this, "dtype").get(), &type);
  return type;
}
Device Tensor::device() const {
  const slim::WithGil gil;
  Device device(kCPU);
  slim::load_device(slim::get(*this, "device").get(), &device);
  return device;
}
TensorOptions Tensor::options() const {
  const slim::WithGil gil;
  TORCH_CHECK(
      slim::get(*this, "layout").get() == slim::torch_attribute("strided").get(),
      "only strided tensors are supported");
  return TensorOptions(scalar_type()).device(std::optional<Device>(device())).layout(kStrided);
}
std::string Tensor::toString() const {
  return std::string(is_cuda() ? "CUDA" : "CPU") + c10::toString(scalar_type()) + "Type";
}

void* Tensor::data_ptr() const {
  const slim::WithGil gil;
  return PyLong_AsVoidPtr(slim::method(*this, "data_ptr").get());
}
void* Tensor::checked_data_ptr(ScalarType wanted) const {
  const ScalarType found = scalar_type();
  TORCH_CHECK(wanted == found, "expected scalar type ", wanted, " but found ", found);
  return data_ptr();
}
Scalar Tensor::item() const {
  const slim::WithGil gil;
  const slim::Ref value = slim::method(*this, "item");
  Scalar scalar;
  TORCH_CHECK(slim::load_scalar(value.get(), &scalar), "item() of a complex tensor");
  return scalar;
}

Tensor Tensor::contiguous(MemoryFormat format) const {
  const slim::WithGil gil;
  slim::Keywords keywords;
  keywords.set("memory_format", format);
  return slim::to_tensor(slim::call_with(slim::get(*this, "contiguous"), keywords));
}
Tensor Tensor::view(IntArrayRef size) const TENSOR(method(*this, "view", size))
Tensor Tensor::view(ScalarType dtype) const TENSOR(method(*this, "view", dtype))
Tensor Tensor::view_as(const Tensor& other) const { return view(other.sizes()); }
Tensor Tensor::reshape(IntArrayRef shape) const TENSOR(method(*this, "reshape", shape))
Tensor Tensor::reshape_as(const Tensor& other) const { return reshape(other.sizes()); }
Tensor Tensor::permute(IntArrayRef dims) const TENSOR(method(*this, "permute", dims))
Tensor Tensor::transpose(int64_t dim0, int64_t dim1) const
    TENSOR(method(*this, "transpose", dim0, dim1))
Tensor Tensor::t() const TENSOR(method(*this, "t"))
Tensor Tensor::squeeze() const TENSOR(method(*this, "squeeze"))
Tensor Tensor::squeeze(int64_t dim) const TENSOR(method(*this, "squeeze", dim))
Tensor Tensor::unsqueeze(int64_t dim) const TENSOR(method(*this, "unsqueeze", dim))
Tensor Tensor::flatten(int64_t start, int64_t end) const
    TENSOR(method(*this, "flatten", start, end))
Tensor Tensor::expand(IntArrayRef size, bool) const TENSOR(method(*this, "expand", size))
Tensor Tensor::expand_as(const Tensor& other) const { return expand(other.sizes()); }
Tensor Tensor::repeat(IntArrayRef repeats) const TENSOR(method(*this, "repeat", repeats))
Tensor Tensor::as_strided(
    IntArrayRef size, IntArrayRef stride, std::optional<int64_t> storage_offset) const
    TENSOR(method(*this, "as_strided", size, stride, storage_offset))
Tensor Tensor::slice(
    int64_t dim, std::optional<int64_t> start, std::optional<int64_t> end, int64_t step) const
    ATEN("slice", dim, start, end, step)
Tensor Tensor::select(int64_t dim, int64_t index) const
    TENSOR(method(*this, "select", dim, index))
Tensor Tensor::narrow(int64_t dim, int64_t start, int64_t length) const
    TENSOR(method(*this, "narrow", dim, start, length))
Tensor Tensor::operator[](int64_t index) const { return select(0, index); }
Tensor Tensor::operator[](const Scalar& index) const {
  TORCH_CHECK_INDEX(index.isIntegral(false), "Can only index tensors with integral scalars");
  return select(0, index.toLong());
}
Tensor Tensor::operator[](const Tensor& index) const {
  TORCH_CHECK_INDEX(
      index.defined() && index.dim() == 0,
      "Can only index with tensors that are scalars (zero-dim)");
  return (*this)[index.item()];
}

Tensor Tensor::to(
    TensorOptions options, bool non_blocking, bool copy,
    std::optional<MemoryFormat> format) const {
  TORCH_CHECK(
      !options.requires_grad_opt(),
      "to(options) expects unset requires_grad flag, but got options.requires_grad set as ",
      options.requires_grad());
  const slim::WithGil gil;
  slim::Keywords keywords;
  keywords.set_if("device", options.device_opt())
      .set_if("dtype", options.dtype_opt_scalar_type())
      .set("non_blocking", non_blocking)
      .set("copy", copy)
      .set_if("memory_format", format ? format : options.memory_format_opt());
  return slim::to_tensor(slim::call_with(slim::get(*this, "to"), keywords));
}
Tensor Tensor::to(
    Device device, ScalarType dtype, bool non_blocking, bool copy,
    std::optional<MemoryFormat> format) const {
  return to(
      TensorOptions(dtype).device(std::optional<Device>(device)), non_blocking, copy, format);
}
Tensor Tensor::to(
    ScalarType dtype, bool non_blocking, bool copy, std::optional<MemoryFormat> format) const {
  return to(TensorOptions(dtype), non_blocking, copy, format);
}
Tensor Tensor::to(
    const Tensor& other, bool non_blocking, bool copy, std::optional<MemoryFormat> format) const {
  return to(other.device(), other.scalar_type(), non_blocking, copy, format);
}
Tensor Tensor::clone(std::optional<MemoryFormat> format) const {
  const slim::WithGil gil;
  slim::Keywords keywords;
  keywords.set_if("memory_format", format);
  return slim::to_tensor(slim::call_with(slim::get(*this, "clone"), keywords));
}
Tensor Tensor::detach() const TENSOR(method(*this, "detach"))
Tensor Tensor::new_empty(IntArrayRef size, TensorOptions options) const {
  return at::empty(size, slim::filled_in(options, *this));
}
Tensor Tensor::new_zeros(IntArrayRef size, TensorOptions options) const {
  return at::zeros(size, slim::filled_in(options, *this));
}
Tensor Tensor::new_ones(IntArrayRef size, TensorOptions options) const {
  return at::ones(size, slim::filled_in(options, *this));
}
Tensor Tensor::new_full(IntArrayRef size, const Scalar& value, TensorOptions options) const {
  return at::full(size, value, slim::filled_in(options, *this));
}
Tensor& Tensor::fill_(const Scalar& value) const IN_PLACE("fill_", value)
Tensor& Tensor::fill_(const Tensor& value) const IN_PLACE("fill_", value)
Tensor& Tensor::zero_() const IN_PLACE("zero_")
Tensor& Tensor::copy_(const Tensor& source, bool non_blocking) const
    IN_PLACE("copy_", source, non_blocking)
Tensor& Tensor::resize_(IntArrayRef size) const IN_PLACE("resize_", size)

}  // namespace at
