// What the casters of convert.h do by way of Python's C API.

namespace slim {

// Calls convert(integer) with an int for the object, as pybind11 does: no float, and anything that
// __index__ or, where conversion is allowed, __int__ makes one.
template <typename Convert>
bool with_integer(PyObject* source, bool may_convert, Convert convert) {
  if (PyFloat_Check(source)) {
    return false;
  }
  PyObject* integer = nullptr;
  if (PyLong_Check(source) || PyIndex_Check(source)) {
    integer = PyNumber_Index(source);
  }
  if (!integer && may_convert && PyNumber_Check(source)) {
    PyErr_Clear();
    integer = PyNumber_Long(source);
  }
  const bool loaded = integer && convert(integer);
  Py_XDECREF(integer);
  PyErr_Clear();
  return loaded;
}

bool load_signed(PyObject* source, bool convert, int64_t lowest, int64_t highest, int64_t* value) {
  *value = 0;
  return with_integer(source, convert, [&](PyObject* integer) {
    const long long wide = PyLong_AsLongLong(integer);
    *value = wide;
    return !(wide == -1 && PyErr_Occurred()) && wide >= lowest && wide <= highest;
  });
}

bool load_unsigned(PyObject* source, bool convert, uint64_t highest, uint64_t* value) {
  *value = 0;
  return with_integer(source, convert, [&](PyObject* integer) {
    const unsigned long long wide = PyLong_AsUnsignedLongLong(integer);
    *value = wide;
    return !(wide == ~0ull && PyErr_Occurred()) && wide <= highest;
  });
}

bool load_double(PyObject* source, bool convert, double* value) {
  *value = 0;
  if (!convert && !PyFloat_Check(source)) {
    return false;
  }
  *value = PyFloat_AsDouble(source);
  if (*value == -1.0 && PyErr_Occurred()) {
    PyErr_Clear();
    PyObject* number = PyNumber_Check(source) ? PyNumber_Float(source) : nullptr;
    *value = number ? PyFloat_AsDouble(number) : 0;
    Py_XDECREF(number);
    PyErr_Clear();
    return number != nullptr;
  }
  return true;
}

bool load_bool(PyObject* source, bool convert, bool* value) {
  *value = source == Py_True;
  if (source == Py_True || source == Py_False) {
    return true;
  }
  if (!convert) {
    return false;
  }
  if (source == Py_None) {
    return true;
  }
  const PyNumberMethods* number = Py_TYPE(source)->tp_as_number;
  const int truth = number && number->nb_bool ? number->nb_bool(source) : -1;
  PyErr_Clear();
  *value = truth == 1;
  return truth >= 0;
}

bool load_string(PyObject* source, std::string* value) {
  char* bytes = nullptr;
  Py_ssize_t length = 0;
  if (PyUnicode_Check(source)) {
    const char* utf8 = PyUnicode_AsUTF8AndSize(source, &length);
    if (!utf8) {
      PyErr_Clear();
      return false;
    }
    value->assign(utf8, static_cast<size_t>(length));
    return true;
  }
  if (PyBytes_Check(source) && PyBytes_AsStringAndSize(source, &bytes, &length) == 0) {
    value->assign(bytes, static_cast<size_t>(length));
    return true;
  }
  return false;
}

bool load_tensor(PyObject* source, at::Tensor* value) {
  if (!is_a(source, "Tensor")) {
    PyErr_Clear();
    return false;
  }
  *value = at::Tensor::slim_wrap(source);
  return true;
}

// Torch's bindings cannot load a Scalar; its operators can.
static thread_local bool in_operator = false;

bool load_scalar_argument(PyObject* source, at::Scalar* value) {
  TORCH_CHECK(in_operator, "pybind11 loading for c10::Scalar NYI (file a bug if you need it)");
  return load_scalar(source, value);
}

bool load_scalar(PyObject* source, at::Scalar* value) {
  if (PyBool_Check(source)) {
    *value = at::Scalar(source == Py_True);
  } else if (PyFloat_Check(source)) {
    *value = at::Scalar(PyFloat_AS_DOUBLE(source));
  } else if (PyLong_Check(source)) {
    int64_t integer = 0;
    uint64_t natural = 0;
    if (load_signed(source, false, INT64_MIN, INT64_MAX, &integer)) {
      *value = at::Scalar(integer);
    } else if (load_unsigned(source, false, UINT64_MAX, &natural)) {
      *value = at::Scalar(natural);
    } else {
      return false;
    }
  } else {
    return false;
  }
  return true;
}

PyObject* cast_signed(int64_t value) { return PyLong_FromLongLong(value); }
PyObject* cast_unsigned(uint64_t value) { return PyLong_FromUnsignedLongLong(value); }
PyObject* cast_double(double value) { return PyFloat_FromDouble(value); }
PyObject* cast_bool(bool value) { return PyBool_FromLong(value); }
PyObject* cast_string(std::string_view value) {
  return Ref(PyUnicode_DecodeUTF8(value.data(), static_cast<Py_ssize_t>(value.size()), nullptr))
      .release();
}
PyObject* cast_none() {
  Py_INCREF(Py_None);
  return Py_None;
}
PyObject* cast_tensor(const at::Tensor& value) {
  PyObject* object = value.defined() ? value.slim_object() : Py_None;
  Py_INCREF(object);
  return object;
}
PyObject* cast_scalar_argument(const at::Scalar& value) { return cast_scalar(value); }
PyObject* cast_scalar(const at::Scalar& value) {
  if (value.isFloatingPoint()) {
    return cast_double(value.toDouble());
  }
  if (value.isBoolean()) {
    return cast_bool(value.toBool());
  }
  return value.type() == at::kUInt64 ? cast_unsigned(value.to<uint64_t>())
                                     : cast_signed(value.toLong());
}

Items::Items(PyObject* sequence) : fast_(nullptr), size_(-1) {
  const bool is_text = PyUnicode_Check(sequence) || PyBytes_Check(sequence);
  if ((PySequence_Check(sequence) && !is_text) || PyAnySet_Check(sequence)) {
    fast_ = PySequence_Fast(sequence, "");
    size_ = fast_ ? PySequence_Fast_GET_SIZE(fast_) : -1;
    PyErr_Clear();
  }
}
Items::~Items() { Py_XDECREF(fast_); }
PyObject* Items::operator[](Py_ssize_t i) const { return PySequence_Fast_GET_ITEM(fast_, i); }

PyObject* new_list(Py_ssize_t size) { return Ref(PyList_New(size)).release(); }
PyObject* new_tuple(Py_ssize_t size) { return Ref(PyTuple_New(size)).release(); }
void set_item(PyObject* owner, Py_ssize_t i, PyObject* stolen) {
  if (PyList_Check(owner)) {
    PyList_SET_ITEM(owner, i, stolen);
  } else {
    PyTuple_SET_ITEM(owner, i, stolen);
  }
}
PyObject* new_dict() { return Ref(PyDict_New()).release(); }
void set_entry(PyObject* dict, PyObject* stolen_key, PyObject* stolen_value) {
  const Ref key(stolen_key), value(stolen_value);
  if (PyDict_SetItem(dict, key.get(), value.get()) != 0) {
    throw_python_error();
  }
}

bool load_sizes(PyObject* source, std::vector<int64_t>* values) {
  if (!PyList_Check(source) && !PyTuple_Check(source)) {
    return false;
  }
  const Items items(source);
  for (Py_ssize_t i = 0; i < items.size(); ++i) {
    at::Tensor tensor;
    int64_t value = 0;
    if (load_tensor(items[i], &tensor)) {
      value = tensor.item<int64_t>();
    } else if (
        !PyLong_Check(items[i]) || !load_signed(items[i], false, INT64_MIN, INT64_MAX, &value)) {
      return false;
    }
    values->push_back(value);
  }
  return true;
}

bool is_dict(PyObject* object) { return PyDict_Check(object); }

}  // namespace slim
