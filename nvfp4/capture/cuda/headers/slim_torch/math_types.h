// The types in which values of a dtype are computed and accumulated.
#pragma once

#include "scalar_type.h"

namespace at {

template <typename T>
struct OpMathType {
  using type = T;
};
#define SLIM_OPMATH(T)   \
  template <>            \
  struct OpMathType<T> { \
    using type = float;  \
  };
SLIM_OPMATH(Half)
SLIM_OPMATH(BFloat16)
SLIM_OPMATH(Float8_e5m2)
SLIM_OPMATH(Float8_e4m3fn)
#undef SLIM_OPMATH
template <typename T>
using opmath_type = typename OpMathType<T>::type;

// On the CPU floats are accumulated as doubles.
template <typename T, bool is_cuda>
using acc_type = std::conditional_t<
    std::is_integral_v<T> && !std::is_same_v<T, bool>, int64_t,
    std::conditional_t<
        std::is_same_v<T, float> && !is_cuda, double,
        std::conditional_t<std::is_same_v<T, BFloat16> && !is_cuda, float, opmath_type<T>>>>;

}  // namespace at
