// The 16-bit and 8-bit floating types of c10, at::ScalarType with torch's numbers, and at::Scalar.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <ostream>
#include <type_traits>

#include "errors.h"

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

// float16's bits of a float, rounded to nearest even. Rounding up may carry into the exponent,
// which is what the format wants.
inline uint16_t half_bits(float value) {
  const uint32_t bits = bits_of(value), sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude >= 0x477ff000u) {  // infinity, and what rounds to it, or NaN
    return static_cast<uint16_t>(sign | (magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u));
  }
  if (magnitude < 0x38800000u) {  // subnormal: 0.5 has its smallest value as its last bit
    return static_cast<uint16_t>(sign | (bits_of(float_of(magnitude) + 0.5f) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

inline float half_value(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
  if (magnitude < 0x400u) {
    return float_of(bits_of(static_cast<float>(magnitude) * 0x1p-24f) | sign);
  }
  return float_of(sign | ((magnitude << 13) + (magnitude < 0x7c00u ? 0x38000000u : 0x70000000u)));
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
    x = slim::half_bits(value);
#endif
  }
  C10_HOST_DEVICE operator float() const {
#ifdef __CUDA_ARCH__
    return __half2float(__ushort_as_half(x));
#else
    return slim::half_value(x);
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

// Bits only: kernels compute with CUDA's own types for them.
#define SLIM_BYTE(name)     \
  struct alignas(1) name {  \
    uint8_t x;              \
  };
SLIM_BYTE(Float8_e4m3fn)
SLIM_BYTE(Float8_e5m2)
SLIM_BYTE(Float8_e8m0fnu)
#undef SLIM_BYTE

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
  inline C10_HOST_DEVICE T operator-(const T& a) { return -static_cast<float>(a); } \
  inline std::ostream& operator<<(std::ostream& out, const T& value) {              \
    return out << static_cast<float>(value);                                        \
  }
SLIM_FLOATING(Half)
SLIM_FLOATING(BFloat16)
#undef SLIM_FLOATING
#undef SLIM_ARITHMETIC

}  // namespace c10

namespace c10 {

enum class ScalarType : int8_t {
  Byte, Char, Short, Int, Long, Half, Float, Double, ComplexHalf, ComplexFloat, ComplexDouble, Bool,
  QInt8, QUInt8, QInt32, BFloat16, QUInt4x2, QUInt2x4, Bits1x8, Bits2x4, Bits4x2, Bits8, Bits16,
  Float8_e5m2, Float8_e4m3fn, Float8_e5m2fnuz, Float8_e4m3fnuz, UInt16, UInt32, UInt64,
  UInt1, UInt2, UInt3, UInt4, UInt5, UInt6, UInt7, Int1, Int2, Int3, Int4, Int5, Int6, Int7,
  Float8_e8m0fnu, Float4_e2m1fn_x2,
  Undefined,
};

// The types that have values here: what data_ptr<T>() and the dispatch macros know.
#define SLIM_FOR_EACH_TYPE(_)                                                                  \
  _(uint8_t, Byte) _(int8_t, Char) _(int16_t, Short) _(int, Int) _(int64_t, Long)              \
  _(c10::Half, Half) _(float, Float) _(double, Double) _(bool, Bool) _(c10::BFloat16, BFloat16) \
  _(c10::Float8_e5m2, Float8_e5m2) _(c10::Float8_e4m3fn, Float8_e4m3fn)                        \
  _(c10::Float8_e8m0fnu, Float8_e8m0fnu) _(uint16_t, UInt16) _(uint32_t, UInt32)               \
  _(uint64_t, UInt64)

template <typename T>
struct CppTypeToScalarType;

namespace impl {
template <ScalarType type>
struct ScalarTypeToCPPType;
template <ScalarType type>
using ScalarTypeToCPPTypeT = typename ScalarTypeToCPPType<type>::type;
}  // namespace impl

#define SLIM_TYPE(T, name)                                              \
  template <>                                                           \
  struct CppTypeToScalarType<T> {                                       \
    static constexpr ScalarType value = ScalarType::name;               \
  };                                                                    \
  template <>                                                           \
  struct impl::ScalarTypeToCPPType<ScalarType::name> {                  \
    using type = T;                                                     \
  };                                                                    \
  constexpr ScalarType k##name = ScalarType::name;
SLIM_FOR_EACH_TYPE(SLIM_TYPE)
#undef SLIM_TYPE
constexpr ScalarType kFloat4_e2m1fn_x2 = ScalarType::Float4_e2m1fn_x2;

const char* toString(ScalarType type);
size_t elementSize(ScalarType type);
inline std::ostream& operator<<(std::ostream& out, ScalarType type) { return out << toString(type); }

}  // namespace c10

namespace caffe2 {

// What Tensor::dtype() returns.
class TypeMeta {
 public:
  TypeMeta(c10::ScalarType type) : type_(type) {}
  c10::ScalarType toScalarType() const { return type_; }
  size_t itemsize() const { return c10::elementSize(type_); }

 private:
  c10::ScalarType type_;
};

inline bool operator==(TypeMeta a, TypeMeta b) { return a.toScalarType() == b.toScalarType(); }
inline bool operator!=(TypeMeta a, TypeMeta b) { return !(a == b); }

}  // namespace caffe2

namespace c10 {

// One number whose type is known at run time only.
class Scalar {
 public:
  template <typename T, std::enable_if_t<std::is_arithmetic_v<T>, int> = 0>
  Scalar(T value)
      : is_double_(std::is_floating_point_v<T>), is_bool_(std::is_same_v<T, bool>),
        integer_(static_cast<int64_t>(value)), double_(static_cast<double>(value)) {}
  bool isFloatingPoint() const { return is_double_; }
  bool isBoolean() const { return is_bool_; }
  template <typename T>
  T to() const {
    return is_double_ ? static_cast<T>(double_) : static_cast<T>(integer_);
  }

 private:
  bool is_double_, is_bool_;
  int64_t integer_;
  double double_;
};

}  // namespace c10

namespace at {
using namespace c10;
}

namespace torch {
using namespace at;
using Dtype = at::ScalarType;
constexpr at::ScalarType kUInt8 = at::kByte, kInt8 = at::kChar, kInt16 = at::kShort,
                         kInt32 = at::kInt, kInt64 = at::kLong, kFloat16 = at::kHalf,
                         kFloat32 = at::kFloat, kFloat64 = at::kDouble;
}  // namespace torch
