// Numbers, dtypes, devices and options.

namespace slim {

// Python's name of each dtype, in ScalarType's order; null where Python has none.
constexpr const char* dtype_names[] = {
    "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex32",
    "complex64", "complex128", "bool", "qint8", "quint8", "qint32", "bfloat16", "quint4x2",
    "quint2x4", "bits1x8", "bits2x4", "bits4x2", "bits8", "bits16", "float8_e5m2",
    "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz", "uint16", "uint32", "uint64", "uint1",
    "uint2", "uint3", "uint4", "uint5", "uint6", "uint7", "int1", "int2", "int3", "int4", "int5",
    "int6", "int7", "float8_e8m0fnu", "float4_e2m1fn_x2"};
constexpr const char* scalar_type_names[] = {
    "Byte", "Char", "Short", "Int", "Long", "Half", "Float", "Double", "ComplexHalf",
    "ComplexFloat", "ComplexDouble", "Bool", "QInt8", "QUInt8", "QInt32", "BFloat16", "QUInt4x2",
    "QUInt2x4", "Bits1x8", "Bits2x4", "Bits4x2", "Bits8", "Bits16", "Float8_e5m2",
    "Float8_e4m3fn", "Float8_e5m2fnuz", "Float8_e4m3fnuz", "UInt16", "UInt32", "UInt64", "UInt1",
    "UInt2", "UInt3", "UInt4", "UInt5", "UInt6", "UInt7", "Int1", "Int2", "Int3", "Int4", "Int5",
    "Int6", "Int7", "Float8_e8m0fnu", "Float4_e2m1fn_x2", "Undefined"};
constexpr int dtype_count = static_cast<int>(c10::ScalarType::Undefined);

// The torch.dtype objects; null for those that this torch lacks.
PyObject* const* dtype_objects() {
  static PyObject* objects[dtype_count];
  if (!objects[0]) {
    const Ref torch = import("torch");
    for (int i = dtype_count - 1; i >= 0; --i) {
      objects[i] = PyObject_GetAttrString(torch.get(), dtype_names[i]);
      PyErr_Clear();
    }
  }
  return objects;
}

bool load_dtype(PyObject* source, at::ScalarType* value) {
  PyObject* const* objects = dtype_objects();
  for (int i = 0; i < dtype_count; ++i) {
    if (objects[i] == source) {
      *value = static_cast<at::ScalarType>(i);
      return true;
    }
  }
  return false;
}

PyObject* cast_dtype(at::ScalarType value) {
  const int i = static_cast<int>(value);
  PyObject* object = i >= 0 && i < dtype_count ? dtype_objects()[i] : nullptr;
  TORCH_CHECK_TYPE(object, "this torch has no dtype ", value);
  Py_INCREF(object);
  return object;
}

bool is_a(PyObject* object, const char* type) {
  return PyObject_IsInstance(object, torch_attribute(type).get()) == 1;
}

bool load_device(PyObject* source, at::Device* value) {
  if (!is_a(source, "device")) {
    return false;
  }
  std::string text;
  load_string(Ref(PyObject_Str(source)).get(), &text);
  *value = at::Device(text);
  return true;
}
PyObject* cast_device(at::Device value) {
  return call(torch_attribute("device"), value.str()).release();
}

bool load_layout(PyObject* source, at::Layout* value) {
  *value = at::kStrided;
  return source == torch_attribute("strided").get();
}
PyObject* cast_layout(at::Layout value) {
  TORCH_CHECK(value == at::kStrided, "only strided tensors are supported");
  return torch_attribute("strided").release();
}

constexpr const char* memory_format_names[] = {
    "contiguous_format", "preserve_format", "channels_last", "channels_last_3d"};

bool load_memory_format(PyObject* source, at::MemoryFormat* value) {
  for (int i = 0; i < 4; ++i) {
    if (torch_attribute(memory_format_names[i]).get() == source) {
      *value = static_cast<at::MemoryFormat>(i);
      return true;
    }
  }
  return false;
}
PyObject* cast_memory_format(at::MemoryFormat value) {
  return torch_attribute(memory_format_names[static_cast<int>(value)]).release();
}

}  // namespace slim

