// The 16-bit and 8-bit floating types of c10: bits in memory, float in arithmetic.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <ostream>
#include <type_traits>

#include "macros.h"

#ifdef __CUDACC__
#include <cuda_fp16.h>
struct __nv_bfloat16;  // cuda_bf16.h is left to who needs it: parsing it takes a tenth of a second
#endif

namespace slim {

C10_HOST_DEVICE inline uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

C10_HOST_DEVICE inline float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

// Rounds a finite float below the largest value of a format to it, to nearest even; returns the
// magnitude's bits. Rounding up may carry into the exponent, which is what the format wants.
template <int mantissa_bits, int bias>
C10_HOST_DEVICE inline uint32_t round_to(uint32_t magnitude) {
  constexpr int dropped = 23 - mantissa_bits;
  constexpr uint32_t smallest_normal = static_cast<uint32_t>(127 - bias + 1) << 23;
  if (magnitude < smallest_normal) {
    // A number this size has the format's smallest subnormal as its last mantissa bit.
    constexpr uint32_t magic = static_cast<uint32_t>(127 - bias + 1 + dropped) << 23;
    return bits_of(float_of(magnitude) + float_of(magic)) - magic;
  }
  const uint32_t odd = (magnitude >> dropped) & 1;
  const uint32_t rounded = magnitude + ((1u << (dropped - 1)) - 1) + odd;
  return (rounded - (static_cast<uint32_t>(127 - bias) << 23)) >> dropped;
}

// The float of a finite magnitude of a format.
template <int mantissa_bits, int bias>
C10_HOST_DEVICE inline float widen(uint32_t magnitude) {
  const uint32_t exponent = magnitude >> mantissa_bits;
  const uint32_t mantissa = magnitude & ((1u << mantissa_bits) - 1);
  if (exponent == 0) {
    return static_cast<float>(mantissa) *
        float_of(static_cast<uint32_t>(128 - bias - mantissa_bits) << 23);
  }
  return float_of(((exponent + 127 - bias) << 23) | (mantissa << (23 - mantissa_bits)));
}

// Finite overflow and infinity become `infinity`, NaN becomes `nan`.
template <int mantissa_bits, int bias>
C10_HOST_DEVICE inline uint32_t narrow(
    float value, uint32_t overflow_from, uint32_t infinity, uint32_t nan, int sign_shift) {
  const uint32_t bits = bits_of(value);
  const uint32_t sign = (bits >> 31) << sign_shift;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return sign | nan;
  }
  return sign |
      (magnitude >= overflow_from ? infinity : round_to<mantissa_bits, bias>(magnitude));
}

}  // namespace slim

namespace c10 {

struct alignas(2) Half {
  unsigned short x;
  struct from_bits_t {};
  C10_HOST_DEVICE static constexpr from_bits_t from_bits() { return from_bits_t(); }

  Half() = default;
  constexpr C10_HOST_DEVICE Half(unsigned short bits, from_bits_t) : x(bits) {}
  C10_HOST_DEVICE Half(float value) {
#ifdef __CUDA_ARCH__
    x = __half_as_ushort(__float2half(value));
#else
    x = static_cast<unsigned short>(
        slim::narrow<10, 15>(value, 0x477ff000u, 0x7c00u, 0x7e00u, 15));
#endif
  }
  C10_HOST_DEVICE operator float() const {
#ifdef __CUDA_ARCH__
    return __half2float(__ushort_as_half(x));
#else
    const uint32_t sign = static_cast<uint32_t>(x & 0x8000u) << 16;
    const uint32_t magnitude = x & 0x7fffu;
    const float size = magnitude < 0x7c00u
        ? slim::widen<10, 15>(magnitude)
        : slim::float_of(0x7f800000u | ((magnitude & 0x3ffu) << 13));
    return slim::float_of(slim::bits_of(size) | sign);
#endif
  }
#ifdef __CUDACC__
  C10_HOST_DEVICE Half(const __half& value) { x = __half_as_ushort(value); }
  C10_HOST_DEVICE operator __half() const { return __ushort_as_half(x); }
#endif
};

struct alignas(2) BFloat16 {
  uint16_t x;
  struct from_bits_t {};
  C10_HOST_DEVICE static constexpr from_bits_t from_bits() { return from_bits_t(); }

  BFloat16() = default;
  constexpr C10_HOST_DEVICE BFloat16(unsigned short bits, from_bits_t) : x(bits) {}
  C10_HOST_DEVICE BFloat16(float value) {
    const uint32_t bits = slim::bits_of(value);
    x = (bits & 0x7fffffffu) > 0x7f800000u
        ? static_cast<uint16_t>(0x7fc0)
        : static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
  }
  C10_HOST_DEVICE operator float() const { return slim::float_of(static_cast<uint32_t>(x) << 16); }
#ifdef __CUDACC__
  template <typename T, std::enable_if_t<std::is_same_v<T, __nv_bfloat16>, int> = 0>
  C10_HOST_DEVICE BFloat16(const T& value) {
    memcpy(&x, reinterpret_cast<const void*>(&value), sizeof x);
  }
  template <typename T, std::enable_if_t<std::is_same_v<T, __nv_bfloat16>, int> = 0>
  C10_HOST_DEVICE explicit operator T() const {
    T value;
    memcpy(reinterpret_cast<void*>(&value), &x, sizeof x);
    return value;
  }
#endif
};

struct alignas(1) Float8_e4m3fn {
  uint8_t x;
  struct from_bits_t {};
  C10_HOST_DEVICE static constexpr from_bits_t from_bits() { return from_bits_t(); }

