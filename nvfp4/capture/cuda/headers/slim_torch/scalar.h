// at::Scalar: one number whose type is known at run time only.
#pragma once

#include <type_traits>

#include "exception.h"
#include "scalar_type.h"

namespace c10 {

class Scalar {
 public:
  Scalar() : Scalar(int64_t{0}) {}
  template <
      typename T,
      std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>, int> = 0>
  Scalar(T value) : kind_(kLong), integer_(static_cast<int64_t>(value)) {
    if constexpr (std::is_unsigned_v<T> && sizeof(T) == 8) {
      kind_ = value >> 63 ? kUInt64 : kLong;
    }
  }
  template <typename T, std::enable_if_t<std::is_same_v<T, bool>, bool> = true>
  Scalar(T value) : kind_(kBool), integer_(value) {}
  Scalar(double value) : kind_(kDouble), floating_(value) {}
  Scalar(float value) : Scalar(static_cast<double>(value)) {}
  Scalar(Half value) : Scalar(static_cast<double>(static_cast<float>(value))) {}
  Scalar(BFloat16 value) : Scalar(static_cast<double>(static_cast<float>(value))) {}

  bool isFloatingPoint() const { return kind_ == kDouble; }
  bool isBoolean() const { return kind_ == kBool; }
  bool isIntegral(bool include_bool) const {
    return kind_ == kLong || kind_ == kUInt64 || (include_bool && isBoolean());
  }
  bool isComplex() const { return false; }
  ScalarType type() const { return kind_; }

  // The value as a T. Throws c10::Error where it does not fit.
  template <typename T>
  T to() const {
    if constexpr (std::is_same_v<T, bool>) {
      return kind_ == kDouble ? floating_ != 0 : integer_ != 0;
    } else if constexpr (std::is_same_v<T, double>) {
      return number();
    } else if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(integer_in(
          static_cast<double>(std::numeric_limits<T>::lowest()),
          static_cast<double>(std::numeric_limits<T>::max()), std::is_signed_v<T>, sizeof(T)));
    } else {
      return static_cast<T>(static_cast<float>(number_up_to(
          static_cast<double>(static_cast<float>(std::numeric_limits<T>::max())))));
    }
  }
  uint8_t toByte() const { return to<uint8_t>(); }
  int8_t toChar() const { return to<int8_t>(); }
  int16_t toShort() const { return to<int16_t>(); }
  int toInt() const { return to<int>(); }
  int64_t toLong() const { return to<int64_t>(); }
  Half toHalf() const { return to<Half>(); }
  float toFloat() const { return to<float>(); }
  double toDouble() const { return to<double>(); }
  bool toBool() const { return to<bool>(); }
  BFloat16 toBFloat16() const { return to<BFloat16>(); }
  Scalar operator-() const;

 private:
  double number() const;
  double number_up_to(double largest) const;
  int64_t integer_in(double lowest, double highest, bool is_signed, size_t bytes) const;

  ScalarType kind_;
  union {
    int64_t integer_;
    double floating_;
  };
};

std::ostream& operator<<(std::ostream& out, const Scalar& value);

}  // namespace c10
