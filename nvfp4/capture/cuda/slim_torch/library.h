// TORCH_LIBRARY and its like, carried out by Python's torch.library.
#pragma once

#include "bindings.h"

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
struct SchemaType<c10::ArrayRef<T>> : SchemaType<std::vector<T>> {};

// "Tensor _0, int _1"
template <typename... T>
std::string schema_names() {
  std::string names;
  int i = 0;
  ((names += (i == 0 ? "" : ", ") + SchemaType<Bare<T>>::name() + " _" + std::to_string(i), ++i), ...);
  return names;
}

template <typename T>
struct SchemaResult {
  static std::string name() { return schema_names<T>(); }
};
template <>
struct SchemaResult<void> {
  static std::string name() { return "()"; }
};
template <typename... T>
struct SchemaResult<std::tuple<T...>> {
  static std::string name() { return "(" + schema_names<T...>() + ")"; }
};

// "(Tensor _0, int _1) -> Tensor _0"
template <typename R, typename... A>
struct SchemaOf {
  static std::string text() {
    return "(" + schema_names<A...>() + ") -> " + SchemaResult<R>::name();
  }
};

}  // namespace slim

namespace torch {

class Library {
 public:
  // kind: torch.library.Library's. key: of the dispatcher, such as "CUDA"; null for none.
  Library(const char* kind, std::string ns, const char* key);

  // A schema, or a name or schema with the function for every device.
  Library& def(const char* schema);
  template <typename F>
  Library& def(const char* name_or_schema, F&& f) {
    std::string schema = name_or_schema;
    const std::string name = schema.substr(0, schema.find('('));
    if (schema.size() == name.size()) {
      schema += slim::Signature<std::decay_t<F>>::template Apply<slim::SchemaOf>::text();
    }
    def(schema.c_str());
    return impl(name.c_str(), std::forward<F>(f));
  }
  template <typename F>
  Library& impl(const char* name, F&& f) {
    return implement(name, slim::make_function(std::forward<F>(f)));
  }

 private:
  Library& implement(std::string name, std::unique_ptr<slim::Function> function);

  PyObject* library_;  // torch.library.Library, kept for good
  std::string namespace_;
  const char* key_;
};

}  // namespace torch

namespace slim {

// Runs a TORCH_LIBRARY block while the shared object is loaded. What goes wrong is kept, as an
// exception cannot leave dlopen, and raised by PyInit_<name>; slim_torch_registration_error() tells
// it to who loads an object without one.
struct LibraryInit {
  LibraryInit(const char* kind, void (*block)(torch::Library&), const char* ns, const char* key);
};

}  // namespace slim

#define SLIM_LIBRARY(kind, name, ns_text, key, m)                                        \
  static void C10_CONCATENATE(slim_library_, name)(::torch::Library&);                   \
  static const ::slim::LibraryInit C10_CONCATENATE(slim_library_init_, name)(            \
      kind, &C10_CONCATENATE(slim_library_, name), ns_text, key);                        \
  static void C10_CONCATENATE(slim_library_, name)(::torch::Library & m)
// As in torch, a macro for the namespace is expanded in all but the first.
#define SLIM_LIBRARY_AGAIN(kind, ns, key, m, id) SLIM_LIBRARY(kind, ns##_##id, #ns, key, m)
#define SLIM_LIBRARY_EXPANDED(kind, ns, key, m, id) SLIM_LIBRARY_AGAIN(kind, ns, key, m, id)
#define TORCH_LIBRARY(ns, m) SLIM_LIBRARY("DEF", ns##_, #ns, nullptr, m)
#define TORCH_LIBRARY_FRAGMENT(ns, m) \
  SLIM_LIBRARY_EXPANDED("FRAGMENT", ns, nullptr, m, __COUNTER__)
#define TORCH_LIBRARY_IMPL(ns, key, m) SLIM_LIBRARY_EXPANDED("IMPL", ns, #key, m, __COUNTER__)

#define TORCH_FN(function) (function)
