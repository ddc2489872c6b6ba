// TORCH_LIBRARY, carried out by Python's torch.library.
#pragma once

#include "bindings.h"

namespace torch {

class Library {
 public:
  // kind and dispatch_key: as of Python's torch.library.Library.
  Library(std::string ns, const char* kind, const char* dispatch_key);

  // A schema, or one with the function for every device; headers_of_torch.py looks for others.
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

  PyObject* library_;  // torch.library.Library, never released
  std::string namespace_;
};

}  // namespace torch

namespace slim {

// Runs a TORCH_LIBRARY block while the shared object is loaded. The runtime keeps an error, because
// an exception cannot leave dlopen.
struct LibraryInit {
  LibraryInit(void (*block)(torch::Library&), const char* ns, const char* kind, const char* key);
};

}  // namespace slim

#define SLIM_LIBRARY(number, ns, kind, key, m)                                      \
  static void C10_CONCATENATE(slim_library_, number)(::torch::Library&);             \
  static const ::slim::LibraryInit C10_CONCATENATE(slim_library_init_, number)(      \
      &C10_CONCATENATE(slim_library_, number), ns, kind, key);                       \
  static void C10_CONCATENATE(slim_library_, number)(::torch::Library & m)
#define TORCH_LIBRARY(ns, m) SLIM_LIBRARY(__COUNTER__, C10_STRINGIZE(ns), "DEF", "", m)
#define TORCH_LIBRARY_FRAGMENT(ns, m) \
  SLIM_LIBRARY(__COUNTER__, C10_STRINGIZE(ns), "FRAGMENT", "", m)
#define TORCH_LIBRARY_IMPL(ns, key, m) \
  SLIM_LIBRARY(__COUNTER__, C10_STRINGIZE(ns), "IMPL", C10_STRINGIZE(key), m)
