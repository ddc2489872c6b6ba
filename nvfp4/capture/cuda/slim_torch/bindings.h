// C++ functions that Python can call, PYBIND11_MODULE and module_::def.
//
// Caster<T> has load(object), which says whether the object is one for T or can be converted,
// value(), cast(value) with a new reference, and the type's name().
#pragma once

#include <Python.h>

#include <memory>
#include <type_traits>

#include "tensor.h"

namespace slim {

bool load_signed(PyObject* source, int64_t lowest, int64_t highest, int64_t* value);
bool load_unsigned(PyObject* source, uint64_t highest, uint64_t* value);
bool load_double(PyObject* source, double* value);
bool load_bool(PyObject* source, bool* value);
bool load_string(PyObject* source, std::string* value);
bool load_tensor(PyObject* source, at::Tensor* value);
bool load_dtype(PyObject* source, at::ScalarType* value);
bool load_device(PyObject* source, at::Device* value);
PyObject* cast_signed(int64_t value);
PyObject* cast_unsigned(uint64_t value);
PyObject* cast_double(double value);
PyObject* cast_bool(bool value);
PyObject* cast_string(const std::string& value);
PyObject* cast_none();
PyObject* cast_tensor(const at::Tensor& value);
PyObject* cast_scalar(const at::Scalar& value);
PyObject* cast_dtype(at::ScalarType value);
PyObject* cast_device(const at::Device& value);

// The items of a list, tuple, set or other sequence that is no string.
class Items {
 public:
  explicit Items(PyObject* sequence);  // size() < 0 if it is none
  ~Items();
  Items(const Items&) = delete;
  Py_ssize_t size() const { return size_; }
  PyObject* operator[](Py_ssize_t i) const;

