// What is written to a stream, and the messages of checks. A source without either goes without.
#pragma once

#include <sstream>

#include "tensor.h"

namespace c10 {

#ifndef SLIM_WITHOUT_FLOATS
inline std::ostream& operator<<(std::ostream& out, Half value) { return out << float(value); }
inline std::ostream& operator<<(std::ostream& out, BFloat16 value) { return out << float(value); }
#endif
inline std::ostream& operator<<(std::ostream& out, ScalarType type) { return out << toString(type); }

template <typename T>
std::ostream& operator<<(std::ostream& out, ArrayRef<T> values) {
  out << "[";
  const char* separator = "";
  for (const T& value : values) {
    out << separator << value;
    separator = ", ";
  }
  return out << "]";
}

inline std::ostream& operator<<(std::ostream& out, Device device) { return out << device.str(); }
inline std::ostream& operator<<(std::ostream& out, DeviceType type) { return out << Device(type); }

// The text of all arguments, one after the other.
template <typename... Args>
std::string str(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}

template <typename... Args>
std::string message_or(const char* otherwise, const Args&... args) {
  return sizeof...(Args) ? c10::str(args...) : otherwise;
}

}  // namespace c10
