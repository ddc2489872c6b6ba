// Calls from C++ to the functions of capture/cuda/ by their names.
//
// An argument is one 64-bit word; results go to the addresses among them.

#pragma once

#include <Python.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <type_traits>

namespace {

using Callback = int (*)(const char *name, const uint64_t *words);

inline Callback find_callback(const char *which) {
  PyObject *module = PyImport_ImportModule("nvfp4.capture.cuda.entries");
  PyObject *address = module ? PyObject_GetAttrString(module, which) : nullptr;
  void *found = address ? PyLong_AsVoidPtr(address) : nullptr;
  if (!found) {
    PyErr_Print();
    std::abort();
  }
  Py_XDECREF(address);
  Py_XDECREF(module);
  return reinterpret_cast<Callback>(found);
}

template <class T>
uint64_t word(T value) {
  if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<uint64_t>(value);
  } else if constexpr (std::is_enum_v<T>) {
    return static_cast<uint64_t>(static_cast<std::underlying_type_t<T>>(value));
  } else {
    static_assert(std::is_integral_v<T>);
    return static_cast<uint64_t>(value);
  }
}

inline bool python_has_ended() {
#if PY_VERSION_HEX >= 0x030D0000
  return !Py_IsInitialized() || Py_IsFinalizing();
#else
  return !Py_IsInitialized() || _Py_IsFinalizing();
#endif
}

// which: an address of capture/cuda/entries.py; the same for each call of a library.
inline int call_words(const char *which, const char *name, const uint64_t *words) {
  if (python_has_ended()) return 4;  // cudaErrorCudartUnloading, CUDA_ERROR_DEINITIALIZED
  const PyGILState_STATE state = PyGILState_Ensure();
  // A destructor may call while an exception is on its way.
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  static const Callback callback = find_callback(which);
  const int code = callback(name, words);
  PyErr_Restore(type, value, traceback);
  PyGILState_Release(state);
  return code;
}

template <class... Arguments>
int call_python(const char *which, const char *name, Arguments... arguments) {
  const uint64_t words[] = {word(arguments)..., 0};
  return call_words(which, name, words);
}

}  // namespace
