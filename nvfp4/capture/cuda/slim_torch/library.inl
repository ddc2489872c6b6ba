// Operators registered with torch.library.

namespace c10 {
const char* toString(DispatchKey key) {
  constexpr const char* names[] = {
      "Undefined", "CPU", "CUDA", "Meta", "Autograd", "AutogradCUDA", "CompositeExplicitAutograd",
      "CompositeImplicitAutograd"};
  return names[static_cast<int>(key)];
}
}  // namespace c10

namespace slim {

static std::string& registration_error() {
  static auto* error = new std::string();
  return *error;
}

// While it lives, arguments are loaded for an operator.
struct OperatorScope {
  bool before = std::exchange(in_operator, true);
  ~OperatorScope() { in_operator = before; }
};

// An operator's kernel. The dispatcher leaves out arguments that equal their defaults at the end
// and names those after a *, so the schema says what is missing.
class Kernel final : public Function {
 public:
  Kernel(std::unique_ptr<Function> function, std::string ns, std::string op)
      : function_(std::move(function)), namespace_(std::move(ns)), op_(std::move(op)) {
    name = op_;
  }

  PyObject* run(PyObject* positional, PyObject* named) {
    const size_t wanted = function_->argument_types.size();
    std::vector<Ref> arguments;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(positional); ++i) {
      arguments.push_back(to_python(PyTuple_GET_ITEM(positional, i)));
    }
    if (arguments.size() < wanted) {
      fill_in(named, &arguments);
    }
    TORCH_CHECK(
        arguments.size() == wanted, namespace_, "::", op_, " was called with ", arguments.size(),
        " arguments, but its kernel takes ", wanted);
    std::vector<PyObject*> pointers;
    for (const Ref& argument : arguments) {
      pointers.push_back(argument.get());
    }
    const OperatorScope scope;
    PyObject* result = function_->call(pointers.data(), true);
    if (result == no_match()) {
      std::string shown;
      for (const Ref& argument : arguments) {
        shown += std::string(shown.empty() ? "" : ", ") + Py_TYPE(argument.get())->tp_name;
      }
      TORCH_CHECK(
          false, "the kernel of ", namespace_, "::", op_, " does not take these arguments: ",
          shown);
    }
    return result;
  }

  PyObject* call(PyObject* const*, bool) override { return no_match(); }

 private:
  void fill_in(PyObject* named, std::vector<Ref>* arguments) const {
    const size_t dot = op_.find('.');
    const Ref ops = torch_attribute("ops");
    const Ref packet = attribute(
        attribute(ops.get(), namespace_.c_str()).get(), op_.substr(0, dot).c_str());
    const Ref overload = attribute(
        packet.get(), dot == std::string::npos ? "default" : op_.substr(dot + 1).c_str());
    const Ref schema = attribute(attribute(overload.get(), "_schema").get(), "arguments");
    const Items parameters(schema.get());
    for (auto i = static_cast<Py_ssize_t>(arguments->size()); i < parameters.size(); ++i) {
      const Ref key = attribute(parameters[i], "name");
      PyObject* given = named ? PyDict_GetItem(named, key.get()) : nullptr;
      arguments->push_back(given ? to_python(given) : attribute(parameters[i], "default_value"));
    }
  }

  std::unique_ptr<Function> function_;
  std::string namespace_, op_;
};

constexpr const char* kernel_name = "slim_torch.kernel";

static PyObject* call_kernel(PyObject* capsule, PyObject* positional, PyObject* named) {
  try {
    return static_cast<Kernel*>(PyCapsule_GetPointer(capsule, kernel_name))->run(positional, named);
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

// Kernels live as long as the process: an operator cannot be unregistered.
static Ref kernel_callable(std::unique_ptr<Function> function, std::string ns, std::string op) {
  static PyMethodDef definition = {
      "kernel", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call_kernel)),
      METH_VARARGS | METH_KEYWORDS, nullptr};
  auto* kernel = new Kernel(std::move(function), std::move(ns), std::move(op));
  const Ref capsule(PyCapsule_New(kernel, kernel_name, nullptr));
  return Ref(PyCFunction_NewEx(&definition, capsule.get(), nullptr));
}

static const char* key_name(c10::DispatchKey key) {
  return key == c10::DispatchKey::Undefined ? "" : c10::toString(key);
}

LibraryInit::LibraryInit(
    torch::Library::Kind kind, void (*block)(torch::Library&), const char* ns,
    c10::DispatchKey key) {
  const WithGil gil;
  try {
    torch::Library library(kind, ns, key);
    block(library);
  } catch (const std::exception& error) {
    if (registration_error().empty()) {
      registration_error() = std::string("TORCH_LIBRARY of ") + ns + ": " + error.what();
    }
  }
}

}  // namespace slim

// Why a TORCH_LIBRARY block failed while this object was loaded; null if none did.
extern "C" __attribute__((visibility("default"))) const char* slim_torch_registration_error() {
  const std::string& error = slim::registration_error();
  return error.empty() ? nullptr : error.c_str();
}

namespace torch {

Library::Library(Kind kind, std::string ns, c10::DispatchKey key)
    : library_(nullptr), namespace_(std::move(ns)), key_(key) {
  constexpr const char* kinds[] = {"DEF", "IMPL", "FRAGMENT"};
  const slim::Ref module = slim::import("torch.library");
  library_ = slim::call(
                 slim::attribute(module.get(), "Library"), namespace_, kinds[kind],
                 slim::key_name(key))
                 .release();
}

Library& Library::def(const char* schema) & {
  slim::call(slim::attribute(library_, "define"), schema);
  return *this;
}

Library& Library::define(const char* name_or_schema, CppFunction function) {
  std::string schema = name_or_schema;
  const std::string name = schema.substr(0, schema.find('('));
  if (schema.size() == name.size()) {
    schema += function.schema;
  }
  def(schema.c_str());
  if (function.key == c10::DispatchKey::Undefined && key_ == c10::DispatchKey::Undefined) {
    function.key = c10::DispatchKey::CompositeImplicitAutograd;
  }
  return implement(name.c_str(), std::move(function));
}

Library& Library::implement(const char* name, CppFunction function) {
  std::string op = name;
  if (op.compare(0, namespace_.size() + 2, namespace_ + "::") == 0) {
    op.erase(0, namespace_.size() + 2);
  }
  c10::DispatchKey key = function.key == c10::DispatchKey::Undefined ? key_ : function.key;
  if (key == c10::DispatchKey::Undefined) {
    key = c10::DispatchKey::CompositeImplicitAutograd;
  }
  const slim::Ref callable = slim::kernel_callable(std::move(function.function), namespace_, op);
  slim::call(slim::attribute(library_, "impl"), op, callable, c10::toString(key));
  return *this;
}

}  // namespace torch
