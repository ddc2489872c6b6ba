// at::Tensor, a handle of a Python tensor whose methods are the Python tensor's; TensorOptions; the
// functions that make tensors.
#pragma once

#include <array>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "numbers.h"

struct _object;

namespace slim {

template <typename T, typename = void>
struct is_value_type : std::false_type {};
template <typename T>
struct is_value_type<T, std::void_t<decltype(c10::CppTypeToScalarType<T>::value)>>
    : std::true_type {};

}  // namespace slim

namespace c10 {

// A non-owning view of a contiguous array.
template <typename T>
class ArrayRef {
 public:
  constexpr ArrayRef() = default;
  constexpr ArrayRef(const T& one) : data_(&one), length_(1) {}
  constexpr ArrayRef(const T* data, size_t length) : data_(data), length_(length) {}
  template <typename A>
  ArrayRef(const std::vector<T, A>& values) : data_(values.data()), length_(values.size()) {}
  template <size_t N>
  constexpr ArrayRef(const std::array<T, N>& values) : data_(values.data()), length_(N) {}
  // As a parameter only: the list lives until the end of the full expression.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winit-list-lifetime"
#endif
  constexpr ArrayRef(const std::initializer_list<T>& values)
      : data_(values.begin() == values.end() ? nullptr : values.begin()), length_(values.size()) {}
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

  constexpr const T* begin() const { return data_; }
  constexpr const T* end() const { return data_ + length_; }
  constexpr const T* data() const { return data_; }
  constexpr size_t size() const { return length_; }
  constexpr bool empty() const { return length_ == 0; }
  constexpr const T& operator[](size_t index) const { return data_[index]; }
  constexpr const T& front() const { return data_[0]; }
  constexpr const T& back() const { return data_[length_ - 1]; }
  std::vector<T> vec() const { return std::vector<T>(begin(), end()); }

 private:
  const T* data_ = nullptr;
  size_t length_ = 0;
};

template <typename T>
bool operator==(ArrayRef<T> a, ArrayRef<T> b) { return a.vec() == b.vec(); }
template <typename T>
bool operator!=(ArrayRef<T> a, ArrayRef<T> b) { return a.vec() != b.vec(); }

using IntArrayRef = ArrayRef<int64_t>;

enum class DeviceType : int8_t { CPU = 0, CUDA = 1 };
constexpr DeviceType kCPU = DeviceType::CPU, kCUDA = DeviceType::CUDA;
using DeviceIndex = int8_t;

struct Device {
  Device(DeviceType type, DeviceIndex index = -1) : type_(type), index_(index) {}
  Device(const std::string& text);  // "cuda:0"; throws c10::Error

  DeviceType type() const { return type_; }
  DeviceIndex index() const { return index_; }
  bool has_index() const { return index_ != -1; }
  bool is_cuda() const { return type_ == kCUDA; }
  bool is_cpu() const { return type_ == kCPU; }
  std::string str() const;
  bool operator==(const Device& other) const {
    return type_ == other.type_ && index_ == other.index_;
  }
  bool operator!=(const Device& other) const { return !(*this == other); }

 private:
  DeviceType type_;
  DeviceIndex index_;
};

// Options of functions that make tensors, which choose those that are not set.
struct TensorOptions {
  TensorOptions() = default;
  TensorOptions(ScalarType type) : dtype_(type) {}
  TensorOptions(caffe2::TypeMeta type) : dtype_(type.toScalarType()) {}
  TensorOptions(Device device) : device_(device) {}
  TensorOptions(DeviceType type) : device_(Device(type)) {}

  TensorOptions dtype(ScalarType type) const { return with(&TensorOptions::dtype_, type); }
  TensorOptions dtype(caffe2::TypeMeta type) const { return dtype(type.toScalarType()); }
  template <typename T>
  TensorOptions dtype() const {
    return dtype(CppTypeToScalarType<T>::value);
  }
  TensorOptions device(Device device) const { return with(&TensorOptions::device_, device); }
  TensorOptions device(DeviceType type, DeviceIndex index = -1) const {
    return device(Device(type, index));
  }
  TensorOptions device(const char* text) const { return device(Device(std::string(text))); }

  caffe2::TypeMeta dtype() const;
  Device device() const { return device_.value_or(Device(kCPU)); }
  std::optional<ScalarType> dtype_opt_scalar_type() const { return dtype_; }
  std::optional<Device> device_opt() const { return device_; }

 private:
  template <typename T>
  TensorOptions with(std::optional<T> TensorOptions::*field, T value) const {
    TensorOptions changed = *this;
    changed.*field = value;
    return changed;
  }

