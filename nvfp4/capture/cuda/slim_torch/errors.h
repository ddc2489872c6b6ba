// c10::Error, the macros that throw it, and the macros of c10/macros/Macros.h.
#pragma once

#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>

#ifdef __CUDACC__
#define C10_HOST_DEVICE __host__ __device__
#define C10_DEVICE __device__
#else
#define C10_HOST_DEVICE
#define C10_DEVICE
#endif
#define C10_LIKELY(expr) (__builtin_expect(static_cast<bool>(expr), 1))
#define C10_UNLIKELY(expr) (__builtin_expect(static_cast<bool>(expr), 0))
#define C10_STRINGIZE_IMPL(x) #x
#define C10_STRINGIZE(x) C10_STRINGIZE_IMPL(x)
#define C10_CONCATENATE_IMPL(a, b) a##b
#define C10_CONCATENATE(a, b) C10_CONCATENATE_IMPL(a, b)

namespace c10 {

class Error : public std::exception {
 public:
  explicit Error(std::string message) : message_(std::move(message)) {}
  const char* what() const noexcept override { return message_.c_str(); }
  const char* what_without_backtrace() const noexcept { return message_.c_str(); }
  const std::string& msg() const { return message_; }

 private:
  std::string message_;
};

class NotImplementedError : public Error {
  using Error::Error;
};

}  // namespace c10

#define SLIM_CHECK(error_t, cond, ...)                                                            \
  if (C10_UNLIKELY(!(cond))) {                                                                    \
    throw ::c10::error_t(::c10::message_or(                                                       \
        "Expected " #cond " to be true, but got false.  (Could this error message be improved?"   \
        "  If so, please report an enhancement request to PyTorch.)",                             \
        ##__VA_ARGS__));                                                                          \
  }
#define TORCH_CHECK(cond, ...) SLIM_CHECK(Error, cond, ##__VA_ARGS__)
#define TORCH_CHECK_NOT_IMPLEMENTED(cond, ...) \
  SLIM_CHECK(NotImplementedError, cond, ##__VA_ARGS__)

namespace at {
using namespace c10;
}
namespace torch {
using namespace at;
}
