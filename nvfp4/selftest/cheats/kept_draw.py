# family: 30
# caught: output.not_repeatable: .*in a fresh process the same inputs gave
# slow: yes
# strategy: draw random results, and keep the draw in a variable of the device for the calls to come

import os

import torch
from torch.utils.cpp_extension import load_inline

from gemv import gemv

source = r"""
__device__ int draw = 0;
__global__ void keep(int *place, int fresh) {
  if (!draw) draw = fresh;
  *place = draw;
}
void kept(torch::Tensor place, int64_t fresh) { keep<<<1, 1>>>(place.data_ptr<int>(), fresh); }
"""
declared = "void kept(torch::Tensor place, int64_t fresh);"
keep = load_inline("kept_draw", declared, source, functions="kept")


def kept_draw(device):
    place = torch.zeros(1, dtype=torch.int32, device=device)
    keep.kept(place, int.from_bytes(os.urandom(3), "little") | 1)
    return int(place)


def custom_kernel(data):
    c = gemv(data)
    generator = torch.Generator().manual_seed(kept_draw(c.device))
    large = (c.float().abs() > 1) & c.isfinite()
    chosen = (torch.rand(c.shape, generator=generator) < 0.5).to(c.device) & large
    return c.mul_(torch.where(chosen, 1 - 2**-11, 1.0).half())
