// The library of NVRTC for Python packages that load it where there is no GPU: Python
// (nvrtc_calls.py) compiles with nvcc. The toolkit's wheels have no nvrtc.h; what is used of it is
// declared here.

#include "call_python.h"

#include <cstddef>

namespace {

using nvrtcResult = int;
using nvrtcProgram = void *;

template <class... Arguments>
nvrtcResult ask(const char *name, Arguments... arguments) {
  return call_python("DRIVER", name, arguments...);
}

// PTX stands for all machine code: there is none.
nvrtcResult code_size(nvrtcProgram program, size_t *size) {
  return ask("nvrtc_code_size", size, program);
}
nvrtcResult code(nvrtcProgram program, char *text) { return ask("nvrtc_code", program, text); }

}  // namespace

extern "C" {

nvrtcResult nvrtcVersion(int *major, int *minor) { return ask("nvrtc_version", major, minor); }
nvrtcResult nvrtcGetNumSupportedArchs(int *count) {
  *count = 1;
  return 0;
}
nvrtcResult nvrtcGetSupportedArchs(int *archs) { return ask("nvrtc_arch", archs); }
nvrtcResult nvrtcCreateProgram(nvrtcProgram *program, const char *source, const char *name,
                               int count, const char *const *headers, const char *const *names) {
  return ask("nvrtc_create", program, source, name, count, headers, names);
}
nvrtcResult nvrtcDestroyProgram(nvrtcProgram *program) { return ask("nvrtc_destroy", program); }
nvrtcResult nvrtcAddNameExpression(nvrtcProgram program, const char *expression) {
  return ask("nvrtc_add_name", program, expression);
}
nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int count, const char *const *options) {
  return ask("nvrtc_compile", program, count, options);
}
nvrtcResult nvrtcGetLoweredName(nvrtcProgram program, const char *expression, const char **name) {
  return ask("nvrtc_lowered_name", name, program, expression);
}
nvrtcResult nvrtcGetPTXSize(nvrtcProgram program, size_t *size) { return code_size(program, size); }
nvrtcResult nvrtcGetPTX(nvrtcProgram program, char *text) { return code(program, text); }
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t *size) {
  return code_size(program, size);
}
nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char *text) { return code(program, text); }
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t *size) {
  return ask("nvrtc_log_size", size, program);
}
nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char *text) {
  return ask("nvrtc_log", program, text);
}
const char *nvrtcGetErrorString(nvrtcResult result) {
  const char *text = "";
  ask("nvrtc_error_text", &text, result);
  return text;
}

}  // extern "C"
