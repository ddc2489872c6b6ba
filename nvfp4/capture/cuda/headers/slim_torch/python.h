// Python errors as C++ exceptions, and the GIL.
#pragma once

#include <Python.h>

#include <memory>
#include <stdexcept>
#include <string>

#include "exception.h"

namespace slim {

// A Python exception that was taken from the interpreter.
class FetchedError {
 public:
  static std::shared_ptr<FetchedError> fetch();  // the one that is set; takes it
  ~FetchedError();
  void restore();  // sets it again
  std::string message(bool with_type) const;
  PyObject* type() const { return type_; }

 private:
  PyObject *type_ = nullptr, *value_ = nullptr, *traceback_ = nullptr;
};

// Thrown by tensor methods: a c10::Error in C++, the original exception in Python.
class PythonError : public c10::Error {
 public:
  explicit PythonError(std::shared_ptr<FetchedError> error);
  void restore() const { error_->restore(); }

 private:
  std::shared_ptr<FetchedError> error_;
};

// Sets the Python exception that stands for the C++ exception being handled.
void set_python_error();

// Runs with the GIL, whether the thread has it or not.
class WithGil {
 public:
  WithGil() : state_(PyGILState_Ensure()) {}
  ~WithGil() { PyGILState_Release(state_); }
  WithGil(const WithGil&) = delete;

 private:
  PyGILState_STATE state_;
};

}  // namespace slim

namespace pybind11 {

class gil_scoped_acquire {
  slim::WithGil with_gil_;
};

class gil_scoped_release {
 public:
  gil_scoped_release() : state_(PyEval_SaveThread()) {}
  ~gil_scoped_release() { PyEval_RestoreThread(state_); }
  gil_scoped_release(const gil_scoped_release&) = delete;

 private:
  PyThreadState* state_;
};

// A Python exception in the code of a binding.
class error_already_set : public std::exception {
 public:
  error_already_set();
  const char* what() const noexcept override { return message_.c_str(); }
  void restore() const { error_->restore(); }
  bool matches(PyObject* type) const;

 private:
  std::shared_ptr<slim::FetchedError> error_;
  std::string message_;
};

#define SLIM_EXCEPTION(name)                  \
  class name : public std::runtime_error {    \
    using std::runtime_error::runtime_error;  \
  };
SLIM_EXCEPTION(stop_iteration)
SLIM_EXCEPTION(index_error)
SLIM_EXCEPTION(key_error)
SLIM_EXCEPTION(value_error)
SLIM_EXCEPTION(type_error)
SLIM_EXCEPTION(buffer_error)
SLIM_EXCEPTION(import_error)
SLIM_EXCEPTION(attribute_error)
SLIM_EXCEPTION(cast_error)
#undef SLIM_EXCEPTION

}  // namespace pybind11
