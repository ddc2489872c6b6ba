// Calls into Python: strong references, arguments from C++ values, keyword arguments, errors both
// ways, and what the casters of bindings.h do. All but WithGil needs the GIL.

namespace slim {

// Runs with the GIL, whether the thread has it or not.
class WithGil {
 public:
  WithGil() : state_(PyGILState_Ensure()) {}
  ~WithGil() { PyGILState_Release(state_); }
  WithGil(const WithGil&) = delete;

 private:
  PyGILState_STATE state_;
};

// Drops a reference, on any thread; the interpreter may have ended.
void release(PyObject* object) {
  if (Py_IsInitialized()) {
    const WithGil gil;
    Py_DECREF(object);
  }
}

// A Python exception, taken from the interpreter: a c10::Error in C++, the original in Python.
class PythonError : public c10::Error {
 public:
  PythonError() : PythonError(fetched()) {}
  void restore() const {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(value_.get())), value_.get());
  }

 private:
  explicit PythonError(PyObject* value) : c10::Error(text_of(value)), value_(value, release) {}
  static PyObject* fetched() {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback) {
      PyException_SetTraceback(value, traceback);
    }
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return value;
  }
  static std::string text_of(PyObject* value) {
    PyObject* text = PyObject_Str(value);
    const char* utf8 = text ? PyUnicode_AsUTF8(text) : nullptr;
    const std::string copy = utf8 ? utf8 : "(no message)";
    Py_XDECREF(text);
    PyErr_Clear();
    return copy;
  }
  std::shared_ptr<PyObject> value_;
};

// Sets the Python exception that stands for the C++ exception being handled.
void set_python_error() {
  try {
    throw;
  } catch (const PythonError& error) {
    error.restore();
  } catch (const c10::NotImplementedError& error) {
    PyErr_SetString(PyExc_NotImplementedError, error.what());
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "Caught an unknown exception!");
  }
}

// A strong reference. Null is a Python error, which is thrown.
class Ref {
 public:
  explicit Ref(PyObject* stolen) : object_(stolen) {
    if (!object_) {
      throw PythonError();
    }
  }
  Ref(Ref&& other) noexcept : object_(other.object_) { other.object_ = nullptr; }
  ~Ref() { Py_XDECREF(object_); }
  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }

 private:
  PyObject* object_;
};

// The Python value of an argument.
template <typename T>
Ref to_python(const T& value) {
  return Ref(Caster<T>::cast(value));
}
Ref to_python(const char* text) { return Ref(cast_string(text)); }
Ref to_python(PyObject* borrowed) {
  Py_INCREF(borrowed);
  return Ref(borrowed);
}
Ref to_python(const Ref& value) { return to_python(value.get()); }

class Keywords {
 public:
  Keywords() : dict_(PyDict_New()) {}
  // Left out when it has no value.
  template <typename T>
  Keywords& set_if(const char* name, const std::optional<T>& value) {
    if (value && PyDict_SetItemString(dict_.get(), name, to_python(*value).get()) != 0) {
      throw PythonError();
    }
    return *this;
  }
  PyObject* get() const { return dict_.get(); }

 private:
  Ref dict_;
};

Ref attribute(PyObject* owner, const char* name) {
  return Ref(PyObject_GetAttrString(owner, name));
}

Ref import(const char* name) { return Ref(PyImport_ImportModule(name)); }

template <typename... Args>
Ref call_with(const Ref& callable, const Keywords& keywords, const Args&... arguments) {
  Ref tuple(PyTuple_New(sizeof...(Args)));
  [[maybe_unused]] Py_ssize_t i = 0;
  (PyTuple_SET_ITEM(tuple.get(), i++, to_python(arguments).release()), ...);
  return Ref(PyObject_Call(callable.get(), tuple.get(), keywords.get()));
}

template <typename... Args>
Ref call(const Ref& callable, const Args&... arguments) {
  return call_with(callable, Keywords(), arguments...);
}

// torch.<name>, looked up at each call, as it may be replaced for a while.
Ref torch_attribute(const char* name) { return attribute(import("torch").get(), name); }

int64_t to_int(const Ref& object) {
  const long long value = PyLong_AsLongLong(object.get());
  if (value == -1 && PyErr_Occurred()) {
    throw PythonError();
  }
  return value;
}

// Calls convert(integer) with an int for the object, as pybind11 does: no float, and anything that
// __index__ or __int__ makes one.
template <typename Convert>
bool with_integer(PyObject* source, Convert convert) {
  if (PyFloat_Check(source)) {
    return false;
  }
  PyObject* integer = PyIndex_Check(source) ? PyNumber_Index(source) : nullptr;
  if (!integer && PyNumber_Check(source)) {
    PyErr_Clear();
    integer = PyNumber_Long(source);
  }
  const bool loaded = integer && convert(integer);
  Py_XDECREF(integer);
  PyErr_Clear();
  return loaded;
}

