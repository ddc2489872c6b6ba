// at::ScalarType and the C++ types behind it, with torch's numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>

#include "half.h"

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

#define SLIM_TYPE(T, name)                                     \
  template <>                                                  \
  struct CppTypeToScalarType<T> {                              \
    static constexpr ScalarType value = ScalarType::name;      \
  };                                                           \
  template <>                                                  \
  struct impl::ScalarTypeToCPPType<ScalarType::name> {         \
    using type = T;                                            \
  };
SLIM_FOR_EACH_TYPE(SLIM_TYPE)
#undef SLIM_TYPE

constexpr ScalarType kByte = ScalarType::Byte, kChar = ScalarType::Char, kShort = ScalarType::Short,
                     kInt = ScalarType::Int, kLong = ScalarType::Long, kHalf = ScalarType::Half,
                     kFloat = ScalarType::Float, kDouble = ScalarType::Double,
                     kComplexFloat = ScalarType::ComplexFloat,
                     kComplexDouble = ScalarType::ComplexDouble, kBool = ScalarType::Bool,
                     kBFloat16 = ScalarType::BFloat16, kFloat8_e5m2 = ScalarType::Float8_e5m2,
                     kFloat8_e4m3fn = ScalarType::Float8_e4m3fn,
                     kFloat8_e5m2fnuz = ScalarType::Float8_e5m2fnuz,
                     kFloat8_e4m3fnuz = ScalarType::Float8_e4m3fnuz,
                     kFloat8_e8m0fnu = ScalarType::Float8_e8m0fnu,
                     kFloat4_e2m1fn_x2 = ScalarType::Float4_e2m1fn_x2,
                     kUInt16 = ScalarType::UInt16, kUInt32 = ScalarType::UInt32,
                     kUInt64 = ScalarType::UInt64;

const char* toString(ScalarType type);
size_t elementSize(ScalarType type);
inline std::ostream& operator<<(std::ostream& out, ScalarType type) { return out << toString(type); }

inline bool isFloatingType(ScalarType t) {
  return t == kDouble || t == kFloat || t == kHalf || t == kBFloat16 || t == kFloat8_e5m2 ||
      t == kFloat8_e4m3fn || t == kFloat8_e5m2fnuz || t == kFloat8_e4m3fnuz ||
      t == kFloat8_e8m0fnu || t == kFloat4_e2m1fn_x2;
}
inline bool isIntegralType(ScalarType t, bool include_bool) {
  return (t <= kLong) || (t >= kUInt16 && t <= ScalarType::Int7) || (include_bool && t == kBool);
}

}  // namespace c10

namespace caffe2 {

// What Tensor::dtype() returns.
class TypeMeta {
 public:
  TypeMeta() = default;
  static TypeMeta fromScalarType(c10::ScalarType type) {
    TypeMeta meta;
    meta.type_ = type;
    return meta;
  }
  template <typename T>
  static TypeMeta Make() {
    return fromScalarType(c10::CppTypeToScalarType<T>::value);
  }
  template <typename T>
  bool Match() const {
    return type_ == c10::CppTypeToScalarType<T>::value;
  }
  bool isScalarType() const { return type_ != c10::ScalarType::Undefined; }
  bool isScalarType(c10::ScalarType type) const { return type_ == type; }
  c10::ScalarType toScalarType() const { return type_; }
  size_t itemsize() const { return c10::elementSize(type_); }

  friend bool operator==(TypeMeta a, TypeMeta b) { return a.type_ == b.type_; }
  friend bool operator!=(TypeMeta a, TypeMeta b) { return a.type_ != b.type_; }

 private:
  c10::ScalarType type_ = c10::ScalarType::Undefined;
};

std::ostream& operator<<(std::ostream& out, TypeMeta type);

inline bool operator==(TypeMeta a, c10::ScalarType b) { return a.isScalarType(b); }
inline bool operator==(c10::ScalarType a, TypeMeta b) { return b.isScalarType(a); }
inline bool operator!=(TypeMeta a, c10::ScalarType b) { return !a.isScalarType(b); }
inline bool operator!=(c10::ScalarType a, TypeMeta b) { return !b.isScalarType(a); }

}  // namespace caffe2

namespace c10 {
inline ScalarType typeMetaToScalarType(caffe2::TypeMeta type) { return type.toScalarType(); }
inline caffe2::TypeMeta scalarTypeToTypeMeta(ScalarType type) {
  return caffe2::TypeMeta::fromScalarType(type);
}
}  // namespace c10

namespace at {
using namespace c10;
}

namespace torch {
using namespace at;
using Dtype = at::ScalarType;
constexpr at::ScalarType kUInt8 = at::kByte, kInt8 = at::kChar, kInt16 = at::kShort,
                         kInt32 = at::kInt, kInt64 = at::kLong, kFloat16 = at::kHalf,
                         kFloat32 = at::kFloat, kFloat64 = at::kDouble,
                         kComplex64 = at::kComplexFloat, kComplex128 = at::kComplexDouble;
}  // namespace torch
