// What the files of the driver's library share. As in runtime.cpp, every function asks Python
// (calls.py and driver_calls.py).

#pragma once

#include "call_python.h"

#include <cuda.h>

namespace {

template <class... Arguments>
CUresult ask(const char *name, Arguments... arguments) {
  return static_cast<CUresult>(call_python("DRIVER", name, arguments...));
}

// What is done in a stream, or waits for an event: an error if that has been destroyed.
template <class... Arguments>
CUresult ask_on(const void *handle, const char *name, Arguments... arguments) {
  const CUresult error = handle ? ask("alive", handle) : CUDA_SUCCESS;
  return error == CUDA_SUCCESS ? ask(name, arguments...) : error;
}

}  // namespace