 private:
  PyObject* fast_;
  Py_ssize_t size_;
};
PyObject* new_list(Py_ssize_t size);
PyObject* new_tuple(Py_ssize_t size);
void set_item(PyObject* list_or_tuple, Py_ssize_t i, PyObject* stolen);

template <typename T, typename = void>
struct Caster;

template <typename T>
struct Holder {
  T held;
  T& value() { return held; }
};

template <typename T>
struct Caster<T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool> &&
                                  !std::is_same_v<T, char>>> : Holder<T> {
  using Limits = std::numeric_limits<T>;
  bool load(PyObject* source) {
    std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t> wide;
    bool fits;
    if constexpr (std::is_signed_v<T>) {
      fits = load_signed(source, Limits::min(), Limits::max(), &wide);
    } else {
      fits = load_unsigned(source, Limits::max(), &wide);
    }
    this->held = static_cast<T>(wide);
    return fits;
  }
  static PyObject* cast(T value) {
    return std::is_signed_v<T> ? cast_signed(static_cast<int64_t>(value)) : cast_unsigned(value);
  }
  static std::string name() { return "int"; }
};

template <typename T>
struct Caster<T, std::enable_if_t<std::is_floating_point_v<T>>> : Holder<T> {
  bool load(PyObject* source) {
    double wide;
    const bool fits = load_double(source, &wide);
    this->held = static_cast<T>(wide);
    return fits;
  }
  static PyObject* cast(T value) { return cast_double(value); }
  static std::string name() { return "float"; }
};

#define SLIM_CASTER(T, initial, python_name, function)                         \
  template <>                                                                  \
  struct Caster<T> {                                                           \
    T held = initial;                                                          \
    T& value() { return held; }                                                \
    bool load(PyObject* source) { return load_##function(source, &held); }     \
    static PyObject* cast(const T& value) { return cast_##function(value); }   \
    static std::string name() { return python_name; }                          \
  };
SLIM_CASTER(bool, false, "bool", bool)
SLIM_CASTER(std::string, {}, "str", string)
SLIM_CASTER(at::Tensor, {}, "torch.Tensor", tensor)
SLIM_CASTER(at::ScalarType, at::kFloat, "torch.dtype", dtype)
SLIM_CASTER(at::Device, at::kCPU, "torch.device", device)
#undef SLIM_CASTER
template <>
struct Caster<at::Scalar> {
  static PyObject* cast(const at::Scalar& value) { return cast_scalar(value); }
};

// Puts the values into a new list or tuple of their number.
template <typename T, typename Values>
PyObject* filled(PyObject* list_or_tuple, const Values& values) {
  Py_ssize_t i = 0;
  for (const auto& value : values) {
    set_item(list_or_tuple, i++, Caster<T>::cast(value));
  }
  return list_or_tuple;
}

template <typename T>
struct Caster<std::vector<T>> : Holder<std::vector<T>> {
  bool load(PyObject* source) {
    const Items items(source);
    for (Py_ssize_t i = 0; i < items.size(); ++i) {
      Caster<T> item;
      if (!item.load(items[i])) {
        return false;
      }
      this->held.push_back(item.value());
    }
    return items.size() >= 0;
  }
  static PyObject* cast(const std::vector<T>& values) {
    return filled<T>(new_list(static_cast<Py_ssize_t>(values.size())), values);
  }
  static std::string name() { return "list[" + Caster<T>::name() + "]"; }
};

template <typename T>
struct Caster<c10::ArrayRef<T>> : Holder<c10::ArrayRef<T>> {
  Caster<std::vector<T>> values;
  bool load(PyObject* source) {
    const bool loaded = values.load(source);
    this->held = values.value();
    return loaded;
  }
  static PyObject* cast(c10::ArrayRef<T> values) {
    return filled<T>(new_tuple(static_cast<Py_ssize_t>(values.size())), values);
  }
  static std::string name() { return "Tuple[" + Caster<T>::name() + ", ...]"; }
};

// Tuples are returned and not taken.
template <typename... T>
struct Caster<std::tuple<T...>> {
  static PyObject* cast(const std::tuple<T...>& values) {
    return cast_all(values, std::index_sequence_for<T...>());
  }
  static std::string name() {
    std::string names;
    ((names += (names.empty() ? "" : ", ") + Caster<T>::name()), ...);
    return "tuple[" + names + "]";
  }

 private:
  template <size_t... i>
  static PyObject* cast_all(const std::tuple<T...>& values, std::index_sequence<i...>) {
    PyObject* tuple = new_tuple(sizeof...(T));
    (set_item(tuple, i, Caster<T>::cast(std::get<i>(values))), ...);
    return tuple;
  }
};

class Function {
 public:
  virtual ~Function() = default;
  // The result as a new reference, or null without a Python error if an argument is of another
  // type. C++ exceptions pass through.
  virtual PyObject* call(PyObject* const* arguments) = 0;

  std::string signature() const;  // "f(arg0: int, arg1: float) -> bool"

  std::string name, doc;
  std::vector<std::string> argument_names;  // empty without py::arg
  std::vector<std::string> argument_types;
  std::string return_type;
};

template <typename T>
using Bare = std::remove_cv_t<std::remove_reference_t<T>>;

template <typename F, typename R, typename... A>
class FunctionOf final : public Function {
 public:
  explicit FunctionOf(F f) : f_(std::move(f)) {
    (argument_types.push_back(Caster<Bare<A>>::name()), ...);
    if constexpr (std::is_void_v<R>) {
      return_type = "None";
    } else {
      return_type = Caster<Bare<R>>::name();
    }
  }
  PyObject* call(PyObject* const* arguments) override {
    return call(arguments, std::index_sequence_for<A...>());
  }

 private:
  template <size_t... i>
  PyObject* call([[maybe_unused]] PyObject* const* arguments, std::index_sequence<i...>) {
    std::tuple<Caster<Bare<A>>...> casters;
    if (!(std::get<i>(casters).load(arguments[i]) && ...)) {
      return nullptr;
    }
    if constexpr (std::is_void_v<R>) {
      f_(static_cast<A&&>(std::get<i>(casters).value())...);
      return cast_none();
    } else {
      return Caster<Bare<R>>::cast(f_(static_cast<A&&>(std::get<i>(casters).value())...));
    }
  }

  F f_;
};

// The signature of a function, a pointer to one, or an object with one operator().
template <typename F>
struct Signature : Signature<decltype(&F::operator())> {};
template <typename R, typename... A>
struct Signature<R (*)(A...)> {
  template <typename F>
  static std::unique_ptr<Function> erase(F f) {
    return std::make_unique<FunctionOf<F, R, A...>>(std::move(f));
  }
};
template <typename C, typename R, typename... A>
struct Signature<R (C::*)(A...)> : Signature<R (*)(A...)> {};
template <typename C, typename R, typename... A>
struct Signature<R (C::*)(A...) const> : Signature<R (*)(A...)> {};

template <typename F>
std::unique_ptr<Function> make_function(F&& f) {
  using Callable = std::decay_t<F>;
  return Signature<Callable>::template erase<Callable>(std::forward<F>(f));
}

// Adds a function to a module.
void add_function(PyObject* module, std::unique_ptr<Function> function);

}  // namespace slim

namespace pybind11 {

// An argument's name. One with a default value has another type, which torch's own headers know.
struct arg {
  explicit arg(const char* given) : name(given) {}
  const char* name;
};

class module_ {
 public:
  explicit module_(PyObject* borrowed) : object_(borrowed) {}
  template <typename F, typename... Extra>
  module_& def(const char* name, F&& function, const Extra&... extra) {
#ifndef __CUDA_ARCH__  // no host code is made from the device pass
    std::unique_ptr<slim::Function> bound = slim::make_function(std::forward<F>(function));
    bound->name = name;
    (add(*bound, extra), ...);
    slim::add_function(object_, std::move(bound));
#endif
    return *this;
  }

 private:
  static void add(slim::Function& bound, const char* doc) { bound.doc = doc; }
  static void add(slim::Function& bound, const arg& named) {
    bound.argument_names.push_back(named.name);
  }

  PyObject* object_;
};
using module = module_;

}  // namespace pybind11
namespace py = pybind11;

namespace slim {
// Returns a module that init has filled, or null with a Python error, for PyInit_<name>.
PyObject* make_module(const char* name, void (*init)(pybind11::module_&));
}  // namespace slim

#define SLIM_PYBIND11_MODULE(name, variable)                                            \
  static void C10_CONCATENATE(slim_fill_, name)(::pybind11::module_ & variable);        \
  extern "C" __attribute__((visibility("default"))) PyObject* C10_CONCATENATE(          \
      PyInit_, name)() {                                                                \
    return ::slim::make_module(C10_STRINGIZE(name), C10_CONCATENATE(slim_fill_, name)); \
  }                                                                                     \
  static void C10_CONCATENATE(slim_fill_, name)(::pybind11::module_ & variable)
#define PYBIND11_MODULE(name, variable, ...) SLIM_PYBIND11_MODULE(name, variable)

namespace torch {
// Torch makes RuntimeErrors of the standard library's exceptions with it, which bindings here do
// anyway.
template <typename F>
F wrap_pybind_function(F function) {
  return function;
}
}  // namespace torch
