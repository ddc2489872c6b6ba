// The types that c10 has for C++ types, at::ScalarType with torch's numbers, and at::Scalar.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "errors.h"
#ifndef SLIM_WITHOUT_FLOATS
#include "floats.h"
#endif

namespace c10 {

struct Half;
struct BFloat16;

// Bits only: kernels compute with CUDA's own types for them.
#define SLIM_BYTE(name)     \
  struct alignas(1) name {  \
    uint8_t x;              \
  };
SLIM_BYTE(Float8_e4m3fn)
SLIM_BYTE(Float8_e5m2)
SLIM_BYTE(Float8_e8m0fnu)
SLIM_BYTE(Float4_e2m1fn_x2)
#undef SLIM_BYTE

// The types that have values here, with torch's numbers: C++ type, name in C++, number, and name in
// Python. A source that names another one takes torch's own headers.
#define SLIM_FOR_EACH_TYPE(_)                                                                   \
  _(uint8_t, Byte, 0, uint8) _(int8_t, Char, 1, int8) _(int16_t, Short, 2, int16)               \
  _(int, Int, 3, int32) _(int64_t, Long, 4, int64) _(c10::Half, Half, 5, float16)               \
  _(float, Float, 6, float32) _(double, Double, 7, float64) _(bool, Bool, 11, bool)             \
  _(c10::BFloat16, BFloat16, 15, bfloat16) _(c10::Float8_e5m2, Float8_e5m2, 23, float8_e5m2)    \
  _(c10::Float8_e4m3fn, Float8_e4m3fn, 24, float8_e4m3fn) _(uint16_t, UInt16, 27, uint16)       \
  _(uint32_t, UInt32, 28, uint32) _(uint64_t, UInt64, 29, uint64)                               \
  _(c10::Float8_e8m0fnu, Float8_e8m0fnu, 44, float8_e8m0fnu)                                    \
  _(c10::Float4_e2m1fn_x2, Float4_e2m1fn_x2, 45, float4_e2m1fn_x2)

#define SLIM_NUMBER(T, name, number, python) name = number,
enum class ScalarType : int8_t { SLIM_FOR_EACH_TYPE(SLIM_NUMBER) Undefined = 46 };
#undef SLIM_NUMBER

template <typename T>
struct CppTypeToScalarType;

namespace impl {
template <ScalarType type>
struct ScalarTypeToCPPType;
template <ScalarType type>
using ScalarTypeToCPPTypeT = typename ScalarTypeToCPPType<type>::type;
}  // namespace impl

#define SLIM_TYPE(T, name, number, python)                              \
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

const char* toString(ScalarType type);
size_t elementSize(ScalarType type);

}  // namespace c10

namespace caffe2 {

// The type of Tensor::dtype().
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

namespace torch {
using Dtype = at::ScalarType;
constexpr at::ScalarType kUInt8 = at::kByte, kInt8 = at::kChar, kInt16 = at::kShort,
                         kInt32 = at::kInt, kInt64 = at::kLong, kFloat16 = at::kHalf,
                         kFloat32 = at::kFloat, kFloat64 = at::kDouble;
}  // namespace torch
