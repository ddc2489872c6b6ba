// at::Tensor: a handle of a Python tensor whose methods are the Python tensor's.
#pragma once

#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "array_ref.h"
#include "exception.h"
#include "options.h"
#include "scalar.h"

struct _object;

namespace slim {
struct TensorState;  // the Python object and what sizes() and strides() point into

template <typename T, typename = void>
struct is_value_type : std::false_type {};
template <typename T>
struct is_value_type<T, std::void_t<decltype(c10::CppTypeToScalarType<T>::value)>>
    : std::true_type {};
}  // namespace slim

namespace at {

class Tensor;
using TensorList = c10::ArrayRef<Tensor>;
template <typename T, size_t N>
class TensorAccessor;
template <typename T>
struct DefaultPtrTraits;
template <typename T, size_t N, template <typename U> class PtrTraits, typename index_t>
class GenericPackedTensorAccessor;

class Tensor {
 public:
  Tensor() = default;
  Tensor(const Tensor& other);
  Tensor(Tensor&& other) noexcept : state_(other.state_) { other.state_ = nullptr; }
  Tensor& operator=(const Tensor& other) &;
  Tensor& operator=(Tensor&& other) & noexcept;
  // As in torch, assigning to what an expression returns copies values into it: x[0] = y.
  Tensor& operator=(const Tensor& other) && { return copy_(other); }
  Tensor& operator=(Tensor&& other) && noexcept(false) { return copy_(other); }
  Tensor& operator=(const Scalar& value) && { return fill_(value); }
  ~Tensor();

  bool defined() const { return state_ != nullptr; }
  void reset();
  bool is_same(const Tensor& other) const;

  // Questions.
  int64_t dim() const;
  int64_t ndimension() const { return dim(); }
  int64_t size(int64_t dim) const;
  int64_t stride(int64_t dim) const;
  IntArrayRef sizes() const;
  IntArrayRef strides() const;
  int64_t numel() const;
  int64_t storage_offset() const;
  size_t nbytes() const;
  size_t itemsize() const;
  int64_t element_size() const { return static_cast<int64_t>(itemsize()); }
  ScalarType scalar_type() const;
  caffe2::TypeMeta dtype() const { return caffe2::TypeMeta::fromScalarType(scalar_type()); }
  Device device() const;
  DeviceIndex get_device() const { return device().index(); }
  TensorOptions options() const;
  Layout layout() const;
  bool is_cuda() const;
  bool is_cpu() const { return device().is_cpu(); }
  bool is_meta() const { return device().is_meta(); }
  bool is_contiguous(MemoryFormat format = MemoryFormat::Contiguous) const;
  bool is_non_overlapping_and_dense() const;
  bool is_floating_point() const;
  bool is_complex() const;
  bool is_signed() const;
  bool is_pinned() const;
  bool requires_grad() const;
  const Tensor& set_requires_grad(bool value) const;
  std::string toString() const;
  void print() const;

  // Memory. data_ptr<T>() is there for the types that torch knows, and checks the dtype.
  void* data_ptr() const;
  const void* const_data_ptr() const { return data_ptr(); }
  void* mutable_data_ptr() const { return data_ptr(); }
  template <typename T>
  T* data_ptr() const {
    static_assert(
        slim::is_value_type<T>::value,
        "torch has no data_ptr<T>() for this type: use data_ptr() or torch's own type, and cast");
    return static_cast<T*>(checked_data_ptr(CppTypeToScalarType<T>::value));
  }
  template <typename T>
  const std::remove_const_t<T>* const_data_ptr() const {
    return data_ptr<std::remove_const_t<T>>();
  }
  template <typename T>
  T* mutable_data_ptr() const {
    return data_ptr<T>();
  }
  template <typename T>
  [[deprecated("use data_ptr<T>()")]] T* data() const {
    return data_ptr<T>();
  }
  template <typename T, size_t N>
  TensorAccessor<T, N> accessor() const&;
  template <
      typename T, size_t N, template <typename U> class PtrTraits = DefaultPtrTraits,
      typename index_t = int64_t>
  GenericPackedTensorAccessor<T, N, PtrTraits, index_t> generic_packed_accessor() const&;
  template <typename T, size_t N, template <typename U> class PtrTraits = DefaultPtrTraits>
  GenericPackedTensorAccessor<T, N, PtrTraits, int32_t> packed_accessor32() const&;
  template <typename T, size_t N, template <typename U> class PtrTraits = DefaultPtrTraits>
  GenericPackedTensorAccessor<T, N, PtrTraits, int64_t> packed_accessor64() const&;
  Scalar item() const;
  template <typename T>
  T item() const {
    return item().to<T>();
  }

