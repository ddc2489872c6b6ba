// The functions of at:: and torch:: that make or combine tensors.
#pragma once

#include <functional>

#include "grad_mode.h"
#include "tensor.h"

namespace at {

Tensor empty(IntArrayRef size, TensorOptions options = {}, std::optional<MemoryFormat> = std::nullopt);
Tensor zeros(IntArrayRef size, TensorOptions options = {});
Tensor ones(IntArrayRef size, TensorOptions options = {});
Tensor full(IntArrayRef size, const Scalar& value, TensorOptions options = {});
Tensor empty_strided(IntArrayRef size, IntArrayRef stride, TensorOptions options = {});
Tensor empty_like(
    const Tensor& like, TensorOptions options = {}, std::optional<MemoryFormat> = std::nullopt);
Tensor zeros_like(
    const Tensor& like, TensorOptions options = {}, std::optional<MemoryFormat> = std::nullopt);
Tensor ones_like(
    const Tensor& like, TensorOptions options = {}, std::optional<MemoryFormat> = std::nullopt);
Tensor full_like(
    const Tensor& like, const Scalar& value, TensorOptions options = {},
    std::optional<MemoryFormat> = std::nullopt);

// Memory that somebody else owns; the deleter is called when no tensor uses it any more.
Tensor from_blob(void* data, IntArrayRef size, TensorOptions options = {});
Tensor from_blob(void* data, IntArrayRef size, IntArrayRef stride, TensorOptions options = {});
Tensor from_blob(
    void* data, IntArrayRef size, const std::function<void(void*)>& deleter,
    TensorOptions options = {});

}  // namespace at

namespace torch {

using namespace at;
// torch::empty and its like are functions of their own in torch; here they are at::'s.
// A tensor of one number.
Tensor slim_tensor(const Scalar& value, TensorOptions options);
template <typename T, std::enable_if_t<std::is_arithmetic_v<T>, int> = 0>
Tensor tensor(T value, TensorOptions options = {}) {
  return slim_tensor(Scalar(value), options);
}

}  // namespace torch

