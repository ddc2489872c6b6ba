// The CUDA runtime for host code that runs where there is no GPU.
//
// Every function asks Python (capture/cuda/calls.py), which carries it out and gives an error code.
// An argument is one 64-bit word; results go to the addresses among them. The headers of the
// toolkit that compiled the submission are included, so that the compiler checks each signature and
// structures have the layout of that version.

#include <Python.h>
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using Callback = int (*)(const char *name, const uint64_t *words);

Callback find_callback() {
  PyObject *module = PyImport_ImportModule("nvfp4.capture.cuda.entries");
  PyObject *address = module ? PyObject_GetAttrString(module, "RUNTIME") : nullptr;
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

bool python_has_ended() {
#if PY_VERSION_HEX >= 0x030D0000
  return !Py_IsInitialized() || Py_IsFinalizing();
#else
  return !Py_IsInitialized() || _Py_IsFinalizing();
#endif
}

int call_words(const char *name, const uint64_t *words) {
  if (python_has_ended()) return cudaErrorCudartUnloading;
  const PyGILState_STATE state = PyGILState_Ensure();
  // A destructor may call while an exception is on its way.
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  static const Callback callback = find_callback();
  const int code = callback(name, words);
  PyErr_Restore(type, value, traceback);
  PyGILState_Release(state);
  return code;
}

template <class... Arguments>
cudaError_t ask(const char *name, Arguments... arguments) {
  const uint64_t words[] = {word(arguments)..., 0};
  return static_cast<cudaError_t>(call_words(name, words));
}

cudaError_t launch(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
                   const void *stream, bool cooperative = false, dim3 cluster = dim3(0, 0, 0),
                   bool programmatic = false) {
  return ask("launch", function, &grid, &block, &cluster, arguments, shared, stream, programmatic,
             cooperative);
}

struct Configuration {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
};
thread_local std::vector<Configuration> configurations;

int attribute(int which) {
  int value = 0;
  ask("device_number", &value, which);
  return value;
}

const char *text_of(const char *question, cudaError_t error) {
  const char *text = "";
  ask(question, &text, error);
  return text;
}

}  // namespace

// Defines a function that asks Python, under a name, with these arguments.
#define FORWARD(name, parameters, ...) \
  cudaError_t name parameters { return ask(__VA_ARGS__); }
// Defines a function that launches a kernel, which is named by a value of a type.
#define LAUNCH(name, Kernel, cooperative)                                                     \
  cudaError_t name(Kernel kernel, dim3 grid, dim3 block, void **arguments, size_t shared,     \
                   cudaStream_t stream) {                                                     \
    return launch(kernel, grid, block, arguments, shared, stream, cooperative);               \
  }
// Defines a function that carries out a statement, without Python, and succeeds.
#define SUCCEED(name, parameters, statement) \
  cudaError_t name parameters { statement; return cudaSuccess; }

extern "C" {

// Functions that nvcc's host code calls by itself.

void **__cudaRegisterFatBinary(void *) {
  void **module = nullptr;
  ask("register_module", &module);
  return module;
}
void __cudaRegisterFatBinaryEnd(void **) {}
void __cudaUnregisterFatBinary(void **) {}  // when the process ends: Python has ended before
char __cudaInitModule(void **) { return 1; }
void __cudaRegisterFunction(void **module, const char *function, char *, const char *name, int,
                            uint3 *, uint3 *, dim3 *, dim3 *, int *) {
  ask("register_function", module, function, name);
}
void __cudaRegisterVar(void **module, char *variable, char *, const char *name, int, size_t size,
                       int, int) {
  ask("register_variable", module, variable, name, size);
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared,
                                     struct CUstream_st *stream) {
  configurations.push_back({grid, block, shared, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
  if (configurations.empty()) return cudaErrorMissingConfiguration;
  const Configuration last = configurations.back();
  configurations.pop_back();
  *grid = last.grid;
  *block = last.block;
  *shared = last.shared;
  *static_cast<cudaStream_t *>(stream) = last.stream;
  return cudaSuccess;
}
SUCCEED(__cudaGetKernel, (cudaKernel_t *kernel, const void *function),
        *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void *>(function)))
LAUNCH(__cudaLaunchKernel, cudaKernel_t, false)

// Launches.

LAUNCH(cudaLaunchKernel, const void *, false)
LAUNCH(cudaLaunchCooperativeKernel, const void *, true)
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *function,
                                void **arguments) {
  dim3 grid = config->gridDim, block = config->blockDim, cluster(0, 0, 0);
  bool programmatic = false, cooperative = false;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const cudaLaunchAttribute &each = config->attrs[i];
    if (each.id == cudaLaunchAttributeClusterDimension) {
      const auto &asked = each.val.clusterDim;  // which is invalid with a 0, not left out
      cluster = asked.x ? dim3(asked.x, asked.y, asked.z) : dim3(0, 1, 1);
    } else if (each.id == cudaLaunchAttributeProgrammaticStreamSerialization) {
      programmatic = each.val.programmaticStreamSerializationAllowed;
    } else if (each.id == cudaLaunchAttributeCooperative) {
      cooperative = each.val.cooperative;
    } else if (each.id == 7 || each.id == 11 || each.id == 12) {  // events, preferred clusters
      return ask("no_attribute", static_cast<int>(each.id));
    }
  }
  return launch(function, grid, block, arguments, config->dynamicSmemBytes, config->stream,
                cooperative, cluster, programmatic);
}

