// TORCH_LIBRARY and its like, carried out by Python's torch.library.
#pragma once

#include "function.h"

namespace c10 {
// The keys that extensions name; Undefined stands for none.
enum class DispatchKey : uint16_t {
  Undefined, CPU, CUDA, Meta, Autograd, AutogradCUDA, CompositeExplicitAutograd,
  CompositeImplicitAutograd
};
const char* toString(DispatchKey key);
}  // namespace c10

namespace slim {

// The name of an argument's or result's type in a schema. What torch takes for an operator's
// kernel is here, and nothing else: no int, no float.
template <typename T>
struct SchemaType;
#define SLIM_SCHEMA(T, text)                          \
  template <>                                         \
  struct SchemaType<T> {                              \
    static std::string name() { return text; }        \
  };
SLIM_SCHEMA(at::Tensor, "Tensor")
SLIM_SCHEMA(int64_t, "int")
SLIM_SCHEMA(double, "float")
SLIM_SCHEMA(bool, "bool")
SLIM_SCHEMA(std::string, "str")
SLIM_SCHEMA(std::string_view, "str")
SLIM_SCHEMA(at::Scalar, "Scalar")
SLIM_SCHEMA(at::ScalarType, "ScalarType")
SLIM_SCHEMA(at::Device, "Device")
SLIM_SCHEMA(at::Layout, "Layout")
SLIM_SCHEMA(at::MemoryFormat, "MemoryFormat")
#undef SLIM_SCHEMA
template <typename T>
struct SchemaType<std::optional<T>> {
  static std::string name() { return SchemaType<T>::name() + "?"; }
};
template <typename T>
struct SchemaType<std::vector<T>> {
  static std::string name() { return SchemaType<T>::name() + "[]"; }
};
template <typename T>
struct SchemaType<c10::ArrayRef<T>> {
  static std::string name() { return SchemaType<T>::name() + "[]"; }
};
template <typename T>
struct SchemaResult {
  static std::string name() { return SchemaType<Bare<T>>::name() + " _0"; }
};
template <>
struct SchemaResult<void> {
  static std::string name() { return "()"; }
};
template <typename... T>
struct SchemaResult<std::tuple<T...>> {
  static std::string name() {
    std::string names;
    int i = 0;
    ((names += (i == 0 ? "" : ", ") + SchemaType<T>::name() + " _" + std::to_string(i), ++i), ...);
    return "(" + names + ")";
  }
};

// "(Tensor _0, int _1) -> Tensor _0"
template <typename R, typename... A>
struct SchemaOf {
  static std::string text() {
    std::string arguments;
    int i = 0;
    ((arguments += (i == 0 ? "" : ", ") + SchemaType<Bare<A>>::name() + " _" + std::to_string(i),
      ++i),
     ...);
    return "(" + arguments + ") -> " + SchemaResult<R>::name();
  }
};

}  // namespace slim

namespace torch {

// A function and its schema.
struct CppFunction {
  template <typename F, std::enable_if_t<!std::is_same_v<std::decay_t<F>, CppFunction>, int> = 0>
  CppFunction(F&& f)
      : schema(slim::Signature<std::decay_t<F>>::template Apply<slim::SchemaOf>::text()),
        function(slim::make_function(std::forward<F>(f))) {}
  std::string schema;
  std::unique_ptr<slim::Function> function;
  c10::DispatchKey key = c10::DispatchKey::Undefined;
};

template <typename F>
CppFunction dispatch(c10::DispatchKey key, F&& f) {
  CppFunction function(std::forward<F>(f));
  function.key = key;
  return function;
}
template <typename F>
CppFunction dispatch(c10::DeviceType type, F&& f) {
  return dispatch(
      type == c10::kCUDA      ? c10::DispatchKey::CUDA
          : type == c10::kCPU ? c10::DispatchKey::CPU
                              : c10::DispatchKey::Meta,
      std::forward<F>(f));
}

class Library {
 public:
  enum Kind { DEF, IMPL, FRAGMENT };
  Library(Kind kind, std::string ns, c10::DispatchKey key);

  // A schema, or a name or schema with the function for every device.
  Library& def(const char* schema) &;
  Library& def(const std::string& schema) & { return def(schema.c_str()); }
  template <typename F>
  Library& def(const char* name_or_schema, F&& f) & {
    return define(name_or_schema, CppFunction(std::forward<F>(f)));
  }
  template <typename F>
  Library& impl(const char* name, F&& f) & {
    return implement(name, CppFunction(std::forward<F>(f)));
  }
  template <typename Key, typename F>
  Library& impl(const char* name, Key key, F&& f) & {
    return implement(name, dispatch(key, std::forward<F>(f)));
  }

 private:
  Library& define(const char* name_or_schema, CppFunction function);
  Library& implement(const char* name, CppFunction function);

  PyObject* library_;  // torch.library.Library, kept for good
  std::string namespace_;
  c10::DispatchKey key_;
};

}  // namespace torch

namespace slim {

// Runs a TORCH_LIBRARY block while the shared object is loaded. What goes wrong is kept, as an
// exception cannot leave dlopen, and raised by PyInit_<name>; slim_torch_registration_error() tells
// it to who loads an object without one.
struct LibraryInit {
  LibraryInit(
      torch::Library::Kind kind, void (*block)(torch::Library&), const char* ns,
      c10::DispatchKey key);
};

}  // namespace slim

#define SLIM_LIBRARY(kind, name, ns_text, key, m)                                        \
  static void C10_CONCATENATE(slim_library_, name)(::torch::Library&);                   \
  static const ::slim::LibraryInit C10_CONCATENATE(slim_library_init_, name)(            \
      ::torch::Library::kind, &C10_CONCATENATE(slim_library_, name), ns_text,            \
      ::c10::DispatchKey::key);                                                          \
  static void C10_CONCATENATE(slim_library_, name)(::torch::Library & m)
#define SLIM_LIBRARY_AGAIN(kind, ns, key, m, id) \
  SLIM_LIBRARY(kind, ns##_##kind##_##key##_##id, #ns, key, m)
#define SLIM_LIBRARY_EXPANDED(kind, ns, key, m, id) SLIM_LIBRARY_AGAIN(kind, ns, key, m, id)
// As in torch, a macro for the namespace is expanded in all but the first.
#define TORCH_LIBRARY(ns, m) SLIM_LIBRARY(DEF, ns##_, #ns, Undefined, m)
#define TORCH_LIBRARY_FRAGMENT(ns, m) \
  SLIM_LIBRARY_EXPANDED(FRAGMENT, ns, Undefined, m, __COUNTER__)
#define TORCH_LIBRARY_IMPL(ns, key, m) SLIM_LIBRARY_EXPANDED(IMPL, ns, key, m, __COUNTER__)

#define TORCH_FN(function) (function)
