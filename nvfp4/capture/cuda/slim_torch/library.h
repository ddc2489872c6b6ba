// TORCH_LIBRARY and its like, carried out by Python's torch.library.
#pragma once

#include "bindings.h"

namespace torch {

class Library {
 public:
  // kind: torch.library.Library's. key: of the dispatcher, such as "CUDA"; null for none.
  Library(const char* kind, std::string ns, const char* key);

  // A schema, or one with the function for every device; build.py looks for names without a schema.
  Library& def(const char* schema);
  template <typename F>
  Library& def(const char* schema, F&& f) {
    const std::string text = schema;
    def(schema);
    return impl(text.substr(0, text.find('(')).c_str(), std::forward<F>(f));
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
