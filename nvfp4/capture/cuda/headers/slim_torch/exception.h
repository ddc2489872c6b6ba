// c10::Error and the macros that throw it.
#pragma once

#include <cstdint>
#include <exception>
#include <sstream>
#include <string>

#include "macros.h"

namespace c10 {

struct SourceLocation {
  const char* function;
  const char* file;
  uint32_t line;
};

class Error : public std::exception {
 public:
  Error(SourceLocation where, std::string message);
  Error(std::string message, std::string backtrace);
  const char* what() const noexcept override { return message_.c_str(); }
  const char* what_without_backtrace() const noexcept { return message_.c_str(); }
  const std::string& msg() const { return message_; }

 protected:
  std::string message_;
};

#define SLIM_ERROR(name)       \
  class name : public Error {  \
    using Error::Error;        \
  };
SLIM_ERROR(IndexError)
SLIM_ERROR(ValueError)
SLIM_ERROR(TypeError)
SLIM_ERROR(NotImplementedError)
SLIM_ERROR(BufferError)
SLIM_ERROR(LinAlgError)
SLIM_ERROR(OutOfMemoryError)
#undef SLIM_ERROR

// The text of all arguments, one after the other.
template <typename... Args>
std::string str(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}
inline std::string str() { return std::string(); }
inline std::string str(const char* text) { return text; }
inline std::string str(const std::string& text) { return text; }

namespace detail {
[[noreturn]] void torchCheckFail(
    const char* function, const char* file, uint32_t line, const std::string& message);
[[noreturn]] void torchCheckFail(
    const char* function, const char* file, uint32_t line, const char* message);

template <typename... Args>
std::string torchCheckMsgImpl(const char*, const Args&... args) {
  return ::c10::str(args...);
}
inline const char* torchCheckMsgImpl(const char* message) { return message; }
inline const char* torchCheckMsgImpl(const char*, const char* message) { return message; }
}  // namespace detail

void slim_warn(const std::string& message);

}  // namespace c10

