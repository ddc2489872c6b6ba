// py::object and the few classes of Python values that bindings use.
#pragma once

#include "convert.h"
#include "python.h"

namespace pybind11 {

class object;
class attribute;

// A borrowed pointer.
class handle {
 public:
  handle() = default;
  handle(PyObject* object) : object_(object) {}
  PyObject* ptr() const { return object_; }
  bool is_none() const { return object_ == Py_None; }
  bool is(handle other) const { return object_ == other.object_; }
  explicit operator bool() const { return object_ != nullptr; }
  handle inc_ref() const {
    Py_XINCREF(object_);
    return *this;
  }
  handle dec_ref() const {
    Py_XDECREF(object_);
    return *this;
  }
  attribute attr(const char* name) const;
  attribute doc() const;
  template <typename... Args>
  object operator()(Args&&... args) const;
  template <typename T>
  T cast() const;

 protected:
  PyObject* object_ = nullptr;
};

class object : public handle {
 public:
  object() = default;
  object(const object& other) : handle(other) { inc_ref(); }
  object(object&& other) noexcept : handle(other) { other.object_ = nullptr; }
  object& operator=(const object& other) {
    object copy(other);
    std::swap(object_, copy.object_);
    return *this;
  }
  object& operator=(object&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~object() { dec_ref(); }
  handle release() {
    handle released = *this;
    object_ = nullptr;
    return released;
  }

 private:
  template <typename T>
  friend T reinterpret_steal(handle);
  template <typename T>
  friend T reinterpret_borrow(handle);
};

template <typename T>
T reinterpret_steal(handle stolen) {
  T result;
  Py_XDECREF(result.object_);
  result.object_ = stolen.ptr();
  return result;
}
template <typename T>
T reinterpret_borrow(handle borrowed) {
  return reinterpret_steal<T>(borrowed.inc_ref());
}

// Throws error_already_set for null, the sign of a Python error.
inline object slim_checked(PyObject* result) {
  if (!result) {
    throw error_already_set();
  }
  return reinterpret_steal<object>(result);
}

template <typename T>
object cast(const T& value);
template <typename T>
T cast(handle source);

// x.attr("name"): reads when it is used as an object, writes when it is assigned to.
class attribute {
 public:
  attribute(handle owner, const char* name)
      : owner_(reinterpret_borrow<object>(owner)), name_(name) {}
  object get() const {
    return slim_checked(PyObject_GetAttrString(owner_.ptr(), name_.c_str()));
  }
  operator object() const { return get(); }
  attribute attr(const char* name) const { return attribute(get(), name); }
  template <typename... Args>
  object operator()(Args&&... args) const {
    return get()(std::forward<Args>(args)...);
  }
  template <typename T>
  T cast() const {
    return get().template cast<T>();
  }
  bool is_none() const { return get().is_none(); }
  template <typename T>
  void operator=(const T& value) && {
    if (PyObject_SetAttrString(owner_.ptr(), name_.c_str(), pybind11::cast(value).ptr()) != 0) {
      throw error_already_set();
    }
  }

