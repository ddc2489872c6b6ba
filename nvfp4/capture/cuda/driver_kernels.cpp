// The library of the CUDA driver, continued: modules, kernels, launches and memory.

#include "driver.h"

#include <cstring>

namespace {

const CUmemoryPool pool = reinterpret_cast<CUmemoryPool>(0x20);

struct Dims {
  unsigned x, y, z;
};

CUresult launch(CUfunction function, Dims grid, Dims block, Dims cluster, unsigned shared,
                CUstream stream, void **parameters, void **extra, bool programmatic = false) {
  if (extra) return ask("launch_packed", function);
  return ask("launch", function, &grid, &block, &cluster, parameters, shared, stream,
             programmatic);
}

}  // namespace

extern "C" {

// Modules and libraries, functions and kernels.

CUresult cuModuleLoad(CUmodule *module, const char *name) {
  return ask("module_load_file", module, name);
}
CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  return ask("module_load", module, image);
}
CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned, CUjit_option *,
                            void **) {
  return ask("module_load", module, image);
}
CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image) {
  return ask("module_load", module, image);
}
CUresult cuModuleUnload(CUmodule module) { return ask("module_unload", module); }
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  return ask("module_function", function, module, name);
}
CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module,
                              const char *name) {
  return ask("module_variable", address, bytes, module, name);
}
CUresult cuLibraryLoadData(CUlibrary *library, const void *image, CUjit_option *, void **, unsigned,
                           CUlibraryOption *, void **, unsigned) {
  return ask("module_load", library, image);
}
CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *name, CUjit_option *, void **,
                               unsigned, CUlibraryOption *, void **, unsigned) {
  return ask("module_load_file", library, name);
}
CUresult cuLibraryUnload(CUlibrary library) { return ask("module_unload", library); }
CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
  return ask("module_function", kernel, library, name);
}
CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library) {
  *module = reinterpret_cast<CUmodule>(library);
  return CUDA_SUCCESS;
}
CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *bytes, CUlibrary library,
                            const char *name) {
  return ask("module_variable", address, bytes, library, name);
}
CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
  *function = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
}
CUresult cuFuncGetName(const char **name, CUfunction function) {
  return ask("kernel_name", name, function);
}
CUresult cuKernelGetName(const char **name, CUkernel kernel) {
  return ask("kernel_name", name, kernel);
}
CUresult cuFuncGetAttribute(int *value, CUfunction_attribute which, CUfunction function) {
  return ask("function_attribute", value, function, which);
}
CUresult cuKernelGetAttribute(int *value, CUfunction_attribute which, CUkernel kernel, CUdevice) {
  return cuFuncGetAttribute(value, which, reinterpret_cast<CUfunction>(kernel));
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute which, int value) {
  return ask("cudaFuncSetAttribute", function, which, value);
}
CUresult cuKernelSetAttribute(CUfunction_attribute which, int value, CUkernel kernel, CUdevice) {
  return ask("cudaFuncSetAttribute", kernel, which, value);
}
CUresult cuFuncSetCacheConfig(CUfunction, CUfunc_cache) { return CUDA_SUCCESS; }
CUresult cuKernelSetCacheConfig(CUkernel, CUfunc_cache, CUdevice) { return CUDA_SUCCESS; }
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads,
                                                     size_t shared) {
  return ask("occupancy", blocks, function, threads, shared);
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function,
                                                              int threads, size_t shared,
                                                              unsigned) {
  return ask("occupancy", blocks, function, threads, shared);
}
CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction function, int blocks,
                                                 int threads) {
  return ask("available_shared", bytes, function, blocks, threads);
}

// Launches.

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                        CUstream stream, void **parameters, void **extra) {
  return launch(function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, {1, 1, 1}, shared,
                stream, parameters, extra);
}
CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                   unsigned grid_z, unsigned block_x, unsigned block_y,
                                   unsigned block_z, unsigned shared, CUstream stream,
                                   void **parameters) {
  Dims grid = {grid_x, grid_y, grid_z}, block = {block_x, block_y, block_z};
  return ask("launch_cooperative", function, &grid, &block, parameters, shared, stream);
}
CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters,
                          void **extra) {
  const CUlaunchConfig &c = *config;
  Dims cluster = {1, 1, 1};
  bool programmatic = false;
  for (unsigned i = 0; i < c.numAttrs; ++i) {
    const CUlaunchAttribute &each = c.attrs[i];
    if (each.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
      cluster = {each.value.clusterDim.x, each.value.clusterDim.y, each.value.clusterDim.z};
    } else if (each.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) {
      programmatic = each.value.programmaticStreamSerializationAllowed;
    } else if (each.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE && each.value.cooperative) {
      return cuLaunchCooperativeKernel(function, c.gridDimX, c.gridDimY, c.gridDimZ, c.blockDimX,
                                       c.blockDimY, c.blockDimZ, c.sharedMemBytes, c.hStream,
                                       parameters);
    }
  }
  return launch(function, {c.gridDimX, c.gridDimY, c.gridDimZ},
                {c.blockDimX, c.blockDimY, c.blockDimZ}, cluster, c.sharedMemBytes, c.hStream,
                parameters, extra, programmatic);
}
CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data) {
  const CUresult error = ask("alive", stream);
  if (error != CUDA_SUCCESS) return error;
  function(data);
  return CUDA_SUCCESS;
}

