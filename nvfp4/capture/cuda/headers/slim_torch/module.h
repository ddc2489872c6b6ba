// PYBIND11_MODULE and module_::def.
#pragma once

#include "function.h"
#include "object.h"

namespace pybind11 {

struct arg_v;

// py::arg("x"), and py::arg("x") = default.
struct arg {
  explicit arg(const char* name) : name(name) {}
  template <typename T>
  arg_v operator=(T&& value) const;
  arg& noconvert(bool flag = true) {
    may_convert = !flag;
    return *this;
  }
  arg& none(bool flag = true) {
    may_be_none = flag;
    return *this;
  }
  const char* name;
  bool may_convert = true, may_be_none = true;
};
struct arg_v : arg {
  arg_v(const arg& base, object value) : arg(base), value(std::move(value)) {}
  object value;
};
template <typename T>
arg_v arg::operator=(T&& value) const {
  return arg_v(*this, pybind11::cast(value));
}
inline namespace literals {
inline arg operator""_a(const char* name, size_t) { return arg(name); }
}

struct doc {
  explicit doc(const char* text) : text(text) {}
  const char* text;
};
template <typename Guard>
struct call_guard {
  using type = Guard;
};
// How long what a pointer or reference points to lives: nothing that can be returned here asks.
enum class return_value_policy : uint8_t {
  automatic, automatic_reference, take_ownership, copy, move, reference, reference_internal
};

}  // namespace pybind11

namespace slim {

template <typename... Extra>
struct GuardOf {
  using type = NoGuard;
};
template <typename Guard, typename... Rest>
struct GuardOf<pybind11::call_guard<Guard>, Rest...> {
  using type = Guard;
};
template <typename First, typename... Rest>
struct GuardOf<First, Rest...> : GuardOf<Rest...> {};

inline void add_extra(Function& function, const char* doc) { function.doc = doc; }
inline void add_extra(Function& function, const pybind11::doc& doc) { function.doc = doc.text; }
inline void add_extra(Function& function, const pybind11::arg& arg) {
  function.parameters.push_back({arg.name, nullptr, arg.may_convert, arg.may_be_none});
}
inline void add_extra(Function& function, const pybind11::arg_v& arg) {
  function.parameters.push_back(
      {arg.name, arg.value.inc_ref().ptr(), arg.may_convert, arg.may_be_none});
}
template <typename Guard>
void add_extra(Function&, const pybind11::call_guard<Guard>&) {}
inline void add_extra(Function&, pybind11::return_value_policy) {}

PyObject* import_module(const char* name);
PyObject* new_submodule(PyObject* module, const char* name, const char* doc);

}  // namespace slim

namespace pybind11 {

class module_ : public object {
 public:
  static module_ import(const char* name) {
    return reinterpret_steal<module_>(slim_checked(slim::import_module(name)).release());
  }
  template <typename F, typename... Extra>
  module_& def(const char* name, F&& function, const Extra&... extra) {
#ifndef __CUDA_ARCH__  // no host code is made from the device pass
    using Guard = typename slim::GuardOf<Extra...>::type;
    std::unique_ptr<slim::Function> bound = slim::make_function<Guard>(std::forward<F>(function));
    bound->name = name;
    (slim::add_extra(*bound, extra), ...);
    slim::add_function(ptr(), std::move(bound));
#endif
    return *this;
  }
  module_ def_submodule(const char* name, const char* doc = nullptr) {
    return reinterpret_steal<module_>(
        slim_checked(slim::new_submodule(ptr(), name, doc)).release());
  }
};
using module = module_;

}  // namespace pybind11

namespace slim {
// What PyInit_<name> returns: a module that init has filled, or null with a Python error.
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

namespace slim {

// Turns exceptions of the standard library into RuntimeErrors, which pybind11 alone does not.
[[noreturn]] void rethrow_as_torch();

template <typename R, typename... A>
struct Wrapper {
  template <typename F>
  static auto wrap(F function) {
    return [function = std::move(function)](A... arguments) mutable -> R {
      try {
        return function(std::forward<A>(arguments)...);
      } catch (...) {
        rethrow_as_torch();
      }
    };
  }
};

}  // namespace slim

namespace torch {
template <typename F>
auto wrap_pybind_function(F&& function) {
  using Callable = std::decay_t<F>;
  return slim::Signature<Callable>::template Apply<slim::Wrapper>::wrap(
      Callable(std::forward<F>(function)));
}
}  // namespace torch