 private:
  object owner_;
  std::string name_;
};

#define SLIM_OBJECT(T, check, fresh)                   \
  class T : public object {                            \
   public:                                             \
    T() { object_ = fresh; }                           \
    static bool check_(handle h) { return check(h.ptr()); }

SLIM_OBJECT(dict, PyDict_Check, PyDict_New())
  size_t size() const { return static_cast<size_t>(PyDict_Size(ptr())); }
  bool contains(const char* key) const {
    return PyDict_Contains(ptr(), pybind11::cast(std::string(key)).ptr()) == 1;
  }
};
SLIM_OBJECT(list, PyList_Check, PyList_New(0))
  size_t size() const { return static_cast<size_t>(PyList_Size(ptr())); }
  object operator[](size_t i) const {
    return slim_checked(PySequence_GetItem(ptr(), static_cast<Py_ssize_t>(i)));
  }
  template <typename V>
  void append(const V& value) {
    if (PyList_Append(ptr(), pybind11::cast(value).ptr()) != 0) {
      throw error_already_set();
    }
  }
};
SLIM_OBJECT(tuple, PyTuple_Check, PyTuple_New(0))
  size_t size() const { return static_cast<size_t>(PyTuple_Size(ptr())); }
  object operator[](size_t i) const {
    return slim_checked(PySequence_GetItem(ptr(), static_cast<Py_ssize_t>(i)));
  }
};
SLIM_OBJECT(str, PyUnicode_Check, PyUnicode_FromString(""))
  str(const std::string& text) { object_ = slim_checked(slim::cast_string(text)).release().ptr(); }
  str(const char* text) : str(std::string(text)) {}
  explicit str(handle value) { object_ = slim_checked(PyObject_Str(value.ptr())).release().ptr(); }
  operator std::string() const { return handle::cast<std::string>(); }
};
SLIM_OBJECT(int_, PyLong_Check, PyLong_FromLong(0))
  template <typename V, std::enable_if_t<std::is_integral_v<V>, int> = 0>
  int_(V value) {
    object_ = slim_checked(slim::Caster<V>::cast(value)).release().ptr();
  }
  template <typename V, std::enable_if_t<std::is_integral_v<V>, int> = 0>
  operator V() const {
    return handle::cast<V>();
  }
};
SLIM_OBJECT(float_, PyFloat_Check, PyFloat_FromDouble(0))
  float_(double value) { object_ = slim_checked(slim::cast_double(value)).release().ptr(); }
  operator double() const { return handle::cast<double>(); }
};
SLIM_OBJECT(bool_, PyBool_Check, slim::cast_bool(false))
  bool_(bool value) { object_ = slim::cast_bool(value); }
  operator bool() const { return ptr() == Py_True; }
};
SLIM_OBJECT(none, slim_is_none, slim::cast_none())
 private:
  static bool slim_is_none(PyObject* object) { return object == Py_None; }
};
#undef SLIM_OBJECT

template <typename T>
bool isinstance(handle value) {
  if constexpr (std::is_same_v<T, object>) {
    return value.ptr() != nullptr;
  } else if constexpr (std::is_base_of_v<object, T>) {
    return T::check_(value);
  } else {
    return slim::Caster<T>().load(value.ptr(), false);
  }
}

}  // namespace pybind11

namespace slim {

template <typename T>
struct Caster<T, std::enable_if_t<std::is_base_of_v<pybind11::handle, T>>> : Holder<T> {
  bool load(PyObject* source, bool) {
    if constexpr (std::is_same_v<T, pybind11::handle>) {
      this->held = source;
    } else if (pybind11::isinstance<T>(source)) {
      this->held = pybind11::reinterpret_borrow<T>(source);
    } else {
      return false;
    }
    return true;
  }
  static PyObject* cast(const T& value) { return value.inc_ref().ptr(); }
  static std::string name() {
    using namespace pybind11;
    return std::is_same_v<T, dict> ? "dict"
        : std::is_same_v<T, list>  ? "list"
        : std::is_same_v<T, tuple> ? "tuple"
        : std::is_same_v<T, str>   ? "str"
        : std::is_same_v<T, int_>  ? "int"
        : std::is_same_v<T, float_> ? "float"
        : std::is_same_v<T, bool_> ? "bool"
        : std::is_same_v<T, none>  ? "None"
                                   : "object";
  }
};

}  // namespace slim

namespace pybind11 {

template <typename T>
object cast(const T& value) {
  if constexpr (std::is_array_v<T>) {
    return slim_checked(slim::Caster<const char*>::cast(value));
  } else {
    return slim_checked(slim::Caster<T>::cast(value));
  }
}

template <typename T>
T cast(handle source) {
  slim::Caster<T> caster;
  if (!caster.load(source.ptr(), true)) {
    throw cast_error("Unable to cast Python instance to C++ type " + slim::Caster<T>::name());
  }
  return caster.value();
}

inline attribute handle::attr(const char* name) const { return attribute(*this, name); }
inline attribute handle::doc() const { return attr("__doc__"); }

template <typename... Args>
object handle::operator()(Args&&... args) const {
  object arguments = slim_checked(PyTuple_New(sizeof...(Args)));
  Py_ssize_t i = 0;
  (PyTuple_SetItem(arguments.ptr(), i++, pybind11::cast(args).release().ptr()), ...);
  return slim_checked(PyObject_Call(object_, arguments.ptr(), nullptr));
}

template <typename T>
T handle::cast() const {
  return pybind11::cast<T>(*this);
}

inline bool hasattr(handle owner, const char* name) {
  return PyObject_HasAttrString(owner.ptr(), name) == 1;
}

}  // namespace pybind11
