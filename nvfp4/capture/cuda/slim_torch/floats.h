// The 16-bit floating types of c10, by CUDA's. A source that names neither goes without.
#pragma once

#ifdef __CUDACC__  // only then do torch's own headers include these
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp4.h>
#include <cuda_fp6.h>
#include <cuda_fp8.h>
#define SLIM_CONVERSION(function, value) inline C10_HOST_DEVICE function { return value; }
#elif !defined(SLIM_CONVERSION)  // slim_torch.cpp has them
#define SLIM_CONVERSION(function, value) function;
#endif

namespace slim {
SLIM_CONVERSION(unsigned short half_of(float value), __half_as_ushort(__float2half(value)))
SLIM_CONVERSION(unsigned short bfloat_of(float value), __bfloat16_as_ushort(__float2bfloat16(value)))
SLIM_CONVERSION(float of_half(unsigned short bits), __half2float(__ushort_as_half(bits)))
SLIM_CONVERSION(float of_bfloat(unsigned short bits), __bfloat162float(__ushort_as_bfloat16(bits)))
}  // namespace slim

namespace c10 {

struct alignas(2) Half {
  unsigned short x;
  struct from_bits_t {};
  C10_HOST_DEVICE static constexpr from_bits_t from_bits() { return from_bits_t(); }

  Half() = default;
  constexpr C10_HOST_DEVICE Half(unsigned short bits, from_bits_t) : x(bits) {}
  C10_HOST_DEVICE Half(float value) : x(slim::half_of(value)) {}
  C10_HOST_DEVICE operator float() const { return slim::of_half(x); }
#ifdef __CUDACC__
  C10_HOST_DEVICE Half(const __half& value) : x(__half_as_ushort(value)) {}
  C10_HOST_DEVICE operator __half() const { return __ushort_as_half(x); }
#endif
};

struct alignas(2) BFloat16 {
  unsigned short x;
  struct from_bits_t {};
  C10_HOST_DEVICE static constexpr from_bits_t from_bits() { return from_bits_t(); }

  BFloat16() = default;
  constexpr C10_HOST_DEVICE BFloat16(unsigned short bits, from_bits_t) : x(bits) {}
  C10_HOST_DEVICE BFloat16(float value) : x(slim::bfloat_of(value)) {}
  C10_HOST_DEVICE operator float() const { return slim::of_bfloat(x); }
#ifdef __CUDACC__
  C10_HOST_DEVICE BFloat16(const __nv_bfloat16& value) : x(__bfloat16_as_ushort(value)) {}
  C10_HOST_DEVICE explicit operator __nv_bfloat16() const { return __ushort_as_bfloat16(x); }
#endif
};

// Two values of one of these types give that type; with float, double or an integer as in torch.
#define SLIM_ARITHMETIC(T, op)                                                                    \
  inline C10_HOST_DEVICE T operator op(const T& a, const T& b) {                                  \
    return static_cast<float>(a) op static_cast<float>(b);                                        \
  }                                                                                               \
  inline C10_HOST_DEVICE float operator op(T a, float b) { return static_cast<float>(a) op b; }   \
  inline C10_HOST_DEVICE float operator op(float a, T b) { return a op static_cast<float>(b); }   \
  inline C10_HOST_DEVICE double operator op(T a, double b) { return static_cast<double>(a) op b; } \
  inline C10_HOST_DEVICE double operator op(double a, T b) { return a op static_cast<double>(b); } \
  inline C10_HOST_DEVICE T operator op(T a, int b) { return a op static_cast<T>(b); }             \
  inline C10_HOST_DEVICE T operator op(int a, T b) { return static_cast<T>(a) op b; }             \
  inline C10_HOST_DEVICE T operator op(T a, int64_t b) { return a op static_cast<T>(b); }         \
  inline C10_HOST_DEVICE T operator op(int64_t a, T b) { return static_cast<T>(a) op b; }         \
  inline C10_HOST_DEVICE T& operator op##=(T& a, const T& b) {                                    \
    a = a op b;                                                                                   \
    return a;                                                                                     \
  }                                                                                               \
  inline C10_HOST_DEVICE float& operator op##=(float& a, const T& b) {                            \
    return a op##= static_cast<float>(b);                                                         \
  }
#define SLIM_FLOATING(T)                                                            \
  SLIM_ARITHMETIC(T, +)                                                             \
  SLIM_ARITHMETIC(T, -)                                                             \
  SLIM_ARITHMETIC(T, *)                                                             \
  SLIM_ARITHMETIC(T, /)                                                             \
  inline C10_HOST_DEVICE T operator-(const T& a) { return -static_cast<float>(a); }
SLIM_FLOATING(Half)
SLIM_FLOATING(BFloat16)
#undef SLIM_FLOATING
#undef SLIM_ARITHMETIC

}  // namespace c10
