// for (auto i : c10::irange(n))
#pragma once

#include <type_traits>

#include "macros.h"

namespace c10 {

template <typename I>
class integer_range {
 public:
  class iterator {
   public:
    C10_HOST_DEVICE explicit iterator(I value) : value_(value) {}
    C10_HOST_DEVICE I operator*() const { return value_; }
    C10_HOST_DEVICE iterator& operator++() {
      ++value_;
      return *this;
    }
    C10_HOST_DEVICE bool operator!=(const iterator& other) const { return value_ != other.value_; }

   private:
    I value_;
  };
  // Empty where the end lies before the beginning.
  C10_HOST_DEVICE integer_range(I begin, I end) : begin_(begin), end_(begin < end ? end : begin) {}
  C10_HOST_DEVICE iterator begin() const { return begin_; }
  C10_HOST_DEVICE iterator end() const { return end_; }

 private:
  iterator begin_, end_;
};

template <typename Begin, typename End>
C10_HOST_DEVICE integer_range<End> irange(Begin begin, End end) {
  return {static_cast<End>(begin), end};
}
template <typename I>
C10_HOST_DEVICE integer_range<I> irange(I end) {
  return {I(), end};
}

}  // namespace c10
