// Functions, modules and operators as Python sees them.

namespace slim {

static std::string repr(PyObject* object) {
  std::string text;
  PyObject* shown = PyObject_Repr(object);
  if (!shown || !load_string(shown, &text)) {
    text = std::string("<") + Py_TYPE(object)->tp_name + ">";
  }
  Py_XDECREF(shown);
  PyErr_Clear();
  return text;
}

std::string Function::signature() const {
  std::string text = name + "(";
  for (size_t i = 0; i < argument_types.size(); ++i) {
    text += i ? ", " : "";
    text += parameters.empty() ? "arg" + std::to_string(i) : parameters[i].name;
    text += ": " + argument_types[i];
    if (!parameters.empty() && parameters[i].default_value) {
      text += " = " + repr(parameters[i].default_value);
    }
  }
  return text + ") -> " + return_type;
}

// One pointer for each parameter of a function: given, named or default. False if they do not fit.
static bool arrange(
    const Function& function, PyObject* positional, PyObject* named,
    std::vector<PyObject*>* bound) {
  const auto given = static_cast<size_t>(PyTuple_GET_SIZE(positional));
  const size_t wanted = function.argument_types.size();
  Py_ssize_t used = 0;
  for (size_t i = 0; i < wanted; ++i) {
    PyObject* argument = nullptr;
    if (i < given) {
      argument = PyTuple_GET_ITEM(positional, static_cast<Py_ssize_t>(i));
    } else if (!function.parameters.empty()) {
      const Parameter& parameter = function.parameters[i];
      argument = named ? PyDict_GetItemString(named, parameter.name.c_str()) : nullptr;
      used += argument != nullptr;
      argument = argument ? argument : parameter.default_value;
    }
    if (!argument) {
      return false;
    }
    bound->push_back(argument);
  }
  return given <= wanted && used == (named ? PyDict_GET_SIZE(named) : 0);
}

static void set_mismatch(const Function& function, PyObject* positional, PyObject* named) {
  const std::string signature = function.signature();
  std::string text = function.name +
      "(): incompatible function arguments. The following argument types are supported:\n    1. " +
      signature.substr(signature.find('(')) + "\n\nInvoked with: ";
  const char* separator = "";
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(positional); ++i) {
    text += separator + repr(PyTuple_GET_ITEM(positional, i));
    separator = ", ";
  }
  if (named && PyDict_GET_SIZE(named) > 0) {
    text += *separator ? "; kwargs: " : "kwargs: ";
    separator = "";
    Py_ssize_t position = 0;
    PyObject *key, *value;
    while (PyDict_Next(named, &position, &key, &value)) {
      std::string keyword;
      load_string(key, &keyword);
      text += separator + keyword + "=" + repr(value);
      separator = ", ";
    }
  }
  PyErr_SetString(PyExc_TypeError, text.c_str());
}

// A Python callable of C code that gets a capsule with a C++ object. Both live as long as the process,
// as modules do, and because an operator cannot be unregistered.
using Entry = PyObject* (*)(PyObject* capsule, PyObject* positional, PyObject* named);
static Ref new_callable(
    void* object, Entry entry, const char* name, const char* doc = nullptr,
    PyObject* module_name = nullptr) {
  // The casts are CPython's own way to store a function that takes keyword arguments.
  auto* definition = new PyMethodDef{
      name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(entry)),
      METH_VARARGS | METH_KEYWORDS, doc};
  const Ref capsule(PyCapsule_New(object, nullptr, nullptr));
  return Ref(PyCFunction_NewEx(definition, capsule.get(), module_name));
}

static PyObject* call_function(PyObject* capsule, PyObject* positional, PyObject* named) {
  auto* function = static_cast<Function*>(PyCapsule_GetPointer(capsule, nullptr));
  try {
    std::vector<PyObject*> bound;
    if (arrange(*function, positional, named, &bound)) {
      PyObject* result = function->call(bound.data());
      if (result != Function::no_match()) {
        return result;
      }
    }
    set_mismatch(*function, positional, named);
  } catch (...) {
    set_python_error();
  }
  return nullptr;
}