  std::optional<ScalarType> dtype_;
  std::optional<Device> device_;
};

inline TensorOptions dtype(caffe2::TypeMeta type) { return TensorOptions(type); }
template <typename T>
TensorOptions dtype() {
  return TensorOptions(CppTypeToScalarType<T>::value);
}
inline TensorOptions device(Device device) { return TensorOptions(device); }

}  // namespace c10

namespace at {

class Tensor {
 public:
  Tensor() = default;
  Tensor(const Tensor& other) = default;
  Tensor(Tensor&& other) = default;
  Tensor& operator=(const Tensor& other) & = default;
  Tensor& operator=(Tensor&& other) & = default;
  // As in torch, assigning to the result of an expression copies values into it: x[0] = y.
  Tensor& operator=(const Tensor& other) && { return copy_(other); }
  Tensor& operator=(Tensor&& other) && noexcept(false) { return copy_(other); }

  bool defined() const { return object_ != nullptr; }

  // Properties. Sizes and strides stay valid when the tensor is gone.
  int64_t dim() const;
  int64_t size(int64_t dim) const;
  int64_t stride(int64_t dim) const;
  IntArrayRef sizes() const;
  IntArrayRef strides() const;
  int64_t numel() const;
  size_t itemsize() const { return c10::elementSize(scalar_type()); }
  int64_t element_size() const { return static_cast<int64_t>(itemsize()); }
  ScalarType scalar_type() const;
  caffe2::TypeMeta dtype() const { return scalar_type(); }
  Device device() const;
  DeviceIndex get_device() const { return device().index(); }
  TensorOptions options() const { return TensorOptions(scalar_type()).device(device()); }
  bool is_cuda() const;
  bool is_cpu() const { return device().is_cpu(); }
  bool is_contiguous() const;

  // Memory. data_ptr<T>() is there for the types that torch knows, and checks the dtype.
  void* data_ptr() const;
  template <typename T>
  T* data_ptr() const {
    static_assert(
        slim::is_value_type<T>::value && !std::is_same_v<T, c10::Float4_e2m1fn_x2>,
        "torch has no data_ptr<T>() for this type: use data_ptr() or torch's own type, and cast");
    return static_cast<T*>(checked_data_ptr(CppTypeToScalarType<T>::value));
  }

  // Other shapes of the same values.
  Tensor contiguous() const;
  Tensor view(IntArrayRef size) const;
  Tensor view(ScalarType dtype) const;
  Tensor reshape(IntArrayRef shape) const;
  Tensor permute(IntArrayRef dims) const;
  Tensor transpose(int64_t dim0, int64_t dim1) const;
  Tensor t() const;
  Tensor squeeze() const;
  Tensor squeeze(int64_t dim) const;
  Tensor unsqueeze(int64_t dim) const;
  Tensor slice(int64_t dim, int64_t start, int64_t end, int64_t step = 1) const;
  Tensor select(int64_t dim, int64_t index) const;
  Tensor operator[](int64_t index) const { return select(0, index); }

  // Copies and conversions.
  Tensor to(TensorOptions options, bool non_blocking = false, bool copy = false) const;
  Tensor to(Device device, ScalarType dtype, bool non_blocking = false, bool copy = false) const {
    return to(TensorOptions(dtype).device(device), non_blocking, copy);
  }
  Tensor to(ScalarType dtype, bool non_blocking = false, bool copy = false) const {
    return to(TensorOptions(dtype), non_blocking, copy);
  }
  Tensor cpu() const { return to(TensorOptions(kCPU)); }
  Tensor cuda() const { return to(TensorOptions(kCUDA)); }
  Tensor clone() const;
  Tensor& zero_() const;
  Tensor& copy_(const Tensor& source, bool non_blocking = false) const;

  // Not of torch: from and to Python. The object is borrowed, null when undefined.
  static Tensor slim_wrap(_object* borrowed);
  _object* slim_object() const { return object_.get(); }

 private:
  void* checked_data_ptr(ScalarType wanted) const;

  std::shared_ptr<_object> object_;
};
using TensorList = c10::ArrayRef<Tensor>;

Tensor empty(IntArrayRef size, TensorOptions options = {});
Tensor zeros(IntArrayRef size, TensorOptions options = {});
Tensor ones(IntArrayRef size, TensorOptions options = {});
Tensor full(IntArrayRef size, const Scalar& value, TensorOptions options = {});
Tensor empty_like(const Tensor& like, TensorOptions options = {});
Tensor zeros_like(const Tensor& like, TensorOptions options = {});
Tensor ones_like(const Tensor& like, TensorOptions options = {});
inline int64_t size(const Tensor& tensor, int64_t dim) { return tensor.size(dim); }

}  // namespace at