  // Other shapes of the same values.
  Tensor contiguous(MemoryFormat format = MemoryFormat::Contiguous) const;
  Tensor view(IntArrayRef size) const;
  Tensor view(ScalarType dtype) const;
  Tensor view_as(const Tensor& other) const;
  Tensor reshape(IntArrayRef shape) const;
  Tensor reshape_as(const Tensor& other) const;
  Tensor permute(IntArrayRef dims) const;
  Tensor transpose(int64_t dim0, int64_t dim1) const;
  Tensor t() const;
  Tensor squeeze() const;
  Tensor squeeze(int64_t dim) const;
  Tensor unsqueeze(int64_t dim) const;
  Tensor flatten(int64_t start_dim = 0, int64_t end_dim = -1) const;
  Tensor expand(IntArrayRef size, bool implicit = false) const;
  Tensor expand_as(const Tensor& other) const;
  Tensor repeat(IntArrayRef repeats) const;
  Tensor as_strided(
      IntArrayRef size, IntArrayRef stride, std::optional<int64_t> storage_offset = std::nullopt) const;
  Tensor slice(
      int64_t dim = 0, std::optional<int64_t> start = std::nullopt,
      std::optional<int64_t> end = std::nullopt, int64_t step = 1) const;
  Tensor select(int64_t dim, int64_t index) const;
  Tensor narrow(int64_t dim, int64_t start, int64_t length) const;
  Tensor operator[](const Scalar& index) const;
  Tensor operator[](const Tensor& index) const;
  Tensor operator[](int64_t index) const;

  // Copies and conversions.
  Tensor to(
      TensorOptions options = {}, bool non_blocking = false, bool copy = false,
      std::optional<MemoryFormat> format = std::nullopt) const;
  Tensor to(
      Device device, ScalarType dtype, bool non_blocking = false, bool copy = false,
      std::optional<MemoryFormat> format = std::nullopt) const;
  Tensor to(
      ScalarType dtype, bool non_blocking = false, bool copy = false,
      std::optional<MemoryFormat> format = std::nullopt) const;
  Tensor to(
      const Tensor& other, bool non_blocking = false, bool copy = false,
      std::optional<MemoryFormat> format = std::nullopt) const;
  Tensor toType(ScalarType dtype) const { return to(dtype); }
  Tensor cpu() const { return to(TensorOptions(kCPU)); }
  Tensor cuda() const { return to(TensorOptions(kCUDA)); }
  Tensor clone(std::optional<MemoryFormat> format = std::nullopt) const;
  Tensor detach() const;
  Tensor new_empty(IntArrayRef size, TensorOptions options = {}) const;
  Tensor new_zeros(IntArrayRef size, TensorOptions options = {}) const;
  Tensor new_ones(IntArrayRef size, TensorOptions options = {}) const;
  Tensor new_full(IntArrayRef size, const Scalar& value, TensorOptions options = {}) const;
  Tensor& fill_(const Scalar& value) const;
  Tensor& fill_(const Tensor& value) const;
  Tensor& zero_() const;
  Tensor& copy_(const Tensor& source, bool non_blocking = false) const;
  Tensor& resize_(IntArrayRef size) const;

  // Not of torch: from and to Python. object() is borrowed, null when undefined.
  static Tensor slim_wrap(_object* borrowed);
  _object* slim_object() const;

 private:
  void* checked_data_ptr(ScalarType wanted) const;

  slim::TensorState* state_ = nullptr;
};

std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

// Of ATen/DeviceGuard.h: what an optional guard takes.
inline std::optional<Device> device_of(const Tensor& tensor) {
  return tensor.defined() ? std::optional<Device>(tensor.device()) : std::nullopt;
}
inline std::optional<Device> device_of(const std::optional<Tensor>& tensor) {
  return tensor ? device_of(*tensor) : std::nullopt;
}

}  // namespace at

namespace torch {
using at::Tensor;
using at::TensorList;
}  // namespace torch
