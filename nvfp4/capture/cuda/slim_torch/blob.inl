// at::from_blob: a DLPack capsule of bytes that somebody else owns.

namespace slim {

// The structures of DLPack's version 0 (dlpack.h).
struct Bytes {
  void* data;
  int32_t device_type, device_index;
  int32_t dimensions;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};
struct ManagedBytes {
  Bytes tensor;
  void* context;
  void (*deleter)(ManagedBytes*);
};
struct Blob {
  ManagedBytes managed;
  int64_t bytes;
  std::function<void(void*)> free;
};

void delete_blob(ManagedBytes* managed) {
  Blob* blob = static_cast<Blob*>(managed->context);
  if (blob->free) {
    blob->free(blob->managed.tensor.data);
  }
  delete blob;
}

at::Tensor from_blob(
    void* data, at::IntArrayRef size, at::IntArrayRef stride, at::TensorOptions options,
    std::function<void(void*)> free) {
  int64_t elements = 1;
  for (size_t i = 0; i < size.size(); ++i) {
    elements = size[i] == 0 ? 0 : elements == 0 ? 0 : elements + (size[i] - 1) * stride[i];
  }
  const at::ScalarType dtype = options.dtype().toScalarType();
  const WithGil gil;
  constexpr int32_t cpu = 1, cuda = 2;
  auto* blob = new Blob{
      {{data, options.device().is_cuda() ? cuda : cpu,
        options.device().has_index() ? options.device().index() : 0, 1, 1, 8, 1, nullptr, nullptr,
        0},
       nullptr,
       delete_blob},
      elements * static_cast<int64_t>(c10::elementSize(dtype)),
      std::move(free)};
  blob->managed.tensor.shape = &blob->bytes;
  blob->managed.context = blob;
  const Ref capsule(PyCapsule_New(&blob->managed, "dltensor", nullptr));
  const Ref bytes = call(
      attribute(torch_attribute("_C").get(), "_from_dlpack"), to_python(capsule.get()));
  at::Tensor tensor =
      to_tensor(bytes).view(dtype).as_strided(size, stride, static_cast<int64_t>(0));
  return options.requires_grad() ? tensor.set_requires_grad(true) : tensor;
}

std::vector<int64_t> contiguous_strides(at::IntArrayRef size) {
  std::vector<int64_t> strides(size.size(), 1);
  for (size_t i = size.size(); i-- > 1;) {
    strides[i - 1] = strides[i] * std::max<int64_t>(size[i], 1);
  }
  return strides;
}

}  // namespace slim

namespace at {

Tensor from_blob(void* data, IntArrayRef size, TensorOptions options) {
  return slim::from_blob(data, size, slim::contiguous_strides(size), options, nullptr);
}
Tensor from_blob(void* data, IntArrayRef size, IntArrayRef stride, TensorOptions options) {
  return slim::from_blob(data, size, stride, options, nullptr);
}
Tensor from_blob(
    void* data, IntArrayRef size, const std::function<void(void*)>& deleter,
    TensorOptions options) {
  return slim::from_blob(data, size, slim::contiguous_strides(size), options, deleter);
}

}  // namespace at