  Float8_e4m3fn() = default;
  constexpr C10_HOST_DEVICE Float8_e4m3fn(uint8_t bits, from_bits_t) : x(bits) {}
  // 448 is the largest value; what rounds past it is NaN.
  C10_HOST_DEVICE Float8_e4m3fn(float value)
      : x(static_cast<uint8_t>(slim::narrow<3, 7>(value, 0x43f00000u, 0x7fu, 0x7fu, 7))) {}
  C10_HOST_DEVICE operator float() const {
    const uint32_t sign = static_cast<uint32_t>(x & 0x80u) << 24;
    const uint32_t magnitude = x & 0x7fu;
    const float size =
        magnitude == 0x7fu ? slim::float_of(0x7ff00000u) : slim::widen<3, 7>(magnitude);
    return slim::float_of(slim::bits_of(size) | sign);
  }
  C10_HOST_DEVICE bool isnan() const { return (x & 0x7fu) == 0x7fu; }
};

struct alignas(1) Float8_e5m2 {
  uint8_t x;
  struct from_bits_t {};
  C10_HOST_DEVICE static constexpr from_bits_t from_bits() { return from_bits_t(); }

  Float8_e5m2() = default;
  constexpr C10_HOST_DEVICE Float8_e5m2(uint8_t bits, from_bits_t) : x(bits) {}
  C10_HOST_DEVICE Float8_e5m2(float value)
      : x(static_cast<uint8_t>(slim::narrow<2, 15>(value, 0x47800000u, 0x7cu, 0x7fu, 7))) {}
  C10_HOST_DEVICE operator float() const {
    return Half(static_cast<unsigned short>(x << 8), Half::from_bits());
  }
};

// Bits only: torch's own class for them does no more, or nobody computes with them on the host.
struct alignas(1) Float8_e8m0fnu {
  uint8_t x;
};
struct alignas(1) Float4_e2m1fn_x2 {
  uint8_t val_;
  Float4_e2m1fn_x2() = default;
  C10_HOST_DEVICE explicit Float4_e2m1fn_x2(uint8_t val) : val_(val) {}
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
#define SLIM_FLOATING(T)                                                           \
  SLIM_ARITHMETIC(T, +)                                                            \
  SLIM_ARITHMETIC(T, -)                                                            \
  SLIM_ARITHMETIC(T, *)                                                            \
  SLIM_ARITHMETIC(T, /)                                                            \
  inline C10_HOST_DEVICE T operator-(const T& a) { return -static_cast<float>(a); } \
  inline std::ostream& operator<<(std::ostream& out, const T& value) {             \
    return out << static_cast<float>(value);                                       \
  }
SLIM_FLOATING(Half)
SLIM_FLOATING(BFloat16)
SLIM_FLOATING(Float8_e4m3fn)
SLIM_FLOATING(Float8_e5m2)
#undef SLIM_FLOATING
#undef SLIM_ARITHMETIC

#if defined(__CUDACC__)
inline C10_DEVICE Half __ldg(const Half* address) {
  return Half(::__ldg(reinterpret_cast<const unsigned short*>(address)), Half::from_bits());
}
#endif

}  // namespace c10

namespace std {

#define SLIM_LIMITS(T, lowest_bits, max_bits, min_bits, epsilon_bits, nan_bits)           \
  template <>                                                                             \
  class numeric_limits<c10::T> {                                                          \
   public:                                                                                \
    static constexpr bool is_specialized = true;                                          \
    static constexpr bool is_signed = true;                                               \
    static constexpr bool is_integer = false;                                             \
    static constexpr bool is_exact = false;                                               \
    static constexpr c10::T lowest() { return c10::T(lowest_bits, c10::T::from_bits()); } \
    static constexpr c10::T max() { return c10::T(max_bits, c10::T::from_bits()); }       \
    static constexpr c10::T min() { return c10::T(min_bits, c10::T::from_bits()); }       \
    static constexpr c10::T epsilon() {                                                   \
      return c10::T(epsilon_bits, c10::T::from_bits());                                   \
    }                                                                                     \
    static constexpr c10::T quiet_NaN() { return c10::T(nan_bits, c10::T::from_bits()); } \
  };
SLIM_LIMITS(Half, 0xfbff, 0x7bff, 0x0400, 0x1400, 0x7e00)
SLIM_LIMITS(BFloat16, 0xff7f, 0x7f7f, 0x0080, 0x3c00, 0x7fc0)
SLIM_LIMITS(Float8_e4m3fn, 0xfe, 0x7e, 0x08, 0x20, 0x7f)
SLIM_LIMITS(Float8_e5m2, 0xfb, 0x7b, 0x04, 0x34, 0x7f)
#undef SLIM_LIMITS

}  // namespace std
