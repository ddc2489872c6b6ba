// Streams and the current device: torch.cuda's.

namespace slim {


// The Python stream of each handle that was given out, so that it can be made current again.
static std::unordered_map<void*, PyObject*>& streams() {
  static auto* streams = new std::unordered_map<void*, PyObject*>();
  return *streams;
}

static void* handle_of(Ref stream) {
  void* handle = PyLong_AsVoidPtr(attribute(stream.get(), "cuda_stream").get());
  if (PyErr_Occurred()) {
    throw_python_error();
  }
  if (!streams().count(handle)) {
    streams()[handle] = stream.release();
  }
  return handle;
}

static Ref stream_of(void* handle) {
  const auto found = streams().find(handle);
  if (found != streams().end()) {
    return to_python(found->second);
  }
  return call(cuda_attribute("ExternalStream"), reinterpret_cast<uintptr_t>(handle));
}

void* current_stream() {
  const WithGil gil;
  return handle_of(call(cuda_attribute("current_stream")));
}
void* default_stream() {
  const WithGil gil;
  return handle_of(call(cuda_attribute("default_stream")));
}
void* stream_from_pool(int priority) {
  const WithGil gil;
  Keywords keywords;
  keywords.set("priority", priority);
  return handle_of(call_with(cuda_attribute("Stream"), keywords));
}
void set_current_stream(void* handle) {
  const WithGil gil;
  call(cuda_attribute("set_stream"), stream_of(handle));
}
bool stream_query(void* handle) {
  const WithGil gil;
  return to_bool(call(attribute(stream_of(handle).get(), "query")));
}
void stream_synchronize(void* handle) {
  const WithGil gil;
  call(attribute(stream_of(handle).get(), "synchronize"));
}

int current_device() {
  const WithGil gil;
  return static_cast<int>(to_int(call(cuda_attribute("current_device"))));
}
int device_count() {
  const WithGil gil;
  return static_cast<int>(to_int(call(cuda_attribute("device_count"))));
}
void set_current_device(int index) {
  const WithGil gil;
  call(cuda_attribute("set_device"), index);
}
void synchronize_device() {
  const WithGil gil;
  call(cuda_attribute("synchronize"));
}

}  // namespace slim
