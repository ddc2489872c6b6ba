// Compiler macros of c10/macros/Macros.h that extensions use.
#pragma once

#ifdef SLIM_TORCH_EVERYTHING
#include "everything.h"
#endif

#ifdef __CUDACC__
#define C10_HOST_DEVICE __host__ __device__
#define C10_DEVICE __device__
#define C10_HOST __host__
#else
#define C10_HOST_DEVICE
#define C10_DEVICE
#define C10_HOST
#endif

#define C10_LIKELY(expr) (__builtin_expect(static_cast<bool>(expr), 1))
#define C10_UNLIKELY(expr) (__builtin_expect(static_cast<bool>(expr), 0))
#define C10_ALWAYS_INLINE __attribute__((__always_inline__)) inline
#define C10_NOINLINE __attribute__((noinline))
#define C10_UNUSED __attribute__((__unused__))
#define C10_EXPORT
#define C10_API
#define TORCH_API
#define C10_CUDA_API
#define TORCH_CUDA_CU_API
#define TORCH_CUDA_CPP_API

#define C10_STRINGIZE_IMPL(x) #x
#define C10_STRINGIZE(x) C10_STRINGIZE_IMPL(x)
#define C10_CONCATENATE_IMPL(a, b) a##b
#define C10_CONCATENATE(a, b) C10_CONCATENATE_IMPL(a, b)
#define C10_ANONYMOUS_VARIABLE(name) C10_CONCATENATE(name, __COUNTER__)

#ifdef __CUDACC__
#define C10_WARP_SIZE 32
#define C10_MAX_THREADS_PER_BLOCK(threads) (threads)
#define C10_LAUNCH_BOUNDS_1(threads) __launch_bounds__(threads)
#define C10_LAUNCH_BOUNDS_2(threads, blocks) __launch_bounds__(threads, blocks)
#endif
