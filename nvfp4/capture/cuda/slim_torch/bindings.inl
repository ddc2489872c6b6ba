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
    const std::string named = argument_names.empty() ? "arg" + std::to_string(i) : argument_names[i];
    text += (i ? ", " : "") + named + ": " + argument_types[i];
  }
  return text + ") -> " + return_type;
}

static void set_mismatch(const Function& function, PyObject* positional, PyObject* named) {
  const std::string signature = function.signature();
  std::string text = function.name +
      "(): incompatible function arguments. The following argument types are supported:\n    1. " +
      signature.substr(signature.find('(')) + "\n\nInvoked with: " + repr(positional);
  if (named && PyDict_GET_SIZE(named) > 0) {
    text += "; kwargs: " + repr(named);
  }
  PyErr_SetString(PyExc_TypeError, text.c_str());
}

static PyObject* call_function(PyObject* capsule, PyObject* positional, PyObject* named) {
  auto* function = static_cast<Function*>(PyCapsule_GetPointer(capsule, nullptr));
  PyObject* result = nullptr;
  try {
    const Py_ssize_t given = PyTuple_GET_SIZE(positional);
    PyObject** const first = PySequence_Fast_ITEMS(positional);
    std::vector<PyObject*> arguments(first, first + given);
    const auto& names = function->argument_names;
    for (size_t i = arguments.size(); named && i < names.size(); ++i) {
      if (PyObject* value = PyDict_GetItemString(named, names[i].c_str())) {
        arguments.push_back(value);
      }
    }
    const size_t wanted = given + (named ? PyDict_GET_SIZE(named) : 0);
    if (arguments.size() == wanted && wanted == function->argument_types.size()) {
      result = function->call(arguments.data());
    }
    if (!result && !PyErr_Occurred()) {
      set_mismatch(*function, positional, named);
    }
  } catch (...) {
    set_python_error();
  }
  return result;
}

// A Python callable. The function lives as long as the process, as modules do, and because an
// operator cannot be unregistered.
static Ref new_callable(std::unique_ptr<Function> function, PyObject* module_name = nullptr) {
  Function* kept = function.release();
  // The casts are CPython's own way to store a function that takes keyword arguments.
  auto* definition = new PyMethodDef{
      kept->name.c_str(), reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call_function)),
      METH_VARARGS | METH_KEYWORDS, kept->doc.c_str()};
  const Ref capsule(PyCapsule_New(kept, nullptr, nullptr));
  return Ref(PyCFunction_NewEx(definition, capsule.get(), module_name));
}

void add_function(PyObject* module, std::unique_ptr<Function> function) {
  const std::string name = function->name;
  // headers_of_torch.py looks for them in the text.
  if (PyObject_HasAttrString(module, name.c_str())) {
    throw std::runtime_error(name + "() is bound more than once: overloads are not emulated");
  }
  function->doc = function->signature() + (function->doc.empty() ? "" : "\n\n" + function->doc);
  const Ref module_name(PyModule_GetNameObject(module));
  const Ref callable = new_callable(std::move(function), module_name.get());
  if (PyObject_SetAttrString(module, name.c_str(), callable.get()) != 0) {
    throw PythonError();
  }
}

PyObject* make_module(const char* name, void (*init)(pybind11::module_&)) {
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

LibraryInit::LibraryInit(void (*block)(torch::Library&), const char* ns, const char* kind,
                         const char* key) {
  const WithGil gil;
  try {
    torch::Library library(ns, kind, key);
    block(library);
  } catch (const std::exception& error) {
    const Ref runtime = attribute(import("nvfp4.capture.cuda.runtime").get(), "RUNTIME");
    const std::string text = std::string("TORCH_LIBRARY of ") + ns + ": " + error.what();
    call(attribute(runtime.get(), "keep"), call(to_python(PyExc_RuntimeError), text));
  }
}

}  // namespace slim

namespace torch {

Library::Library(std::string ns, const char* kind, const char* dispatch_key)
    : namespace_(std::move(ns)) {
  const slim::Ref module = slim::import("torch.library");
  const slim::Ref library = slim::attribute(module.get(), "Library");
  library_ = slim::call(library, namespace_, kind, dispatch_key).release();
}

Library& Library::def(const char* schema) {
  slim::call(slim::attribute(library_, "define"), schema);
  return *this;
}

Library& Library::implement(std::string name, std::unique_ptr<slim::Function> function) {
  if (name.compare(0, namespace_.size() + 2, namespace_ + "::") == 0) {
    name.erase(0, namespace_.size() + 2);
  }
  function->name = namespace_ + "::" + name;
  const slim::Ref callable = slim::new_callable(std::move(function));
  slim::call(slim::attribute(library_, "impl"), name, callable);
  return *this;
}

}  // namespace torch
