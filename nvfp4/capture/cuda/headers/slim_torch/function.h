// A C++ function that Python can call, its type erased.
#pragma once

#include <memory>
#include <utility>

#include "convert.h"

namespace slim {

// A parameter as the binding names it.
struct Parameter {
  std::string name;
  PyObject* default_value = nullptr;  // a strong reference
  bool convert = true;
  bool none = true;
};

class Function {
 public:
  virtual ~Function();
  // The result as a new reference, or no_match() if an argument is of another type. C++ exceptions
  // pass through. convert: whether each argument may be converted.
  virtual PyObject* call(PyObject* const* arguments, bool convert) = 0;
  static PyObject* no_match() { return reinterpret_cast<PyObject*>(1); }

  std::string signature() const;  // "f(a: int, b: float = 1.0) -> bool"

  std::string name, doc;
  std::vector<Parameter> parameters;  // empty, or one for each argument
  std::vector<std::string> argument_types;
  std::string return_type;

 protected:
  bool may_convert(size_t argument, bool convert) const {
    return convert && (parameters.empty() || parameters[argument].convert);
  }
};

struct NoGuard {
  NoGuard() {}
};

template <typename T>
using Bare = std::remove_cv_t<std::remove_reference_t<T>>;

template <typename Guard, typename F, typename R, typename... A>
class FunctionOf final : public Function {
 public:
  explicit FunctionOf(F f) : f_(std::move(f)) {
    (argument_types.push_back(Caster<Bare<A>>::name()), ...);
    if constexpr (std::is_void_v<R>) {
      return_type = "None";
    } else {
      return_type = Caster<Bare<R>>::name();
    }
  }
  PyObject* call(PyObject* const* arguments, bool convert) override {
    return call(arguments, convert, std::index_sequence_for<A...>());
  }

 private:
  template <size_t... i>
  PyObject* call(
      [[maybe_unused]] PyObject* const* arguments, [[maybe_unused]] bool convert,
      std::index_sequence<i...>) {
    std::tuple<Caster<Bare<A>>...> casters;
    if (!(std::get<i>(casters).load(arguments[i], may_convert(i, convert)) && ...)) {
      return no_match();
    }
    auto guarded = [&]() -> R {
      [[maybe_unused]] Guard guard;
      return f_(static_cast<A&&>(std::get<i>(casters).value())...);
    };
    if constexpr (std::is_void_v<R>) {
      guarded();
      return cast_none();
    } else {
      return Caster<Bare<R>>::cast(guarded());
    }
  }

  F f_;
};

// Takes a signature apart: of a function, a pointer to one, or of what has one operator().
template <typename F>
struct Signature : Signature<decltype(&F::operator())> {};
#define SLIM_SIGNATURE(...)                                              \
  template <typename R, typename... A>                                   \
  struct Signature<__VA_ARGS__> {                                        \
    using Result = R;                                                    \
    template <typename Guard, typename F>                                \
    static std::unique_ptr<Function> erase(F f) {                        \
      return std::make_unique<FunctionOf<Guard, F, R, A...>>(std::move(f)); \
    }                                                                    \
    template <template <typename, typename...> class T>                  \
    using Apply = T<R, A...>;                                            \
  };
SLIM_SIGNATURE(R (*)(A...))
SLIM_SIGNATURE(R (*)(A...) noexcept)
#undef SLIM_SIGNATURE
#define SLIM_SIGNATURE(...)                                              \
  template <typename C, typename R, typename... A>                       \
  struct Signature<R (C::*)(A...) __VA_ARGS__> : Signature<R (*)(A...)> {};
SLIM_SIGNATURE()
SLIM_SIGNATURE(const)
SLIM_SIGNATURE(noexcept)
SLIM_SIGNATURE(const noexcept)
#undef SLIM_SIGNATURE

template <typename Guard = NoGuard, typename F>
std::unique_ptr<Function> make_function(F&& f) {
  using Callable = std::decay_t<F>;
  return Signature<Callable>::template erase<Guard, Callable>(std::forward<F>(f));
}

// Adds it to a module, beside functions of that name that were added before.
void add_function(PyObject* module, std::unique_ptr<Function> function);
// A Python callable of its own.
PyObject* new_callable(std::unique_ptr<Function> function);

}  // namespace slim
