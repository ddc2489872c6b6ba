// Guards that turn gradients off while they live.
#pragma once

struct _object;

namespace at {

class NoGradGuard {
 public:
  NoGradGuard();
  ~NoGradGuard();
  NoGradGuard(const NoGradGuard&) = delete;

 private:
  bool before_;
};

}  // namespace at

namespace c10 {

class InferenceMode {
 public:
  explicit InferenceMode(bool enabled = true);
  ~InferenceMode();
  InferenceMode(const InferenceMode&) = delete;

 private:
  _object* context_;  // torch.inference_mode(enabled), entered
};

}  // namespace c10

namespace at {
using c10::InferenceMode;
}
namespace torch {
using at::InferenceMode;
using at::NoGradGuard;
}  // namespace torch
