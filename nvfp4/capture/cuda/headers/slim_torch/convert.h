// Values between Python and C++: what a bound function takes and returns.
//
// Caster<T> has load(object, convert), which says whether the object is one for T (convert: also
// if it has to be converted), value(), cast(value) with a new reference, and the type's name().
#pragma once

#include <Python.h>

#include <map>
#include <string_view>
#include <unordered_map>

#include "tensor.h"

namespace slim {

bool load_signed(PyObject* source, bool convert, int64_t lowest, int64_t highest, int64_t* value);
bool load_unsigned(PyObject* source, bool convert, uint64_t highest, uint64_t* value);
bool load_double(PyObject* source, bool convert, double* value);
bool load_bool(PyObject* source, bool convert, bool* value);
bool load_string(PyObject* source, std::string* value);
bool load_tensor(PyObject* source, at::Tensor* value);
bool load_scalar(PyObject* source, at::Scalar* value);
bool load_scalar_argument(PyObject* source, at::Scalar* value);
bool load_dtype(PyObject* source, at::ScalarType* value);
bool load_device(PyObject* source, at::Device* value);
bool load_layout(PyObject* source, at::Layout* value);
bool load_memory_format(PyObject* source, at::MemoryFormat* value);
PyObject* cast_signed(int64_t value);
PyObject* cast_unsigned(uint64_t value);
PyObject* cast_double(double value);
PyObject* cast_bool(bool value);
PyObject* cast_string(std::string_view value);
PyObject* cast_none();
PyObject* cast_tensor(const at::Tensor& value);
PyObject* cast_scalar(const at::Scalar& value);
PyObject* cast_scalar_argument(const at::Scalar& value);
PyObject* cast_dtype(at::ScalarType value);
PyObject* cast_device(at::Device value);
PyObject* cast_layout(at::Layout value);
PyObject* cast_memory_format(at::MemoryFormat value);

// The items of a list, tuple, set or other sequence that is no string.
class Items {
 public:
  explicit Items(PyObject* sequence);  // size() < 0 if it is none
  ~Items();
  Items(const Items&) = delete;
  Py_ssize_t size() const { return size_; }
  PyObject* operator[](Py_ssize_t i) const;

