// The functions of at:: and torch:: that make tensors.

namespace at {

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
Tensor full(IntArrayRef size, const Scalar& value, TensorOptions options) MAKE("full", size, value)
Tensor empty_strided(IntArrayRef size, IntArrayRef stride, TensorOptions options)
    MAKE("empty_strided", size, stride)

#define LIKE(name)                                                                             \
  Tensor name(const Tensor& like, TensorOptions options, std::optional<MemoryFormat> format) { \
    return make(#name, options, format, like);                                                 \
  }
LIKE(empty_like)
LIKE(zeros_like)
LIKE(ones_like)
#undef LIKE
Tensor full_like(
    const Tensor& like, const Scalar& value, TensorOptions options,
    std::optional<MemoryFormat> format) {
  return make("full_like", options, format, like, value);
}

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
