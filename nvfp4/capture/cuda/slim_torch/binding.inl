// Functions and modules as Python sees them.

namespace slim {

Function::~Function() {
  for (const Parameter& parameter : parameters) {
    Py_XDECREF(parameter.default_value);
  }
}

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

// All functions of one name in a module, and what CPython keeps a pointer to.
struct Overloads {
  std::vector<std::unique_ptr<Function>> functions;
  std::string name, doc;
  PyMethodDef definition;
};

// One pointer for each parameter of a function: given, named or default. False if they do not fit.
static bool arrange(
    const Function& function, PyObject* positional, PyObject* named,
    std::vector<PyObject*>* bound) {
  const auto given = static_cast<size_t>(PyTuple_GET_SIZE(positional));
  const size_t wanted = function.argument_types.size();
  if (given > wanted) {
    return false;
  }
  bound->assign(wanted, nullptr);
  Py_ssize_t used = 0;
  for (size_t i = 0; i < wanted; ++i) {
    PyObject*& argument = (*bound)[i];
    const Parameter* parameter = function.parameters.empty() ? nullptr : &function.parameters[i];
    if (i < given) {
      argument = PyTuple_GET_ITEM(positional, static_cast<Py_ssize_t>(i));
    } else if (parameter) {
      argument = named ? PyDict_GetItemString(named, parameter->name.c_str()) : nullptr;
      used += argument != nullptr;
      argument = argument ? argument : parameter->default_value;
    }
    if (!argument || (parameter && !parameter->none && argument == Py_None)) {
      return false;
    }
  }
  return used == (named ? PyDict_GET_SIZE(named) : 0);
}

static void set_mismatch(const Overloads& overloads, PyObject* positional, PyObject* named) {
  std::string text = overloads.name +
      "(): incompatible function arguments. The following argument types are supported:\n";
  int number = 0;
  for (const auto& function : overloads.functions) {
    const std::string signature = function->signature();
    text += "    " + std::to_string(++number) + ". " +
        signature.substr(signature.find('(')) + "\n";
  }
  text += "\nInvoked with: ";
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

constexpr const char* capsule_name = "slim_torch.overloads";

// First without conversions, if there is a choice, then with them: pybind11's rule.
static PyObject* call_overloads(PyObject* capsule, PyObject* positional, PyObject* named) {
  auto* overloads = static_cast<Overloads*>(PyCapsule_GetPointer(capsule, capsule_name));
  if (!overloads) {
    return nullptr;
  }
  try {
    std::vector<PyObject*> bound;
    for (int convert = overloads->functions.size() > 1 ? 0 : 1; convert < 2; ++convert) {
      for (const auto& function : overloads->functions) {
        if (arrange(*function, positional, named, &bound)) {
          PyObject* result = function->call(bound.data(), convert != 0);
          if (result != Function::no_match()) {
            return result;
          }
        }
      }
    }
    set_mismatch(*overloads, positional, named);
  } catch (...) {
    set_python_error();
  }
  return nullptr;
}

static Overloads* overloads_of(PyObject* callable) {
  PyObject* self = callable && PyCFunction_Check(callable) ? PyCFunction_GET_SELF(callable) : nullptr;
  return self && PyCapsule_IsValid(self, capsule_name)
      ? static_cast<Overloads*>(PyCapsule_GetPointer(self, capsule_name))
      : nullptr;
}

static void append(Overloads* overloads, std::unique_ptr<Function> function) {
  overloads->doc += (overloads->doc.empty() ? "" : "\n\n") + function->signature();
  if (!function->doc.empty()) {
    overloads->doc += "\n\n" + function->doc;
  }
  overloads->definition.ml_doc = overloads->doc.c_str();
  overloads->functions.push_back(std::move(function));
}

static PyObject* new_callable(std::unique_ptr<Function> function, PyObject* module_name) {
  auto* overloads = new Overloads();
  overloads->name = function->name;
  // The cast is CPython's own way to store a function that takes keyword arguments.
  overloads->definition = {
      overloads->name.c_str(),
      reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call_overloads)),
      METH_VARARGS | METH_KEYWORDS, nullptr};
  append(overloads, std::move(function));
  const Ref capsule(PyCapsule_New(overloads, capsule_name, [](PyObject* object) {
    delete static_cast<Overloads*>(PyCapsule_GetPointer(object, capsule_name));
  }));
  return Ref(PyCFunction_NewEx(&overloads->definition, capsule.get(), module_name)).release();
}

PyObject* new_callable(std::unique_ptr<Function> function) {
  return new_callable(std::move(function), nullptr);
}

void add_function(PyObject* module, std::unique_ptr<Function> function) {
  if (!function->parameters.empty() &&
      function->parameters.size() != function->argument_types.size()) {
    throw std::runtime_error(
        function->name + "(): py::arg is given for " +
        std::to_string(function->parameters.size()) + " of " +
        std::to_string(function->argument_types.size()) + " arguments");
  }
  const std::string name = function->name;
  PyObject* existing = PyObject_GetAttrString(module, name.c_str());
  PyErr_Clear();
  if (Overloads* overloads = overloads_of(existing)) {
    append(overloads, std::move(function));
  } else {
    const Ref module_name(PyModule_GetNameObject(module));
    const Ref callable(new_callable(std::move(function), module_name.get()));
    if (PyObject_SetAttrString(module, name.c_str(), callable.get()) != 0) {
      throw_python_error();
    }
  }
  Py_XDECREF(existing);
}

PyObject* import_module(const char* name) { return PyImport_ImportModule(name); }

PyObject* new_submodule(PyObject* module, const char* name, const char* doc) {
  const char* parent = PyModule_GetName(module);
  PyObject* added = parent ? PyImport_AddModule((std::string(parent) + "." + name).c_str()) : nullptr;
  if (!added || (doc && PyModule_SetDocString(added, doc) != 0) ||
      PyObject_SetAttrString(module, name, added) != 0) {
    return nullptr;
  }
  Py_INCREF(added);
  return added;
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
    auto module = pybind11::reinterpret_borrow<pybind11::module_>(object.get());
    init(module);
    return object.release();
  } catch (const PythonError& error) {
    error.restore();
  } catch (const pybind11::error_already_set& error) {
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_ImportError, error.what());
  }
  return nullptr;
}

}  // namespace slim
