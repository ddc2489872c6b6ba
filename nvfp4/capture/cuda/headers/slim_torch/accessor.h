// Indexing a tensor's memory as a[i][j], on the host and in kernels.
#pragma once

#include "tensor.h"

namespace at {

template <typename T>
struct DefaultPtrTraits {
  using PtrType = T*;
};
#ifdef __CUDACC__
template <typename T>
struct RestrictPtrTraits {
  using PtrType = T* __restrict__;
};
#endif

// One dimension's view of memory whose sizes and strides lie elsewhere.
template <
    typename T, size_t N, template <typename U> class PtrTraits = DefaultPtrTraits,
    typename index_t = int64_t>
class TensorAccessorBase {
 public:
  using PtrType = typename PtrTraits<T>::PtrType;
  C10_HOST_DEVICE TensorAccessorBase(PtrType data, const index_t* sizes, const index_t* strides)
      : data_(data), sizes_(sizes), strides_(strides) {}
  C10_HOST_DEVICE index_t size(index_t dim) const { return sizes_[dim]; }
  C10_HOST_DEVICE index_t stride(index_t dim) const { return strides_[dim]; }
  C10_HOST_DEVICE PtrType data() { return data_; }
  C10_HOST_DEVICE const PtrType data() const { return data_; }
  C10_HOST_DEVICE decltype(auto) operator[](index_t i) { return element(i); }
  C10_HOST_DEVICE decltype(auto) operator[](index_t i) const {
    if constexpr (N == 1) {
      return static_cast<const T&>(data_[strides_[0] * i]);
    } else {
      return element(i);
    }
  }

 protected:
  C10_HOST_DEVICE decltype(auto) element(index_t i) const {
    if constexpr (N == 1) {
      return static_cast<T&>(data_[strides_[0] * i]);
    } else {
      return TensorAccessorBase<T, N - 1, PtrTraits, index_t>(
          data_ + strides_[0] * i, sizes_ + 1, strides_ + 1);
    }
  }

  PtrType data_;
  const index_t* sizes_;
  const index_t* strides_;
};

template <typename T, size_t N>
class TensorAccessor : public TensorAccessorBase<T, N> {
 public:
  using TensorAccessorBase<T, N>::TensorAccessorBase;
  IntArrayRef sizes() const { return IntArrayRef(this->sizes_, N); }
  IntArrayRef strides() const { return IntArrayRef(this->strides_, N); }
};

// The same with sizes and strides inside, so that it can be a kernel's parameter.
template <
    typename T, size_t N, template <typename U> class PtrTraits = DefaultPtrTraits,
    typename index_t = int64_t>
class GenericPackedTensorAccessor {
 public:
  using PtrType = typename PtrTraits<T>::PtrType;
  GenericPackedTensorAccessor(PtrType data, const int64_t* sizes, const int64_t* strides)
      : data_(data) {
    for (size_t i = 0; i < N; ++i) {
      sizes_[i] = static_cast<index_t>(sizes[i]);
      strides_[i] = static_cast<index_t>(strides[i]);
    }
  }
  C10_HOST_DEVICE index_t size(index_t dim) const { return sizes_[dim]; }
  C10_HOST_DEVICE index_t stride(index_t dim) const { return strides_[dim]; }
  C10_HOST_DEVICE PtrType data() { return data_; }
  C10_HOST_DEVICE const PtrType data() const { return data_; }
  C10_HOST_DEVICE decltype(auto) operator[](index_t i) { return first()[i]; }
  C10_HOST_DEVICE decltype(auto) operator[](index_t i) const {
    const TensorAccessorBase<T, N, PtrTraits, index_t> view = first();
    return view[i];
  }

 private:
  C10_HOST_DEVICE TensorAccessorBase<T, N, PtrTraits, index_t> first() const {
    return TensorAccessorBase<T, N, PtrTraits, index_t>(data_, sizes_, strides_);
  }

  PtrType data_;
  index_t sizes_[N];
  index_t strides_[N];
};

template <typename T, size_t N, template <typename U> class PtrTraits = DefaultPtrTraits>
using PackedTensorAccessor32 = GenericPackedTensorAccessor<T, N, PtrTraits, int32_t>;
template <typename T, size_t N, template <typename U> class PtrTraits = DefaultPtrTraits>
using PackedTensorAccessor64 = GenericPackedTensorAccessor<T, N, PtrTraits, int64_t>;

template <typename T, size_t N>
TensorAccessor<T, N> Tensor::accessor() const& {
  static_assert(N > 0, "accessor is used for indexing a tensor, use data_ptr for scalars");
  TORCH_CHECK(dim() == N, "TensorAccessor expected ", N, " dims but tensor has ", dim());
  return TensorAccessor<T, N>(data_ptr<T>(), sizes().data(), strides().data());
}

template <typename T, size_t N, template <typename U> class PtrTraits, typename index_t>
GenericPackedTensorAccessor<T, N, PtrTraits, index_t> Tensor::generic_packed_accessor() const& {
  static_assert(N > 0, "accessor is used for indexing a tensor, use data_ptr for scalars");
  TORCH_CHECK(dim() == N, "TensorAccessor expected ", N, " dims but tensor has ", dim());
  using Pointer = typename PtrTraits<T>::PtrType;
  return GenericPackedTensorAccessor<T, N, PtrTraits, index_t>(
      static_cast<Pointer>(data_ptr<T>()), sizes().data(), strides().data());
}

template <typename T, size_t N, template <typename U> class PtrTraits>
PackedTensorAccessor32<T, N, PtrTraits> Tensor::packed_accessor32() const& {
  TORCH_CHECK(
      numel() <= static_cast<int64_t>(std::numeric_limits<int32_t>::max()),
      "numel needs to be smaller than int32_t max; otherwise, please use packed_accessor64");
  return generic_packed_accessor<T, N, PtrTraits, int32_t>();
}

template <typename T, size_t N, template <typename U> class PtrTraits>
PackedTensorAccessor64<T, N, PtrTraits> Tensor::packed_accessor64() const& {
  return generic_packed_accessor<T, N, PtrTraits, int64_t>();
}

}  // namespace at

namespace torch {
using at::DefaultPtrTraits;
using at::PackedTensorAccessor32;
using at::PackedTensorAccessor64;
#ifdef __CUDACC__
using at::RestrictPtrTraits;
#endif
}  // namespace torch