 private:
  PyObject* fast_;
  Py_ssize_t size_;
};
PyObject* new_list(Py_ssize_t size);
PyObject* new_tuple(Py_ssize_t size);
void set_item(PyObject* list_or_tuple, Py_ssize_t i, PyObject* stolen);
PyObject* new_dict();
void set_entry(PyObject* dict, PyObject* stolen_key, PyObject* stolen_value);
bool is_dict(PyObject* object);

template <typename T, typename = void>
struct Caster;

template <typename T>
struct Holder {
  T held;
  T& value() { return held; }
};

template <typename T>
struct Caster<T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool> &&
                                  !std::is_same_v<T, char> && !std::is_same_v<T, wchar_t> &&
                                  !std::is_same_v<T, char16_t> && !std::is_same_v<T, char32_t>>>
    : Holder<T> {
  bool load(PyObject* source, bool convert) {
    if constexpr (std::is_signed_v<T>) {
      int64_t wide;
      const bool fits = load_signed(
          source, convert, std::numeric_limits<T>::min(), std::numeric_limits<T>::max(), &wide);
      this->held = static_cast<T>(wide);
      return fits;
    } else {
      uint64_t wide;
      const bool fits = load_unsigned(source, convert, std::numeric_limits<T>::max(), &wide);
      this->held = static_cast<T>(wide);
      return fits;
    }
  }
  static PyObject* cast(T value) {
    if constexpr (std::is_signed_v<T>) {
      return cast_signed(value);
    } else {
      return cast_unsigned(value);
    }
  }
  static std::string name() { return "int"; }
};

template <typename T>
struct Caster<T, std::enable_if_t<std::is_same_v<T, float> || std::is_same_v<T, double>>>
    : Holder<T> {
  bool load(PyObject* source, bool convert) {
    double wide;
    const bool fits = load_double(source, convert, &wide);
    this->held = static_cast<T>(wide);
    return fits;
  }
  static PyObject* cast(T value) { return cast_double(value); }
  static std::string name() { return "float"; }
};

template <>
struct Caster<bool> : Holder<bool> {
  bool load(PyObject* source, bool convert) { return load_bool(source, convert, &held); }
  static PyObject* cast(bool value) { return cast_bool(value); }
  static std::string name() { return "bool"; }
};

// One whose functions need no flag and whose value can be made before it is loaded.
#define SLIM_CASTER(T, initial, python_name, function)                            \
  template <>                                                                     \
  struct Caster<T> {                                                              \
    T held = initial;                                                             \
    T& value() { return held; }                                                   \
    bool load(PyObject* source, bool) { return load_##function(source, &held); }  \
    static PyObject* cast(const T& value) { return cast_##function(value); }      \
    static std::string name() { return python_name; }                             \
  };
SLIM_CASTER(std::string, {}, "str", string)
SLIM_CASTER(at::Tensor, {}, "torch.Tensor", tensor)
SLIM_CASTER(at::Scalar, {}, "Union[Number, torch.SymInt, torch.SymFloat, torch.SymBool]", scalar_argument)
SLIM_CASTER(at::ScalarType, at::kFloat, "torch.dtype", dtype)
SLIM_CASTER(at::Device, at::kCPU, "torch.device", device)
SLIM_CASTER(at::Layout, at::kStrided, "torch.layout", layout)
SLIM_CASTER(at::MemoryFormat, at::MemoryFormat::Contiguous, "torch.memory_format", memory_format)
#undef SLIM_CASTER

template <>
struct Caster<std::string_view> {
  std::string text;
  std::string_view view;
  std::string_view& value() { return view; }
  bool load(PyObject* source, bool) {
    const bool loaded = load_string(source, &text);
    view = text;
    return loaded;
  }
  static PyObject* cast(std::string_view value) { return cast_string(value); }
  static std::string name() { return "str"; }
};

template <>
struct Caster<const char*> {
  std::string text;
  const char* pointer = nullptr;
  const char*& value() { return pointer; }
  bool load(PyObject* source, bool convert) {
    if (source == Py_None) {
      return convert;
    }
    const bool loaded = load_string(source, &text);
    pointer = text.c_str();
    return loaded;
  }
  static PyObject* cast(const char* value) { return value ? cast_string(value) : cast_none(); }
  static std::string name() { return "str"; }
};

template <>
struct Caster<std::nullopt_t> {
  static PyObject* cast(std::nullopt_t) { return cast_none(); }
};

template <typename T>
struct Caster<std::optional<T>> : Holder<std::optional<T>> {
  // The inner caster stays, as the value may point into it.
  std::optional<Caster<T>> inner;
  bool load(PyObject* source, bool convert) {
    if (source == Py_None) {
      return true;
    }
    inner.emplace();
    if (!inner->load(source, convert)) {
      return false;
    }
    this->held.emplace(inner->value());
    return true;
  }
  static PyObject* cast(const std::optional<T>& value) {
    return value ? Caster<T>::cast(*value) : cast_none();
  }
  static std::string name() { return "Optional[" + Caster<T>::name() + "]"; }
};

template <typename Values>
PyObject* cast_list(const Values& values) {
  PyObject* list = new_list(static_cast<Py_ssize_t>(values.size()));
  Py_ssize_t i = 0;
  for (const auto& value : values) {
    set_item(list, i++, Caster<std::decay_t<decltype(value)>>::cast(value));
  }
  return list;
}

template <typename T>
struct Caster<std::vector<T>> : Holder<std::vector<T>> {
  bool load(PyObject* source, bool convert) {
    const Items items(source);
    for (Py_ssize_t i = 0; i < items.size(); ++i) {
      Caster<T> item;
      if (!item.load(items[i], convert)) {
        return false;
      }
      this->held.push_back(item.value());
    }
    return items.size() >= 0;
  }
  static PyObject* cast(const std::vector<T>& values) { return cast_list(values); }
  static std::string name() { return "list[" + Caster<T>::name() + "]"; }
};

template <typename T, size_t N>
struct Caster<std::array<T, N>> : Holder<std::array<T, N>> {
  bool load(PyObject* source, bool convert) {
    const Items items(source);
    if (items.size() != static_cast<Py_ssize_t>(N)) {
      return false;
    }
    for (size_t i = 0; i < N; ++i) {
      Caster<T> item;
      if (!item.load(items[static_cast<Py_ssize_t>(i)], convert)) {
        return false;
      }
      this->held[i] = item.value();
    }
    return true;
  }
  static PyObject* cast(const std::array<T, N>& values) { return cast_list(values); }
  static std::string name() { return "list[" + Caster<T>::name() + "]"; }
};

// Torch's own caster: ints, and tensors of one int, and no other integers.
bool load_sizes(PyObject* source, std::vector<int64_t>* values);

template <typename T>
struct Caster<c10::ArrayRef<T>> : Holder<c10::ArrayRef<T>> {
  Caster<std::vector<T>> values;
  bool load(PyObject* source, bool convert) {
    bool loaded;
    if constexpr (std::is_same_v<T, int64_t>) {
      loaded = load_sizes(source, &values.held);
    } else {
      loaded = values.load(source, convert);
    }
    this->held = values.value();
    return loaded;
  }
  static PyObject* cast(c10::ArrayRef<T> value) {
    const auto size = static_cast<Py_ssize_t>(value.size());
    PyObject* tuple = new_tuple(size);
    for (Py_ssize_t i = 0; i < size; ++i) {
      set_item(tuple, i, Caster<T>::cast(value[static_cast<size_t>(i)]));
    }
    return tuple;
  }
  static std::string name() { return "Tuple[" + Caster<T>::name() + ", ...]"; }
};

// std::pair and std::tuple.
template <typename Tuple, typename... T>
struct TupleCaster {
  Tuple held;
  Tuple& value() { return held; }
  bool load(PyObject* source, bool convert) {
    const Items items(source);
    return items.size() == static_cast<Py_ssize_t>(sizeof...(T)) &&
        load_all(items, convert, std::index_sequence_for<T...>());
  }
  static PyObject* cast(const Tuple& values) {
    return cast_all(values, std::index_sequence_for<T...>());
  }
  static std::string name() {
    std::string names;
    ((names += (names.empty() ? "" : ", ") + Caster<T>::name()), ...);
    return "tuple[" + names + "]";
  }

 private:
  template <size_t... i>
  bool load_all(const Items& items, bool convert, std::index_sequence<i...>) {
    std::tuple<Caster<T>...> casters;
    if (!(std::get<i>(casters).load(items[i], convert) && ...)) {
      return false;
    }
    held = Tuple(std::get<i>(casters).value()...);
    return true;
  }
  template <size_t... i>
  static PyObject* cast_all(const Tuple& values, std::index_sequence<i...>) {
    PyObject* tuple = new_tuple(sizeof...(T));
    (set_item(tuple, i, Caster<T>::cast(std::get<i>(values))), ...);
    return tuple;
  }
};
template <typename... T>
struct Caster<std::tuple<T...>> : TupleCaster<std::tuple<T...>, T...> {};
template <typename A, typename B>
struct Caster<std::pair<A, B>> : TupleCaster<std::pair<A, B>, A, B> {};

template <typename Map, typename K, typename V>
struct MapCaster : Holder<Map> {
  bool load(PyObject* source, bool convert) {
    if (!is_dict(source)) {
      return false;
    }
    Py_ssize_t position = 0;
    PyObject *key, *value;
    while (PyDict_Next(source, &position, &key, &value)) {
      Caster<K> key_caster;
      Caster<V> value_caster;
      if (!key_caster.load(key, convert) || !value_caster.load(value, convert)) {
        return false;
      }
      this->held.emplace(key_caster.value(), value_caster.value());
    }
    return true;
  }
  static PyObject* cast(const Map& map) {
    PyObject* dict = new_dict();
    for (const auto& [key, value] : map) {
      set_entry(dict, Caster<K>::cast(key), Caster<V>::cast(value));
    }
    return dict;
  }
  static std::string name() { return "dict[" + Caster<K>::name() + ", " + Caster<V>::name() + "]"; }
};
template <typename K, typename V>
struct Caster<std::map<K, V>> : MapCaster<std::map<K, V>, K, V> {};
template <typename K, typename V>
struct Caster<std::unordered_map<K, V>> : MapCaster<std::unordered_map<K, V>, K, V> {};

}  // namespace slim
