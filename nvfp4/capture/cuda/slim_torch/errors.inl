// Errors from Python to C++ and back.

namespace slim {

std::shared_ptr<FetchedError> FetchedError::fetch() {
  auto error = std::make_shared<FetchedError>();
  PyErr_Fetch(&error->type_, &error->value_, &error->traceback_);
  PyErr_NormalizeException(&error->type_, &error->value_, &error->traceback_);
  return error;
}

FetchedError::~FetchedError() {
  if (Py_IsInitialized()) {
    const WithGil gil;
    Py_XDECREF(type_);
    Py_XDECREF(value_);
    Py_XDECREF(traceback_);
  }
}

void FetchedError::restore() {
  Py_XINCREF(type_);
  Py_XINCREF(value_);
  Py_XINCREF(traceback_);
  PyErr_Restore(type_, value_, traceback_);
}

std::string FetchedError::message(bool with_type) const {
  const WithGil gil;
  std::string text;
  if (with_type && type_) {
    text = reinterpret_cast<PyTypeObject*>(type_)->tp_name;
    text += ": ";
  }
  PyObject* value = value_ ? PyObject_Str(value_) : nullptr;
  const char* utf8 = value ? PyUnicode_AsUTF8(value) : nullptr;
  text += utf8 ? utf8 : "(no message)";
  Py_XDECREF(value);
  PyErr_Clear();
  return text;
}

PythonError::PythonError(std::shared_ptr<FetchedError> error)
    : c10::Error(error->message(false), std::string()), error_(std::move(error)) {}

void set_python_error() {
  try {
    throw;
  } catch (const PythonError& error) {
    error.restore();
  } catch (const pybind11::error_already_set& error) {
    error.restore();
  } catch (const c10::IndexError& error) {
    PyErr_SetString(PyExc_IndexError, error.what());
  } catch (const c10::ValueError& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const c10::TypeError& error) {
    PyErr_SetString(PyExc_TypeError, error.what());
  } catch (const c10::NotImplementedError& error) {
    PyErr_SetString(PyExc_NotImplementedError, error.what());
  } catch (const c10::BufferError& error) {
    PyErr_SetString(PyExc_BufferError, error.what());
  } catch (const pybind11::stop_iteration& error) {
    PyErr_SetString(PyExc_StopIteration, error.what());
  } catch (const pybind11::index_error& error) {
    PyErr_SetString(PyExc_IndexError, error.what());
  } catch (const pybind11::key_error& error) {
    PyErr_SetString(PyExc_KeyError, error.what());
  } catch (const pybind11::value_error& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const pybind11::type_error& error) {
    PyErr_SetString(PyExc_TypeError, error.what());
  } catch (const pybind11::buffer_error& error) {
    PyErr_SetString(PyExc_BufferError, error.what());
  } catch (const pybind11::import_error& error) {
    PyErr_SetString(PyExc_ImportError, error.what());
  } catch (const pybind11::attribute_error& error) {
    PyErr_SetString(PyExc_AttributeError, error.what());
  } catch (const std::bad_alloc& error) {
    PyErr_SetString(PyExc_MemoryError, error.what());
  } catch (const std::domain_error& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const std::invalid_argument& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const std::length_error& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const std::out_of_range& error) {
    PyErr_SetString(PyExc_IndexError, error.what());
  } catch (const std::range_error& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const std::overflow_error& error) {
    PyErr_SetString(PyExc_OverflowError, error.what());
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "Caught an unknown exception!");
  }
}

void rethrow_as_torch() {
  try {
    throw;
  } catch (const c10::Error&) {
    throw;
  } catch (const pybind11::error_already_set&) {
    throw;
  } catch (const std::exception& error) {
    throw std::runtime_error(error.what());
  }
}

void check_index(size_t index, size_t length) {
  TORCH_CHECK(index < length, "ArrayRef: invalid index Index = ", index, "; Length = ", length);
}

}  // namespace slim

namespace pybind11 {

error_already_set::error_already_set()
    : error_(slim::FetchedError::fetch()), message_(error_->message(true)) {}

bool error_already_set::matches(PyObject* type) const {
  return PyErr_GivenExceptionMatches(error_->type(), type) != 0;
}

}  // namespace pybind11

namespace c10 {

Error::Error(SourceLocation, std::string message) : message_(std::move(message)) {}
Error::Error(std::string message, std::string) : message_(std::move(message)) {}

void detail::torchCheckFail(
    const char* function, const char* file, uint32_t line, const std::string& message) {
  throw Error(SourceLocation{function, file, line}, message);
}
void detail::torchCheckFail(
    const char* function, const char* file, uint32_t line, const char* message) {
  torchCheckFail(function, file, line, std::string(message));
}

void slim_warn(const std::string& message) {
  const slim::WithGil gil;
  if (PyErr_WarnEx(PyExc_UserWarning, message.c_str(), 1) != 0) {
    slim::throw_python_error();
  }
}

}  // namespace c10
