// torch::cuda of torch/cuda.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace slim {
int device_count();
void synchronize_device();
}

namespace torch::cuda {
inline bool is_available() { return slim::device_count() > 0; }
inline size_t device_count() { return static_cast<size_t>(slim::device_count()); }
inline void synchronize(int64_t = -1) { slim::synchronize_device(); }
}  // namespace torch::cuda