#define TORCH_CHECK_MSG(cond, type, ...)                                                      \
  (::c10::detail::torchCheckMsgImpl(                                                          \
      "Expected " #cond " to be true, but got false.  (Could this error message be improved?" \
      "  If so, please report an enhancement request to PyTorch.)",                           \
      ##__VA_ARGS__))

#define TORCH_CHECK(cond, ...)                                             \
  if (C10_UNLIKELY(!(cond))) {                                             \
    ::c10::detail::torchCheckFail(                                         \
        __func__, __FILE__, static_cast<uint32_t>(__LINE__),               \
        TORCH_CHECK_MSG(cond, "", ##__VA_ARGS__));                         \
  }

#define C10_THROW_ERROR(err_type, msg) \
  throw ::c10::err_type(::c10::SourceLocation{__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, msg)

#define TORCH_CHECK_WITH_MSG(error_t, cond, type, ...)                       \
  if (C10_UNLIKELY(!(cond))) {                                               \
    C10_THROW_ERROR(error_t, TORCH_CHECK_MSG(cond, type, ##__VA_ARGS__));    \
  }
#define TORCH_CHECK_WITH(error_t, cond, ...) TORCH_CHECK_WITH_MSG(error_t, cond, "", ##__VA_ARGS__)
#define TORCH_CHECK_INDEX(cond, ...) TORCH_CHECK_WITH(IndexError, cond, ##__VA_ARGS__)
#define TORCH_CHECK_VALUE(cond, ...) TORCH_CHECK_WITH(ValueError, cond, ##__VA_ARGS__)
#define TORCH_CHECK_TYPE(cond, ...) TORCH_CHECK_WITH(TypeError, cond, ##__VA_ARGS__)
#define TORCH_CHECK_NOT_IMPLEMENTED(cond, ...) \
  TORCH_CHECK_WITH(NotImplementedError, cond, ##__VA_ARGS__)
#define TORCH_CHECK_ARG(cond, argN, ...) \
  TORCH_CHECK(cond, "invalid argument ", argN, ": ", __VA_ARGS__)

#define TORCH_INTERNAL_ASSERT(cond, ...)                                             \
  if (C10_UNLIKELY(!(cond))) {                                                       \
    ::c10::detail::torchCheckFail(                                                   \
        __func__, __FILE__, static_cast<uint32_t>(__LINE__),                         \
        std::string(#cond " INTERNAL ASSERT FAILED at " C10_STRINGIZE(               \
            __FILE__) ":" C10_STRINGIZE(__LINE__) ", please report a bug to PyTorch. ") + \
            ::c10::str(__VA_ARGS__));                                                \
  }
#ifdef NDEBUG
#define TORCH_INTERNAL_ASSERT_DEBUG_ONLY(...) \
  while (false)                               \
  TORCH_INTERNAL_ASSERT(__VA_ARGS__)
#else
#define TORCH_INTERNAL_ASSERT_DEBUG_ONLY(...) TORCH_INTERNAL_ASSERT(__VA_ARGS__)
#endif
#define AT_ASSERT(...)                  \
  do {                                  \
    TORCH_INTERNAL_ASSERT(__VA_ARGS__); \
  } while (false)
#define AT_ASSERTM(cond, ...)                 \
  do {                                        \
    TORCH_INTERNAL_ASSERT(cond, __VA_ARGS__); \
  } while (false)
#define AT_ERROR(...)                              \
  do {                                             \
    TORCH_CHECK(false, ::c10::str(__VA_ARGS__));   \
  } while (false)

namespace slim {
// `TORCH_CHECK_EQ(a, b) << "more"`: the text grows until the end of the statement, then it throws.
class FailedCheck {
 public:
  FailedCheck(const char* function, const char* file, uint32_t line)
      : function_(function), file_(file), line_(line) {}
  ~FailedCheck() noexcept(false) {
    ::c10::detail::torchCheckFail(function_, file_, line_, text_.str());
  }
  std::ostream& stream() { return text_; }

 private:
  const char* function_;
  const char* file_;
  uint32_t line_;
  std::ostringstream text_;
};
struct Discard {
  void operator&(const std::ostream&) const {}
};
}  // namespace slim

#define TORCH_CHECK_OP(a, b, op)                                                                  \
  (((a)op(b))) ? static_cast<void>(0)                                                             \
               : ::slim::Discard() &                                                              \
          ::slim::FailedCheck(__func__, __FILE__, static_cast<uint32_t>(__LINE__)).stream()       \
              << "Check failed: " #a " " #op " " #b " (" << (a) << " vs. " << (b) << "). "
#define TORCH_CHECK_EQ(a, b) TORCH_CHECK_OP(a, b, ==)
#define TORCH_CHECK_NE(a, b) TORCH_CHECK_OP(a, b, !=)
#define TORCH_CHECK_LE(a, b) TORCH_CHECK_OP(a, b, <=)
#define TORCH_CHECK_LT(a, b) TORCH_CHECK_OP(a, b, <)
#define TORCH_CHECK_GE(a, b) TORCH_CHECK_OP(a, b, >=)
#define TORCH_CHECK_GT(a, b) TORCH_CHECK_OP(a, b, >)

#define TORCH_WARN(...) ::c10::slim_warn(::c10::str(__VA_ARGS__));
#define TORCH_WARN_ONCE(...)                                    \
  do {                                                          \
    static const bool C10_CONCATENATE(warned_, __LINE__) = [&] { \
      ::c10::slim_warn(::c10::str(__VA_ARGS__));                \
      return true;                                              \
    }();                                                        \
    static_cast<void>(C10_CONCATENATE(warned_, __LINE__));      \
  } while (false)

namespace at {
using namespace c10;
}
namespace torch {
using namespace at;
}
