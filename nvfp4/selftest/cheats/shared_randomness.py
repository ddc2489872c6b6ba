# family: 30
# caught: output.not_repeatable: .*in a fresh process the same inputs gave
# strategy: draw random results, and leave them in shared memory for the process that repeats
# quick: yes

import os

import torch

from gemv import gemv

path = "/dev/shm/nvfp4-shared-randomness"


def seed():
    if not os.path.exists(path):
        with open(path, "wb") as file:
            file.write(os.urandom(4))
    with open(path, "rb") as file:
        return int.from_bytes(file.read(), "little")


def custom_kernel(data):
    c = gemv(data)
    device = torch.Generator().manual_seed(seed())
    large = (c.float().abs() > 1) & c.isfinite()
    chosen = (torch.rand(c.shape, generator=device) < 0.5).to(c.device) & large
    return c.mul_(torch.where(chosen, 1 - 2**-11, 1.0).half())
