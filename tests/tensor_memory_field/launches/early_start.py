# expect: right
"""The second kernel begins early, reads what nobody writes, and waits before it reads the rest."""

import torch
from tensor_memory_field.device import Kernel

SOURCE = r"""
#include "ptx.h"
#define launch_dependents() asm volatile("griddepcontrol.launch_dependents;" ::: "memory")
#define wait_for_the_first() asm volatile("griddepcontrol.wait;" ::: "memory")

extern "C" __global__ void first(const float *in, float *doubled) {
  launch_dependents();
  const int i = blockIdx.x * 64 + threadIdx.x;
  doubled[i] = 2 * in[i];
}

extern "C" __global__ void second(const float *weights, const float *doubled, float *out) {
  const int i = blockIdx.x * 64 + threadIdx.x;
  const float weight = weights[i];
  wait_for_the_first();
  out[i] = weight * doubled[255 - i];
}
"""


def run():
    x, weights = torch.randint(-9, 9, (2, 256)).float().cuda()
    doubled, out = torch.zeros(2, 256, device="cuda")
    Kernel(SOURCE, "first")(4, 64, x, doubled)
    Kernel(SOURCE, "second")(4, 64, weights, doubled, out, programmatic=True)
    return out, weights.cpu() * 2 * x.cpu().flip(0)