void add_function(PyObject* module, std::unique_ptr<Function> function) {
  const std::string& name = function->name;
  if (!function->parameters.empty() &&
      function->parameters.size() != function->argument_types.size()) {
    throw std::runtime_error(
        name + "(): py::arg is given for " + std::to_string(function->parameters.size()) + " of " +
        std::to_string(function->argument_types.size()) + " arguments");
  }
  if (PyObject_HasAttrString(module, name.c_str())) {  // build.py looks for them in the text
    throw std::runtime_error(name + "() is bound more than once: overloads are not emulated");
  }
  function->doc = function->signature() + (function->doc.empty() ? "" : "\n\n" + function->doc);
  const Ref module_name(PyModule_GetNameObject(module));
  Function* kept = function.release();
  const Ref callable = new_callable(
      kept, call_function, kept->name.c_str(), kept->doc.c_str(), module_name.get());
  if (PyObject_SetAttrString(module, kept->name.c_str(), callable.get()) != 0) {
    throw PythonError();
  }
}

PyObject* make_module(const char* name, void (*init)(pybind11::module_&)) {
  if (const char* error = slim_torch_registration_error()) {
    PyErr_SetString(PyExc_RuntimeError, error);
    return nullptr;
  }
  // CPython keeps the definition for as long as the process lives.
  auto* definition = new PyModuleDef{PyModuleDef_HEAD_INIT, name, nullptr, -1,
                                     nullptr, nullptr, nullptr, nullptr, nullptr};
  try {
    Ref object(PyModule_Create(definition));
    pybind11::module_ module(object.get());
    init(module);
    return object.release();
  } catch (const PythonError& error) {
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_ImportError, error.what());
  }
  return nullptr;
}

// Operators, registered with torch.library.

static std::string& registration_error() {
  static auto* error = new std::string();
  return *error;
}

// An operator's kernel. The dispatcher leaves out arguments that equal their defaults at the end
// and names those after a *, so the schema says what is missing.
class Kernel {
 public:
  Kernel(std::unique_ptr<Function> function, std::string ns, std::string op)
      : function_(std::move(function)), namespace_(std::move(ns)), op_(std::move(op)) {}

  PyObject* run(PyObject* positional, PyObject* named) const {
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
    std::string shown;
    for (const Ref& argument : arguments) {
      pointers.push_back(argument.get());
      shown += std::string(shown.empty() ? "" : ", ") + Py_TYPE(argument.get())->tp_name;
    }
    PyObject* result = function_->call(pointers.data());
    TORCH_CHECK(
        result != Function::no_match(), "the kernel of ", namespace_, "::", op_,
        " does not take these arguments: ", shown);
    return result;
  }

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

static PyObject* call_kernel(PyObject* capsule, PyObject* positional, PyObject* named) {
  try {
    return static_cast<Kernel*>(PyCapsule_GetPointer(capsule, nullptr))->run(positional, named);
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

LibraryInit::LibraryInit(
    const char* kind, void (*block)(torch::Library&), const char* ns, const char* key) {
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

Library::Library(const char* kind, std::string ns, const char* key)
    : namespace_(std::move(ns)), key_(key ? key : "CompositeImplicitAutograd") {
  const slim::Ref module = slim::import("torch.library");
  const slim::Ref type = slim::attribute(module.get(), "Library");
  library_ = slim::call(type, namespace_, kind, key ? key : "").release();
}

Library& Library::def(const char* schema) {
  slim::call(slim::attribute(library_, "define"), schema);
  return *this;
}

Library& Library::implement(std::string name, std::unique_ptr<slim::Function> function) {
  if (name.compare(0, namespace_.size() + 2, namespace_ + "::") == 0) {
    name.erase(0, namespace_.size() + 2);
  }
  auto* kernel = new slim::Kernel(std::move(function), namespace_, name);
  const slim::Ref callable = slim::new_callable(kernel, slim::call_kernel, "kernel");
  slim::call(slim::attribute(library_, "impl"), name, callable, key_);
  return *this;
}

}  // namespace torch
