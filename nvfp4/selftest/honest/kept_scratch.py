# strategy: allocate scratch at the first call of a shape and keep it

import torch

from kernels import partial_sums, rounded

scratch = {}


def custom_kernel(data):
    m, _, l = data[6].shape
    if (m, l) not in scratch:
        scratch[m, l] = torch.zeros(m * l, dtype=torch.float32, device=data[0].device)
    return rounded(partial_sums(data, scratch[m, l]), data)
