// TORCH_LIBRARY, carried out by Python's torch.library.
#pragma once

#include "bindings.h"

namespace torch {

class Library {
 public:
  explicit Library(std::string ns);

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
  LibraryInit(void (*block)(torch::Library&), const char* ns);
};

}  // namespace slim

#define TORCH_LIBRARY(ns, m)                                            \
  static void C10_CONCATENATE(slim_library_, ns)(::torch::Library&);    \
  static const ::slim::LibraryInit C10_CONCATENATE(slim_library_init_, ns)( \
      &C10_CONCATENATE(slim_library_, ns), #ns);                        \
  static void C10_CONCATENATE(slim_library_, ns)(::torch::Library & m)