namespace c10 {

const char* toString(ScalarType type) {
  const int i = static_cast<int>(type);
  return i >= 0 && i <= slim::dtype_count ? slim::scalar_type_names[i] : "UNKNOWN_SCALAR";
}

size_t elementSize(ScalarType type) {
  const slim::WithGil gil;
  const slim::Ref dtype(slim::cast_dtype(type));
  return static_cast<size_t>(slim::to_int(slim::attribute(dtype.get(), "itemsize")));
}

double Scalar::number() const {
  if (kind_ == kDouble) {
    return floating_;
  }
  return kind_ == kUInt64 ? static_cast<double>(static_cast<uint64_t>(integer_))
                          : static_cast<double>(integer_);
}

double Scalar::number_up_to(double largest) const {
  const double value = number();
  const double size = value < 0 ? -value : value;
  TORCH_CHECK(
      !(size > largest) || size == std::numeric_limits<double>::infinity(),
      "value cannot be converted to this type without overflow");
  return value;
}

int64_t Scalar::integer_in(double lowest, double highest, bool is_signed, size_t bytes) const {
  const char* message = "value cannot be converted to this type without overflow";
  if (kind_ == kDouble) {
    // The largest 64-bit integers are no doubles: the next one up is the first that is too large.
    const bool below = bytes == 8 ? floating_ < highest : floating_ < highest + 1;
    TORCH_CHECK(floating_ > lowest - 1 && below, message);
    return is_signed ? static_cast<int64_t>(floating_)
                     : static_cast<int64_t>(static_cast<uint64_t>(floating_));
  }
  if (bytes < 8) {
    const double value = number();
    TORCH_CHECK(value >= lowest && value <= highest, message);
  } else {
    TORCH_CHECK(is_signed ? kind_ != kUInt64 : kind_ == kUInt64 || integer_ >= 0, message);
  }
  return integer_;
}

Scalar Scalar::operator-() const {
  TORCH_CHECK(!isBoolean(), "torch boolean negative, the `-` operator, is not supported.");
  return isFloatingPoint() ? Scalar(-floating_) : Scalar(-integer_);
}

std::ostream& operator<<(std::ostream& out, const Scalar& value) {
  if (value.isFloatingPoint()) {
    return out << value.toDouble();
  }
  if (value.isBoolean()) {
    return out << (value.toBool() ? "true" : "false");
  }
  return value.type() == kUInt64 ? out << value.to<uint64_t>() : out << value.toLong();
}

Device::Device(const std::string& text) : type_(kCPU), index_(-1) {
  const size_t colon = text.find(':');
  const std::string type = text.substr(0, colon);
  TORCH_CHECK(
      type == "cpu" || type == "cuda" || type == "meta", "Invalid device string: '", text, "'");
  type_ = type == "cpu" ? kCPU : type == "cuda" ? kCUDA : kMeta;
  if (colon != std::string::npos) {
    const std::string index = text.substr(colon + 1);
    TORCH_CHECK(
        !index.empty() && index.size() <= 2 &&
            index.find_first_not_of("0123456789") == std::string::npos,
        "Invalid device string: '", text, "'");
    index_ = static_cast<DeviceIndex>(std::stoi(index));
  }
}

static const char* device_name(DeviceType type) {
  return type == kCUDA ? "cuda" : type == kCPU ? "cpu" : "meta";
}
std::string Device::str() const {
  std::string text = device_name(type_);
  if (has_index()) {
    text += ":" + std::to_string(index_);
  }
  return text;
}
std::ostream& operator<<(std::ostream& out, const Device& device) { return out << device.str(); }
std::ostream& operator<<(std::ostream& out, DeviceType type) { return out << device_name(type); }

caffe2::TypeMeta TensorOptions::dtype() const {
  if (dtype_) {
    return caffe2::TypeMeta::fromScalarType(*dtype_);
  }
  const slim::WithGil gil;
  ScalarType type = kFloat;
  slim::load_dtype(slim::call(slim::torch_attribute("get_default_dtype")).get(), &type);
  return caffe2::TypeMeta::fromScalarType(type);
}

}  // namespace c10

namespace caffe2 {

std::ostream& operator<<(std::ostream& out, TypeMeta type) {
  switch (type.toScalarType()) {
    case c10::kByte: return out << "unsigned char";
    case c10::kChar: return out << "signed char";
    case c10::kShort: return out << "short int";
    case c10::kInt: return out << "int";
    case c10::kLong: return out << "long int";
    case c10::kFloat: return out << "float";
    case c10::kDouble: return out << "double";
    case c10::kBool: return out << "bool";
    default: return out << "c10::" << c10::toString(type.toScalarType());
  }
}

}  // namespace caffe2
