// Calls into Python: strong references, arguments from C++ values, keyword arguments.
// Everything here needs the GIL.
#pragma once

#include <slim_torch/convert.h>
#include <slim_torch/tensor.h>
#include <slim_torch/python.h>

namespace slim {

[[noreturn]] inline void throw_python_error() { throw PythonError(FetchedError::fetch()); }

// A strong reference. Null is a Python error, which is thrown.
class Ref {
 public:
  explicit Ref(PyObject* stolen) : object_(stolen) {
    if (!object_) {
      throw_python_error();
    }
  }
  Ref(Ref&& other) noexcept : object_(other.object_) { other.object_ = nullptr; }
  Ref& operator=(Ref&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { Py_XDECREF(object_); }
  PyObject* get() const { return object_; }
  PyObject* release() {
    PyObject* released = object_;
    object_ = nullptr;
    return released;
  }

 private:
  PyObject* object_;
};

// The Python value of an argument.
template <typename T>
Ref to_python(const T& value) {
  return Ref(Caster<T>::cast(value));
}
inline Ref to_python(const char* text) { return Ref(cast_string(text)); }
inline Ref to_python(const Ref& value) {
  Py_INCREF(value.get());
  return Ref(value.get());
}
inline Ref to_python(PyObject* borrowed) {
  Py_INCREF(borrowed);
  return Ref(borrowed);
}

class Keywords {
 public:
  Keywords() : dict_(PyDict_New()) {}
  template <typename T>
  Keywords& set(const char* name, const T& value) {
    const Ref object = to_python(value);
    if (PyDict_SetItemString(dict_.get(), name, object.get()) != 0) {
      throw_python_error();
    }
    return *this;
  }
  // Left out when it has no value.
  template <typename T>
  Keywords& set_if(const char* name, const std::optional<T>& value) {
    return value ? set(name, *value) : *this;
  }
  PyObject* get() const { return dict_.get(); }

 private:
  Ref dict_;
};

inline Ref attribute(PyObject* owner, const char* name) {
  return Ref(PyObject_GetAttrString(owner, name));
}

inline Ref import(const char* name) { return Ref(PyImport_ImportModule(name)); }

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
inline Ref torch_attribute(const char* name) { return attribute(import("torch").get(), name); }

// torch.cuda.<name>.
inline Ref cuda_attribute(const char* name) {
  return attribute(torch_attribute("cuda").get(), name);
}

// torch.ops.aten.<name>: what at:: calls, with the arguments of its C++ signature.
inline Ref aten(const char* name) {
  return attribute(attribute(torch_attribute("ops").get(), "aten").get(), name);
}

inline at::Tensor to_tensor(const Ref& object) { return at::Tensor::slim_wrap(object.get()); }

inline int64_t to_int(const Ref& object) {
  const long long value = PyLong_AsLongLong(object.get());
  if (value == -1 && PyErr_Occurred()) {
    throw_python_error();
  }
  return value;
}

inline bool to_bool(const Ref& object) {
  const int value = PyObject_IsTrue(object.get());
  if (value < 0) {
    throw_python_error();
  }
  return value != 0;
}

}  // namespace slim
