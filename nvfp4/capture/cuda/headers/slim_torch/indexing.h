// What tensor.index({...}) takes.
#pragma once

#include "tensor.h"

namespace at::indexing {

enum class EllipsisIndexType { Ellipsis };
constexpr std::nullopt_t None = std::nullopt;
constexpr EllipsisIndexType Ellipsis = EllipsisIndexType::Ellipsis;

struct Slice {
  Slice(
      std::optional<int64_t> start = std::nullopt, std::optional<int64_t> stop = std::nullopt,
      std::optional<int64_t> step = std::nullopt)
      : start_(start), stop_(stop), step_(step) {}
  std::optional<int64_t> start_, stop_, step_;
};

class TensorIndex {
 public:
  enum class Kind { None, Ellipsis, Integer, Boolean, Slice, Tensor };

  TensorIndex(std::nullopt_t) : kind_(Kind::None) {}
  TensorIndex(EllipsisIndexType) : kind_(Kind::Ellipsis) {}
  TensorIndex(const char* dots);  // "..." only; throws c10::Error
  TensorIndex(int64_t integer) : kind_(Kind::Integer), integer_(integer) {}
  TensorIndex(int integer) : TensorIndex(static_cast<int64_t>(integer)) {}
  template <typename T, std::enable_if_t<std::is_same_v<T, bool>, bool> = true>
  TensorIndex(T boolean) : kind_(Kind::Boolean), integer_(boolean) {}
  TensorIndex(Slice slice) : kind_(Kind::Slice), slice_(slice) {}
  TensorIndex(Tensor tensor) : kind_(Kind::Tensor), tensor_(std::move(tensor)) {}

  Kind slim_kind() const { return kind_; }
  int64_t integer() const { return integer_; }
  const Slice& slice() const { return slice_; }
  const Tensor& tensor() const { return tensor_; }

 private:
  Kind kind_;
  int64_t integer_ = 0;
  Slice slice_;
  Tensor tensor_;
};

}  // namespace at::indexing

namespace torch::indexing {
using namespace at::indexing;
}
