// The functions of at:: and torch:: that make or combine tensors.
#pragma once

#include <functional>

#include "grad_mode.h"
#include "indexing.h"
#include "tensor.h"

namespace at {

Tensor empty(IntArrayRef size, TensorOptions options = {}, std::optional<MemoryFormat> = std::nullopt);
Tensor zeros(IntArrayRef size, TensorOptions options = {});
Tensor ones(IntArrayRef size, TensorOptions options = {});
Tensor rand(IntArrayRef size, TensorOptions options = {});
Tensor randn(IntArrayRef size, TensorOptions options = {});
Tensor full(IntArrayRef size, const Scalar& value, TensorOptions options = {});
Tensor randint(int64_t high, IntArrayRef size, TensorOptions options = {});
Tensor randint(int64_t low, int64_t high, IntArrayRef size, TensorOptions options = {});
Tensor empty_strided(IntArrayRef size, IntArrayRef stride, TensorOptions options = {});
Tensor arange(const Scalar& end, TensorOptions options = {});
Tensor arange(const Scalar& start, const Scalar& end, TensorOptions options = {});
Tensor arange(
    const Scalar& start, const Scalar& end, const Scalar& step, TensorOptions options = {});
Tensor linspace(
    const Scalar& start, const Scalar& end, int64_t steps, TensorOptions options = {});
Tensor eye(int64_t n, TensorOptions options = {});
Tensor scalar_tensor(const Scalar& value, TensorOptions options = {});
Tensor empty_like(
    const Tensor& like, TensorOptions options = {}, std::optional<MemoryFormat> = std::nullopt);
Tensor zeros_like(
    const Tensor& like, TensorOptions options = {}, std::optional<MemoryFormat> = std::nullopt);
Tensor ones_like(
    const Tensor& like, TensorOptions options = {}, std::optional<MemoryFormat> = std::nullopt);
Tensor rand_like(
    const Tensor& like, TensorOptions options = {}, std::optional<MemoryFormat> = std::nullopt);
Tensor randn_like(
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

#define UNARY(name) inline Tensor name(const Tensor& self) { return self.name(); }
#define UNARY_IN_PLACE(name) UNARY(name)
#define TENSORS(name) \
  inline Tensor name(const Tensor& self, const Tensor& other) { return self.name(other); }
#define BINARY_IN_PLACE(name) \
  TENSORS(name)               \
  inline Tensor name(const Tensor& self, const Scalar& other) { return self.name(other); }
#include "ops.def"
#undef UNARY
#undef UNARY_IN_PLACE
#undef TENSORS
#undef BINARY_IN_PLACE

inline Tensor add(const Tensor& self, const Tensor& other, const Scalar& alpha = 1) {
  return self.add(other, alpha);
}
inline Tensor sub(const Tensor& self, const Tensor& other, const Scalar& alpha = 1) {
  return self.sub(other, alpha);
}
inline Tensor sum(const Tensor& self, std::optional<ScalarType> dtype = std::nullopt) {
  return self.sum(dtype);
}
inline Tensor sum(
    const Tensor& self, IntArrayRef dim, bool keepdim = false,
    std::optional<ScalarType> dtype = std::nullopt) {
  return self.sum(dim, keepdim, dtype);
}
inline Tensor mean(const Tensor& self, std::optional<ScalarType> dtype = std::nullopt) {
  return self.mean(dtype);
}
inline Tensor max(const Tensor& self) { return self.max(); }
inline Tensor min(const Tensor& self) { return self.min(); }
inline Tensor softmax(
    const Tensor& self, int64_t dim, std::optional<ScalarType> dtype = std::nullopt) {
  return self.softmax(dim, dtype);
}
inline bool equal(const Tensor& self, const Tensor& other) { return self.equal(other); }
inline bool allclose(
    const Tensor& self, const Tensor& other, double rtol = 1e-05, double atol = 1e-08,
    bool equal_nan = false) {
  return self.allclose(other, rtol, atol, equal_nan);
}
inline Tensor clamp(
    const Tensor& self, const std::optional<Scalar>& min,
    const std::optional<Scalar>& max = std::nullopt) {
  return self.clamp(min, max);
}
inline Tensor transpose(const Tensor& self, int64_t dim0, int64_t dim1) {
  return self.transpose(dim0, dim1);
}
inline Tensor reshape(const Tensor& self, IntArrayRef shape) { return self.reshape(shape); }
inline Tensor permute(const Tensor& self, IntArrayRef dims) { return self.permute(dims); }
inline Tensor unsqueeze(const Tensor& self, int64_t dim) { return self.unsqueeze(dim); }
inline Tensor squeeze(const Tensor& self) { return self.squeeze(); }
inline Tensor squeeze(const Tensor& self, int64_t dim) { return self.squeeze(dim); }
inline Tensor clone(
    const Tensor& self, std::optional<MemoryFormat> format = std::nullopt) {
  return self.clone(format);
}

Tensor cat(TensorList tensors, int64_t dim = 0);
Tensor stack(TensorList tensors, int64_t dim = 0);
Tensor where(const Tensor& condition, const Tensor& self, const Tensor& other);
Tensor einsum(std::string_view equation, TensorList tensors);
Tensor addmm(
    const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta = 1,
    const Scalar& alpha = 1);
Tensor& mm_out(Tensor& out, const Tensor& self, const Tensor& other);
Tensor& matmul_out(Tensor& out, const Tensor& self, const Tensor& other);

#define SLIM_OPERATOR(op, method, reversed)                                                     \
  inline Tensor operator op(const Tensor& a, const Tensor& b) { return a.method(b); }           \
  inline Tensor operator op(const Tensor& a, const Scalar& b) { return a.method(b); }           \
  inline Tensor operator op(const Scalar& a, const Tensor& b) { return reversed; }
SLIM_OPERATOR(+, add, b.add(a))
SLIM_OPERATOR(-, sub, empty_like(b, MemoryFormat::Preserve).fill_(a).sub_(b))
SLIM_OPERATOR(*, mul, b.mul(a))
SLIM_OPERATOR(/, div, empty_like(b, MemoryFormat::Preserve).fill_(a).div_(b))
SLIM_OPERATOR(%, remainder, empty_like(b, MemoryFormat::Preserve).fill_(a).remainder_(b))
SLIM_OPERATOR(<, lt, b.gt(a))
SLIM_OPERATOR(<=, le, b.ge(a))
SLIM_OPERATOR(>, gt, b.lt(a))
SLIM_OPERATOR(>=, ge, b.le(a))
SLIM_OPERATOR(==, eq, b.eq(a))
SLIM_OPERATOR(!=, ne, b.ne(a))
SLIM_OPERATOR(&, bitwise_and, b.bitwise_and(a))
SLIM_OPERATOR(|, bitwise_or, b.bitwise_or(a))
SLIM_OPERATOR(^, bitwise_xor, b.bitwise_xor(a))
#undef SLIM_OPERATOR

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