// Memory. All pools are one.

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *out, CUdevice) {
  *out = pool;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetMemPool(CUmemoryPool *out, CUdevice) {
  *out = pool;
  return CUDA_SUCCESS;
}
CUresult cuDeviceSetMemPool(CUdevice, CUmemoryPool) { return CUDA_SUCCESS; }
CUresult cuMemGetInfo_v2(size_t *free, size_t *total) { return ask("cudaMemGetInfo", free, total); }
CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size) {
  return ask("cuMemAlloc", address, size);
}
CUresult cuMemAllocAsync(CUdeviceptr *address, size_t size, CUstream stream) {
  return ask_on(stream, "cuMemAlloc", address, size);
}
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t size, CUmemoryPool,
                                 CUstream stream) {
  return ask_on(stream, "cuMemAlloc", address, size);
}
CUresult cuMemAllocManaged(CUdeviceptr *address, size_t size, unsigned) {
  return ask("host_memory", address, size);
}
CUresult cuMemAllocHost_v2(void **address, size_t size) {
  return ask("host_memory", address, size);
}
CUresult cuMemHostAlloc(void **address, size_t size, unsigned) {
  return ask("host_memory", address, size);
}
CUresult cuMemFree_v2(CUdeviceptr address) { return ask("cudaFree", address); }
CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  return ask_on(stream, "cudaFree", address);
}
CUresult cuMemFreeHost(void *address) { return ask("cudaFree", address); }
CUresult cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *) {
  *out = pool;
  return CUDA_SUCCESS;
}
CUresult cuMemPoolDestroy(CUmemoryPool) { return CUDA_SUCCESS; }
CUresult cuMemPoolTrimTo(CUmemoryPool, size_t) { return CUDA_SUCCESS; }
CUresult cuMemPoolSetAttribute(CUmemoryPool, CUmemPool_attribute, void *) { return CUDA_SUCCESS; }
CUresult cuMemPoolGetAttribute(CUmemoryPool, CUmemPool_attribute which, void *value) {
  std::memset(value, 0, which < CU_MEMPOOL_ATTR_RELEASE_THRESHOLD ? 4 : 8);
  return CUDA_SUCCESS;
}
CUresult cuMemGetAddressRange_v2(CUdeviceptr *start, size_t *size, CUdeviceptr address) {
  return ask("address_range", start, size, address);
}
CUresult cuPointerGetAttribute(void *value, CUpointer_attribute which, CUdeviceptr address) {
  return ask("pointer_attribute", value, which, address);
}
CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *which, void **values,
                                CUdeviceptr address) {
  CUresult error = CUDA_SUCCESS;
  for (unsigned i = 0; i < count && error == CUDA_SUCCESS; ++i) {
    error = cuPointerGetAttribute(values[i], which[i], address);
  }
  return error;
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t size) {
  return ask("cudaMemcpy", to, from, size, 4);
}
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  return ask_on(stream, "cudaMemcpy", to, from, size, 4);
}
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size) {
  return ask("cudaMemcpy", to, from, size, 1);
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, CUstream stream) {
  return ask_on(stream, "cudaMemcpy", to, from, size, 1);
}
CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size) {
  return ask("cudaMemcpy", to, from, size, 2);
}
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, CUstream stream) {
  return ask_on(stream, "cudaMemcpy", to, from, size, 2);
}
CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t size) {
  return ask("cudaMemcpy", to, from, size, 3);
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  return ask_on(stream, "cudaMemcpy", to, from, size, 3);
}
CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
  return ask("fill", to, value, 1, count);
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  return ask_on(stream, "fill", to, value, 1, count);
}
CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t count) {
  return ask("fill", to, value, 2, count);
}
CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
  return ask_on(stream, "fill", to, value, 2, count);
}
CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count) {
  return ask("fill", to, value, 4, count);
}
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
  return ask_on(stream, "fill", to, value, 4, count);
}

}  // extern "C"
