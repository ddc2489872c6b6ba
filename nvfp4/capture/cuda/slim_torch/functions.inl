// Operators of Tensor and the functions of at:: and torch::.

namespace at {

#define UNARY(name) Tensor Tensor::name() const ATEN(#name)
#define UNARY_IN_PLACE(name) \
  UNARY(name)                \
  Tensor& Tensor::name##_() const IN_PLACE(#name "_")
#define TENSORS(name) Tensor Tensor::name(const Tensor& other) const ATEN(#name, other)
#define BINARY_IN_PLACE(name)                                         \
  TENSORS(name)                                                       \
  Tensor Tensor::name(const Scalar& other) const ATEN(#name, other)   \
  Tensor& Tensor::name##_(const Tensor& other) const IN_PLACE(#name "_", other) \
  Tensor& Tensor::name##_(const Scalar& other) const IN_PLACE(#name "_", other)
#include <slim_torch/ops.def>
#undef UNARY
#undef UNARY_IN_PLACE
#undef TENSORS
#undef BINARY_IN_PLACE

#define WITH_ALPHA(name, Other)                                                     \
  Tensor Tensor::name(const Other& other, const Scalar& alpha) const {              \
    const slim::WithGil gil;                                                        \
    slim::Keywords keywords;                                                        \
    keywords.set("alpha", alpha);                                                   \
    return slim::to_tensor(slim::call_with(slim::get(*this, #name), keywords, other)); \
  }                                                                                 \
  Tensor& Tensor::name##_(const Other& other, const Scalar& alpha) const {          \
    const slim::WithGil gil;                                                        \
    slim::Keywords keywords;                                                        \
    keywords.set("alpha", alpha);                                                   \
    slim::call_with(slim::get(*this, #name "_"), keywords, other);                  \
    return const_cast<Tensor&>(*this);                                              \
  }
WITH_ALPHA(add, Tensor)
WITH_ALPHA(add, Scalar)
WITH_ALPHA(sub, Tensor)
WITH_ALPHA(sub, Scalar)
#undef WITH_ALPHA

Tensor Tensor::clamp(const std::optional<Scalar>& min, const std::optional<Scalar>& max) const
    ATEN("clamp", min, max)
Tensor& Tensor::clamp_(const std::optional<Scalar>& min, const std::optional<Scalar>& max) const
    IN_PLACE("clamp_", min, max)

#define REDUCTION(name)                                                                        \
  Tensor Tensor::name(std::optional<ScalarType> dtype) const {                                 \
    const slim::WithGil gil;                                                                   \
    slim::Keywords keywords;                                                                   \
    keywords.set("dtype", dtype);                                                              \
    return slim::to_tensor(slim::call_with(slim::aten(#name), keywords, *this));               \
  }                                                                                            \
  Tensor Tensor::name(IntArrayRef dim, bool keepdim, std::optional<ScalarType> dtype) const {  \
    const slim::WithGil gil;                                                                   \
    slim::Keywords keywords;                                                                   \
    keywords.set("dtype", dtype);                                                              \
    return slim::to_tensor(                                                                    \
        slim::call_with(slim::aten(#name), keywords, *this, dim, keepdim));                    \
  }
REDUCTION(sum)
REDUCTION(mean)
#undef REDUCTION

Tensor Tensor::max() const ATEN("max")
Tensor Tensor::min() const ATEN("min")
std::tuple<Tensor, Tensor> Tensor::max(int64_t dim, bool keepdim) const
    METHOD(to_pair, call(slim::aten("max"), *this, dim, keepdim))
std::tuple<Tensor, Tensor> Tensor::min(int64_t dim, bool keepdim) const
    METHOD(to_pair, call(slim::aten("min"), *this, dim, keepdim))
Tensor Tensor::amax(IntArrayRef dim, bool keepdim) const ATEN("amax", dim, keepdim)
Tensor Tensor::amin(IntArrayRef dim, bool keepdim) const ATEN("amin", dim, keepdim)
Tensor Tensor::any() const ATEN("any")
Tensor Tensor::all() const ATEN("all")
Tensor Tensor::argmax(std::optional<int64_t> dim, bool keepdim) const ATEN("argmax", dim, keepdim)
Tensor Tensor::argmin(std::optional<int64_t> dim, bool keepdim) const ATEN("argmin", dim, keepdim)
Tensor Tensor::softmax(int64_t dim, std::optional<ScalarType> dtype) const
    ATEN("softmax", dim, dtype)
Tensor Tensor::cumsum(int64_t dim, std::optional<ScalarType> dtype) const {
  const slim::WithGil gil;
  slim::Keywords keywords;
  keywords.set("dtype", dtype);
  return slim::to_tensor(slim::call_with(slim::aten("cumsum"), keywords, *this, dim));
}
bool Tensor::equal(const Tensor& other) const METHOD(to_bool, call(slim::aten("equal"), *this, other))
bool Tensor::allclose(const Tensor& other, double rtol, double atol, bool equal_nan) const
    METHOD(to_bool, call(slim::aten("allclose"), *this, other, rtol, atol, equal_nan))

// Indexing.

indexing::TensorIndex::TensorIndex(const char* dots) : kind_(Kind::Ellipsis) {
  TORCH_CHECK_VALUE(
      std::string_view(dots) == "...",
      "Expected \"...\" to represent an ellipsis index, but got \"", dots, "\"");
}

static slim::Ref python_index(const indexing::TensorIndex& index) {
  using Kind = indexing::TensorIndex::Kind;
  switch (index.slim_kind()) {
    case Kind::None: return slim::Ref(slim::cast_none());
    case Kind::Ellipsis: return slim::to_python(Py_Ellipsis);
    case Kind::Integer: return slim::to_python(index.integer());
    case Kind::Boolean: return slim::to_python(index.integer() != 0);
    case Kind::Slice: {
      const indexing::Slice& slice = index.slice();
      return slim::Ref(PySlice_New(
          slim::to_python(slice.start_).get(), slim::to_python(slice.stop_).get(),
          slim::to_python(slice.step_).get()));
    }
    case Kind::Tensor: break;
  }
  return slim::to_python(index.tensor());
}

static slim::Ref python_indices(ArrayRef<indexing::TensorIndex> indices) {
  slim::Ref tuple(slim::new_tuple(static_cast<Py_ssize_t>(indices.size())));
  for (size_t i = 0; i < indices.size(); ++i) {
    slim::set_item(tuple.get(), static_cast<Py_ssize_t>(i), python_index(indices[i]).release());
  }
  return tuple;
}

Tensor Tensor::index(ArrayRef<indexing::TensorIndex> indices) const {
  const slim::WithGil gil;
  return slim::to_tensor(
      slim::Ref(PyObject_GetItem(slim::object_of(*this), python_indices(indices).get())));
}
Tensor Tensor::index(std::initializer_list<indexing::TensorIndex> indices) const {
  return index(ArrayRef<indexing::TensorIndex>(indices));
}

template <typename T>
static void put(const Tensor& self, ArrayRef<indexing::TensorIndex> indices, const T& value) {
  const slim::WithGil gil;
  if (PyObject_SetItem(
          slim::object_of(self), python_indices(indices).get(), slim::to_python(value).get())) {
    slim::throw_python_error();
  }
}
#define INDEX_PUT(Indices, Value)                                        \
  Tensor& Tensor::index_put_(Indices indices, const Value& value) {      \
    put(*this, ArrayRef<indexing::TensorIndex>(indices), value);         \
    return *this;                                                        \
  }
INDEX_PUT(ArrayRef<indexing::TensorIndex>, Tensor)
INDEX_PUT(ArrayRef<indexing::TensorIndex>, Scalar)
INDEX_PUT(std::initializer_list<indexing::TensorIndex>, Tensor)
INDEX_PUT(std::initializer_list<indexing::TensorIndex>, Scalar)
#undef INDEX_PUT

// Functions that make tensors: torch.<name>(...), as it stands in Python at the time.

template <typename... Args>
static Tensor make(
    const char* name, const TensorOptions& options, std::optional<MemoryFormat> format,
    const Args&... arguments) {
  const slim::WithGil gil;
  return slim::to_tensor(slim::call_with(
      slim::torch_attribute(name), slim::factory_keywords(options, format), arguments...));
}
#define MAKE(name, ...) \
  { return make(name, options, std::nullopt, __VA_ARGS__); }

Tensor empty(IntArrayRef size, TensorOptions options, std::optional<MemoryFormat> format) {
  return make("empty", options, format, size);
}
Tensor zeros(IntArrayRef size, TensorOptions options) MAKE("zeros", size)
Tensor ones(IntArrayRef size, TensorOptions options) MAKE("ones", size)
Tensor rand(IntArrayRef size, TensorOptions options) MAKE("rand", size)
Tensor randn(IntArrayRef size, TensorOptions options) MAKE("randn", size)
Tensor full(IntArrayRef size, const Scalar& value, TensorOptions options) MAKE("full", size, value)
Tensor empty_strided(IntArrayRef size, IntArrayRef stride, TensorOptions options)
    MAKE("empty_strided", size, stride)
Tensor arange(const Scalar& end, TensorOptions options) MAKE("arange", end)
Tensor arange(const Scalar& start, const Scalar& end, TensorOptions options)
    MAKE("arange", start, end)
Tensor arange(const Scalar& start, const Scalar& end, const Scalar& step, TensorOptions options)
    MAKE("arange", start, end, step)
Tensor linspace(const Scalar& start, const Scalar& end, int64_t steps, TensorOptions options)
    MAKE("linspace", start, end, steps)
Tensor eye(int64_t n, TensorOptions options) MAKE("eye", n)
Tensor scalar_tensor(const Scalar& value, TensorOptions options) MAKE("scalar_tensor", value)
Tensor randint(int64_t low, int64_t high, IntArrayRef size, TensorOptions options) {
  // Python's default is int64 even where other options are given, C++'s is not.
  return make("randint", options.dtype(options.dtype()), std::nullopt, low, high, size);
}
Tensor randint(int64_t high, IntArrayRef size, TensorOptions options) {
  return randint(0, high, size, options);
}

#define LIKE(name)                                                                             \
  Tensor name(const Tensor& like, TensorOptions options, std::optional<MemoryFormat> format) { \
    return make(#name, options, format, like);                                                 \
  }
LIKE(empty_like)
LIKE(zeros_like)
LIKE(ones_like)
LIKE(rand_like)
LIKE(randn_like)
#undef LIKE
Tensor full_like(
    const Tensor& like, const Scalar& value, TensorOptions options,
    std::optional<MemoryFormat> format) {
  return make("full_like", options, format, like, value);
}

Tensor cat(TensorList tensors, int64_t dim) METHOD(to_tensor, call(slim::aten("cat"), tensors, dim))
Tensor stack(TensorList tensors, int64_t dim)
    METHOD(to_tensor, call(slim::aten("stack"), tensors, dim))
Tensor where(const Tensor& condition, const Tensor& self, const Tensor& other)
    METHOD(to_tensor, call(slim::aten("where"), condition, self, other))
Tensor einsum(std::string_view equation, TensorList tensors)
    METHOD(to_tensor, call(slim::aten("einsum"), equation, tensors))
Tensor addmm(
    const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
    const Scalar& alpha) {
  const slim::WithGil gil;
  slim::Keywords keywords;
  keywords.set("beta", beta).set("alpha", alpha);
  return slim::to_tensor(slim::call_with(slim::aten("addmm"), keywords, self, mat1, mat2));
}
#define OUT(name)                                                             \
  Tensor& name##_out(Tensor& out, const Tensor& self, const Tensor& other) {  \
    const slim::WithGil gil;                                                  \
    slim::Keywords keywords;                                                  \
    keywords.set("out", out);                                                 \
    slim::call_with(slim::aten(#name), keywords, self, other);                \
    return out;                                                               \
  }
OUT(mm)
OUT(matmul)
#undef OUT

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  if (!tensor.defined()) {
    return out << "[ Tensor (undefined) ]";
  }
  const slim::WithGil gil;
  std::string text;
  slim::load_string(slim::Ref(PyObject_Str(tensor.slim_object())).get(), &text);
  return out << text;
}

}  // namespace at

namespace torch {

Tensor slim_tensor(const Scalar& value, TensorOptions options) {
  return at::make("tensor", options, std::nullopt, value);
}

}  // namespace torch

// What a destructor cannot throw is dropped.
#define QUIETLY(...)       \
  try {                    \
    __VA_ARGS__;           \
  } catch (const std::exception&) { \
  }

namespace at {

static slim::Ref set_grad_enabled() {
  return slim::attribute(slim::torch_attribute("_C").get(), "_set_grad_enabled");
}
NoGradGuard::NoGradGuard() {
  const slim::WithGil gil;
  before_ = slim::to_bool(slim::call(slim::torch_attribute("is_grad_enabled")));
  slim::call(set_grad_enabled(), false);
}
NoGradGuard::~NoGradGuard() {
  const slim::WithGil gil;
  QUIETLY(slim::call(set_grad_enabled(), before_))
}

}  // namespace at

namespace c10 {

InferenceMode::InferenceMode(bool enabled) {
  const slim::WithGil gil;
  slim::Ref context = slim::call(slim::torch_attribute("inference_mode"), enabled);
  slim::call(slim::attribute(context.get(), "__enter__"));
  context_ = context.release();
}
InferenceMode::~InferenceMode() {
  const slim::WithGil gil;
  const slim::Ref context(context_);
  QUIETLY(slim::call(
      slim::attribute(context.get(), "__exit__"), std::nullopt, std::nullopt, std::nullopt))
}

}  // namespace c10