bool load_signed(PyObject* source, int64_t lowest, int64_t highest, int64_t* value) {
  *value = 0;
  return with_integer(source, [&](PyObject* integer) {
    *value = PyLong_AsLongLong(integer);
    return !(*value == -1 && PyErr_Occurred()) && *value >= lowest && *value <= highest;
  });
}

bool load_unsigned(PyObject* source, uint64_t highest, uint64_t* value) {
  *value = 0;
  return with_integer(source, [&](PyObject* integer) {
    *value = PyLong_AsUnsignedLongLong(integer);
    return !(*value == ~0ull && PyErr_Occurred()) && *value <= highest;
  });
}

bool load_double(PyObject* source, double* value) {
  PyObject* number = PyNumber_Check(source) ? PyNumber_Float(source) : nullptr;
  *value = number ? PyFloat_AsDouble(number) : 0;
  Py_XDECREF(number);
  PyErr_Clear();
  return number != nullptr;
}

bool load_bool(PyObject* source, bool* value) {
  const PyNumberMethods* number = Py_TYPE(source)->tp_as_number;
  const int truth = source == Py_None           ? 0
                    : number && number->nb_bool ? number->nb_bool(source)
                                                : -1;
  PyErr_Clear();
  *value = truth == 1;
  return truth >= 0;
}

bool load_string(PyObject* source, std::string* value) {
  Py_ssize_t length = 0;
  const char* text = PyUnicode_Check(source)  ? PyUnicode_AsUTF8AndSize(source, &length)
                     : PyBytes_Check(source) ? PyBytes_AsString(source)
                                             : nullptr;
  PyErr_Clear();
  if (text) {
    value->assign(text, PyBytes_Check(source) ? PyBytes_GET_SIZE(source) : length);
  }
  return text != nullptr;
}

bool is_a(PyObject* object, const char* type) {
  return PyObject_IsInstance(object, torch_attribute(type).get()) == 1;
}

bool load_tensor(PyObject* source, at::Tensor* value) {
  const bool loaded = is_a(source, "Tensor");
  if (loaded) {
    *value = at::Tensor::slim_wrap(source);
  }
  return loaded;
}

PyObject* cast_signed(int64_t value) { return PyLong_FromLongLong(value); }
PyObject* cast_unsigned(uint64_t value) { return PyLong_FromUnsignedLongLong(value); }
PyObject* cast_double(double value) { return PyFloat_FromDouble(value); }
PyObject* cast_bool(bool value) { return PyBool_FromLong(value); }
PyObject* cast_string(const std::string& value) {
  return PyUnicode_DecodeUTF8(value.data(), static_cast<Py_ssize_t>(value.size()), nullptr);
}
PyObject* cast_none() {
  Py_INCREF(Py_None);
  return Py_None;
}
PyObject* cast_tensor(const at::Tensor& value) {
  PyObject* object = value.defined() ? value.slim_object() : Py_None;
  Py_INCREF(object);
  return object;
}
PyObject* cast_scalar(const at::Scalar& value) {
  return value.isFloatingPoint() ? cast_double(value.to<double>())
         : value.isBoolean()     ? cast_bool(value.to<bool>())
                                 : cast_signed(value.to<int64_t>());
}

Items::Items(PyObject* sequence) : fast_(nullptr), size_(-1) {
  const bool is_text = PyUnicode_Check(sequence) || PyBytes_Check(sequence);
  if ((PySequence_Check(sequence) && !is_text) || PyAnySet_Check(sequence)) {
    fast_ = PySequence_Fast(sequence, "");
    size_ = fast_ ? PySequence_Fast_GET_SIZE(fast_) : -1;
    PyErr_Clear();
  }
}
Items::~Items() { Py_XDECREF(fast_); }
PyObject* Items::operator[](Py_ssize_t i) const { return PySequence_Fast_GET_ITEM(fast_, i); }

PyObject* new_list(Py_ssize_t size) { return Ref(PyList_New(size)).release(); }
PyObject* new_tuple(Py_ssize_t size) { return Ref(PyTuple_New(size)).release(); }
void set_item(PyObject* owner, Py_ssize_t i, PyObject* stolen) {
  if (PyList_Check(owner)) {
    PyList_SET_ITEM(owner, i, stolen);
  } else {
    PyTuple_SET_ITEM(owner, i, stolen);
  }
}

}  // namespace slim
