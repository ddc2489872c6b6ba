// The library of the CUDA driver for Python packages that load it where there is no GPU: the device,
// contexts, streams and events. A function that is not here is reported as missing, as an older
// driver reports it.

#include "driver.h"

#include <dlfcn.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

namespace {

// There is one context, and it is always there: torch's.
const CUcontext primary = reinterpret_cast<CUcontext>(0x10);
thread_local std::vector<CUcontext> contexts = {primary};

// A function of this library, in the form that callers of a version expect.
void *find(const char *symbol, int version) {
  static Dl_info self = {};
  static void *const library =
      dladdr(&primary, &self) ? dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD) : nullptr;
  const std::string name = symbol;
  if (name == "cuCtxCreate" && version >= 12050) return dlsym(library, "cuCtxCreate_v4");
  if (name == "cuCtxCreate" && version >= 11040) return dlsym(library, "cuCtxCreate_v3");
  if (name == "cuStreamGetCtx" && version < 12050) return dlsym(library, "cuStreamGetCtx");
  void *second = dlsym(library, (name + "_v2").c_str());
  return second ? second : dlsym(library, symbol);
}

// A stream or an event; packages do so beyond the emulation.
CUresult destroy(const void *handle) {
  const CUresult error = ask("destroy", handle);
  return error == CUDA_ERROR_NO_DEVICE ? CUDA_SUCCESS : error;
}

}  // namespace

extern "C" {

CUresult cuInit(unsigned) { return ask("driver_init"); }
CUresult cuDriverGetVersion(int *version) {
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult error, const char **text) {
  return ask("error_text", text, error);
}
CUresult cuGetErrorName(CUresult error, const char **text) {
  return ask("driver_error_name", text, error);
}

// The device.

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  *device = 0;
  return ask("cudaSetDevice", ordinal);
}
CUresult cuDeviceGetCount(int *count) {
  *count = 1;
  return ask("driver_init");
}
CUresult cuDeviceGetName(char *name, int size, CUdevice) { return ask("device_name", name, size); }
CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice) {
  std::memset(uuid, 0, sizeof *uuid);
  return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice) {
  size_t free = 0;
  return ask("cudaMemGetInfo", &free, bytes);
}
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute which, CUdevice) {
  return ask("cudaDeviceGetAttribute", value, which);
}
CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device) {
  cuDeviceGetAttribute(major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
  return cuDeviceGetAttribute(minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
}

// Contexts.

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  *context = primary;
  return ask("cudaSetDevice", device);
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) { return CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxReset_v2(CUdevice) { return CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice, unsigned) { return CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned *flags, int *active) {
  *flags = 0;
  *active = 1;
  return CUDA_SUCCESS;
}
CUresult cuCtxCreate_v2(CUcontext *context, unsigned, CUdevice device) {
  *context = primary;
  contexts.push_back(primary);
  return ask("cudaSetDevice", device);
}
CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *, int, unsigned flags,
                        CUdevice device) {
  return cuCtxCreate_v2(context, flags, device);
}
CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *, unsigned flags, CUdevice device) {
  return cuCtxCreate_v2(context, flags, device);
}
CUresult cuCtxDestroy_v2(CUcontext) { return CUDA_SUCCESS; }
CUresult cuCtxPushCurrent_v2(CUcontext context) {
  contexts.push_back(context);
  return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent_v2(CUcontext *context) {
  if (contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (context) *context = contexts.back();
  contexts.pop_back();
  return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext context) {
  if (!contexts.empty()) contexts.pop_back();
  if (context) contexts.push_back(context);
  return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext *context) {
  *context = contexts.empty() ? nullptr : contexts.back();
  return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice *device) {
  *device = 0;
  return contexts.empty() ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}
CUresult cuCtxGetFlags(unsigned *flags) {
  *flags = 0;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetApiVersion(CUcontext, unsigned *version) {
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  *least = 0;
  *greatest = -5;
  return CUDA_SUCCESS;
}
CUresult cuCtxSynchronize() { return ask("cudaDeviceSynchronize"); }
CUresult cuCtxSetLimit(CUlimit, size_t) { return CUDA_SUCCESS; }
CUresult cuCtxSetCacheConfig(CUfunc_cache) { return CUDA_SUCCESS; }
CUresult cuCtxResetPersistingL2Cache() { return CUDA_SUCCESS; }

// Streams and events: all work is done when a call returns.

CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
  return ask("new_stream", stream, flags);
}
CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int) {
  return ask("new_stream", stream, flags);
}
CUresult cuStreamDestroy_v2(CUstream stream) { return destroy(stream); }
CUresult cuStreamSynchronize(CUstream stream) {
  return ask_on(stream, "synchronize_stream", stream);
}
CUresult cuStreamQuery(CUstream stream) { return ask_on(stream, "synchronize_stream", stream); }
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  return ask_on(stream, "stream_waits", stream, event);
}
CUresult cuStreamGetPriority(CUstream, int *priority) {
  *priority = 0;
  return CUDA_SUCCESS;
}
CUresult cuStreamGetFlags(CUstream, unsigned *flags) {
  *flags = CU_STREAM_NON_BLOCKING;
  return CUDA_SUCCESS;
}
CUresult cuStreamGetCtx(CUstream, CUcontext *context) {
  *context = primary;
  return CUDA_SUCCESS;
}
CUresult cuStreamGetCtx_v2(CUstream, CUcontext *context, CUgreenCtx *green) {
  *context = primary;
  *green = nullptr;
  return CUDA_SUCCESS;
}
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
  return ask_on(stream, "is_capturing", status);
}
CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode) {
  return ask_on(stream, "begin_capture");
}
CUresult cuStreamEndCapture(CUstream, CUgraph *graph) { return ask("end_capture", graph); }
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *) { return CUDA_SUCCESS; }
CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long) {
  return ask("instantiate_graph", exec, graph);
}
CUresult cuGraphUpload(CUgraphExec, CUstream) { return CUDA_SUCCESS; }
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  return ask_on(stream, "launch_graph", exec, stream);
}
CUresult cuGraphExecDestroy(CUgraphExec exec) { return ask("destroy_graph", exec); }
CUresult cuGraphDestroy(CUgraph graph) { return ask("destroy_graph", graph); }
CUresult cuStreamSetAttribute(CUstream, CUstreamAttrID, const CUstreamAttrValue *) {
  return CUDA_SUCCESS;
}
CUresult cuEventCreate(CUevent *event, unsigned) { return ask("new_handle", event); }
CUresult cuEventDestroy_v2(CUevent event) { return destroy(event); }
CUresult cuEventRecord(CUevent event, CUstream stream) {
  return ask_on(stream, "record_event", event, stream);
}
CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned) {
  return ask_on(stream, "record_event", event, stream);
}
CUresult cuEventSynchronize(CUevent event) { return ask_on(event, "synchronize_event", event); }
CUresult cuEventQuery(CUevent event) { return ask_on(event, "synchronize_event", event); }
CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent, CUevent) {
  if (milliseconds) *milliseconds = std::nanf("");  // for whoever does not look at the error
  return ask("no_time");
}

CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
                                void *address, const cuuint64_t *shape, const cuuint64_t *strides,
                                const cuuint32_t *box, const cuuint32_t *steps,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  return ask("tensor_map", map, type, rank, address, shape, strides, box, steps, interleave,
             swizzle, promotion, fill);
}

// The way to all of them.

CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t,
                             CUdriverProcAddressQueryResult *found) {
  *function = find(symbol, version);
  if (found) {
    *found = *function ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

}  // extern "C"