// Functions and their limits.

FORWARD(cudaFuncSetAttribute, (const void *function, cudaFuncAttribute which, int value),
        "cudaFuncSetAttribute", function, which, value)
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *function) {
  std::memset(attributes, 0, sizeof *attributes);
  cudaError_t error = cudaSuccess;
  const auto number = [&](CUfunction_attribute which) {
    int value = 0;
    if (error == cudaSuccess) error = ask("function_attribute", &value, function, which);
    return value;
  };
  attributes->sharedSizeBytes = number(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
  attributes->constSizeBytes = number(CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES);
  attributes->localSizeBytes = number(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
  attributes->maxThreadsPerBlock = number(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  attributes->numRegs = number(CU_FUNC_ATTRIBUTE_NUM_REGS);
  attributes->maxDynamicSharedSizeBytes = number(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  attributes->ptxVersion = number(CU_FUNC_ATTRIBUTE_PTX_VERSION);
  attributes->binaryVersion = number(CU_FUNC_ATTRIBUTE_BINARY_VERSION);
  return error;
}
cudaError_t cudaFuncSetCacheConfig(const void *, cudaFuncCache) { return cudaSuccess; }
FORWARD(cudaOccupancyMaxActiveBlocksPerMultiprocessor,
        (int *blocks, const void *function, int threads, size_t shared),
        "occupancy", blocks, function, threads, shared)
FORWARD(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
        (int *blocks, const void *function, int threads, size_t shared, unsigned),
        "occupancy", blocks, function, threads, shared)

// Memory.

FORWARD(cudaMalloc, (void **address, size_t size), "cudaMalloc", address, size)
FORWARD(cudaMallocAsync, (void **address, size_t size, cudaStream_t), "cudaMalloc", address, size)
FORWARD(cudaMallocManaged, (void **address, size_t size, unsigned),
        "host_memory", address, size, true)
FORWARD(cudaMallocHost, (void **address, size_t size), "host_memory", address, size, false)
FORWARD(cudaHostAlloc, (void **address, size_t size, unsigned),
        "host_memory", address, size, false)
SUCCEED(cudaHostGetDevicePointer, (void **device, void *host, unsigned), *device = host)
FORWARD(cudaFree, (void *address), "cudaFree", address, false)
FORWARD(cudaFreeAsync, (void *address, cudaStream_t), "cudaFreeAsync", address, false)
FORWARD(cudaFreeHost, (void *address), "cudaFree", address, true)
FORWARD(cudaMemset, (void *address, int value, size_t size), "cudaMemset", address, value, size, 0)
FORWARD(cudaMemsetAsync, (void *address, int value, size_t size, cudaStream_t stream),
        "cudaMemset", address, value, size, stream)
FORWARD(cudaMemcpy, (void *to, const void *from, size_t size, cudaMemcpyKind kind),
        "cudaMemcpy", to, from, size, kind, 0, true)
FORWARD(cudaMemcpyAsync,
        (void *to, const void *from, size_t size, cudaMemcpyKind kind, cudaStream_t stream),
        "cudaMemcpy", to, from, size, kind, stream, false)
FORWARD(cudaMemcpyToSymbol,
        (const void *symbol, const void *from, size_t size, size_t offset, cudaMemcpyKind),
        "copy_to_symbol", symbol, from, size, offset)
FORWARD(cudaGetSymbolAddress, (void **address, const void *symbol),
        "symbol_address", address, symbol)
FORWARD(cudaMemGetInfo, (size_t *free, size_t *total), "cudaMemGetInfo", free, total)

// Streams and events: all work is done when a call returns.

FORWARD(cudaStreamCreate, (cudaStream_t *stream), "new_stream", stream, 0)
FORWARD(cudaStreamCreateWithFlags, (cudaStream_t *stream, unsigned flags),
        "new_stream", stream, flags)
FORWARD(cudaStreamDestroy, (cudaStream_t stream), "destroy", stream)
FORWARD(cudaStreamSynchronize, (cudaStream_t stream), "synchronize_stream", stream)
FORWARD(cudaStreamQuery, (cudaStream_t stream), "synchronize_stream", stream)
FORWARD(cudaStreamWaitEvent, (cudaStream_t stream, cudaEvent_t event, unsigned),
        "stream_waits", stream, event)
SUCCEED(cudaStreamSetAttribute,
        (cudaStream_t, cudaLaunchAttributeID, const cudaLaunchAttributeValue *), )
FORWARD(cudaEventCreate, (cudaEvent_t *event), "new_handle", event)
FORWARD(cudaEventCreateWithFlags, (cudaEvent_t *event, unsigned), "new_handle", event)
FORWARD(cudaEventDestroy, (cudaEvent_t event), "destroy", event)
FORWARD(cudaEventRecord, (cudaEvent_t event, cudaStream_t stream), "record_event", event, stream)
FORWARD(cudaEventSynchronize, (cudaEvent_t event), "synchronize_event", event)
FORWARD(cudaEventQuery, (cudaEvent_t event), "synchronize_event", event)
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t, cudaEvent_t) {
  if (milliseconds) *milliseconds = std::nanf("");  // for callers that ignore the error
  return ask("no_time");
}

// The device.

SUCCEED(cudaGetDeviceCount, (int *count), *count = 1)
SUCCEED(cudaGetDevice, (int *device), *device = 0)
FORWARD(cudaSetDevice, (int device), "cudaSetDevice", device)
FORWARD(cudaDeviceSynchronize, (), "cudaDeviceSynchronize")
cudaError_t cudaProfilerStart() { return cudaSuccess; }
cudaError_t cudaProfilerStop() { return cudaSuccess; }
FORWARD(cudaDeviceGetAttribute, (int *value, cudaDeviceAttr which, int device),
        "cudaDeviceGetAttribute", value, which, device)
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device) {
  const cudaError_t error = ask("cudaSetDevice", device);
  if (error != cudaSuccess) return error;
  std::memset(properties, 0, sizeof *properties);
  size_t free = 0;
  ask("device_name", properties->name, sizeof properties->name);
  ask("cudaMemGetInfo", &free, &properties->totalGlobalMem);
  properties->sharedMemPerBlock = attribute(cudaDevAttrMaxSharedMemoryPerBlock);
  properties->sharedMemPerBlockOptin = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  properties->sharedMemPerMultiprocessor =
      attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  properties->reservedSharedMemPerBlock = attribute(cudaDevAttrReservedSharedMemoryPerBlock);
  properties->regsPerBlock = attribute(cudaDevAttrMaxRegistersPerBlock);
  properties->regsPerMultiprocessor = attribute(cudaDevAttrMaxRegistersPerMultiprocessor);
  properties->warpSize = attribute(cudaDevAttrWarpSize);
  properties->maxThreadsPerBlock = attribute(cudaDevAttrMaxThreadsPerBlock);
  properties->maxThreadsPerMultiProcessor = attribute(cudaDevAttrMaxThreadsPerMultiProcessor);
  properties->maxBlocksPerMultiProcessor = attribute(cudaDevAttrMaxBlocksPerMultiprocessor);
  for (int axis = 0; axis < 3; ++axis) {
    properties->maxThreadsDim[axis] = attribute(cudaDevAttrMaxBlockDimX + axis);
    properties->maxGridSize[axis] = attribute(cudaDevAttrMaxGridDimX + axis);
  }
  properties->multiProcessorCount = attribute(cudaDevAttrMultiProcessorCount);
  properties->l2CacheSize = attribute(cudaDevAttrL2CacheSize);
  properties->major = attribute(cudaDevAttrComputeCapabilityMajor);
  properties->minor = attribute(cudaDevAttrComputeCapabilityMinor);
  properties->totalConstMem = attribute(cudaDevAttrTotalConstantMemory);
  properties->cooperativeLaunch = attribute(cudaDevAttrCooperativeLaunch);
  properties->concurrentKernels = properties->asyncEngineCount = 1;
  properties->unifiedAddressing = properties->managedMemory = 1;
  return cudaSuccess;
}

// Errors.

FORWARD(cudaGetLastError, (), "take_last_error", true)
FORWARD(cudaPeekAtLastError, (), "take_last_error", false)
const char *cudaGetErrorString(cudaError_t error) { return text_of("error_text", error); }
const char *cudaGetErrorName(cudaError_t error) { return text_of("error_name", error); }

// The driver, as far as kernels with tensor maps need it.

CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
                                void *address, const cuuint64_t *shape, const cuuint64_t *strides,
                                const cuuint32_t *box, const cuuint32_t *steps,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  return static_cast<CUresult>(ask("tensor_map", map, type, rank, address, shape, strides, box,
                                   steps, interleave, swizzle, promotion, fill));
}
CUresult cuGetErrorString(CUresult error, const char **text) {
  ask("error_text", text, error);
  return CUDA_SUCCESS;
}
// Some headers of CUDA 13 declare it, too.
cudaError_t cudaGetDriverEntryPoint(const char *symbol, void **function, unsigned long long,
                                    cudaDriverEntryPointQueryResult *found) {
  const std::pair<const char *, void *> known[] = {
      {"cuTensorMapEncodeTiled", reinterpret_cast<void *>(cuTensorMapEncodeTiled)},
      {"cuGetErrorString", reinterpret_cast<void *>(cuGetErrorString)},
  };
  *function = nullptr;
  for (const auto &[name, address] : known) {
    if (!std::strcmp(name, symbol)) *function = address;
  }
  if (found) {
    *found = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  }
  return *function ? cudaSuccess : ask("unsupported", symbol);
}
cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult *found) {
  return cudaGetDriverEntryPoint(symbol, function, flags, found);
}

// Called in place of a function that is not here; see build.py.
int nvfp4_unsupported(const char *name) { return ask("unsupported", name); }

}  // extern "C"
