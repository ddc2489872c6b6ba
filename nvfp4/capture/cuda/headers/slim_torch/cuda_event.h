// at::cuda::CUDAEvent: made when it is first recorded.
#pragma once

#include "cuda_context.h"

namespace at::cuda {

struct CUDAEvent {
  CUDAEvent() = default;
  explicit CUDAEvent(unsigned int flags) : flags_(flags) {}
  ~CUDAEvent() {
    if (event_) {
      static_cast<void>(cudaEventDestroy(event_));
    }
  }
  CUDAEvent(const CUDAEvent&) = delete;
  CUDAEvent& operator=(const CUDAEvent&) = delete;

  operator cudaEvent_t() const { return event_; }
  cudaEvent_t event() const { return event_; }
  bool isCreated() const { return event_ != nullptr; }
  bool query() const {
    if (!event_) {
      return true;
    }
    const cudaError_t error = cudaEventQuery(event_);
    if (error == cudaErrorNotReady) {
      static_cast<void>(cudaGetLastError());
      return false;
    }
    C10_CUDA_CHECK(error);
    return true;
  }
  void record() { record(getCurrentCUDAStream()); }
  void record(const CUDAStream& stream) {
    if (!event_) {
      C10_CUDA_CHECK(cudaEventCreateWithFlags(&event_, flags_));
    }
    C10_CUDA_CHECK(cudaEventRecord(event_, stream));
    recorded_ = true;
  }
  void recordOnce(const CUDAStream& stream) {
    if (!recorded_) {
      record(stream);
    }
  }
  void block(const CUDAStream& stream) {
    if (event_) {
      C10_CUDA_CHECK(cudaStreamWaitEvent(stream, event_, 0));
    }
  }
  void synchronize() const {
    if (event_) {
      C10_CUDA_CHECK(cudaEventSynchronize(event_));
    }
  }
  float elapsed_time(const CUDAEvent& other) const {
    TORCH_CHECK(
        recorded_ && other.recorded_,
        "Both events must be recorded before calculating elapsed time.");
    float milliseconds = 0;
    C10_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, event_, other.event_));
    return milliseconds;
  }

 private:
  unsigned int flags_ = cudaEventDisableTiming;
  cudaEvent_t event_ = nullptr;
  bool recorded_ = false;
};

}  // namespace at::cuda
