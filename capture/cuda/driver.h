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

}  // namespace
