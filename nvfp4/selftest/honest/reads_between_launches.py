# strategy: read a scratch tensor on the host between two kernels

import torch

from kernels import partial_sums, rounded


def custom_kernel(data):
    sums = partial_sums(data)
    if not bool(torch.isfinite(sums).all()):
        raise ValueError("a sum is too large")
    return rounded(sums, data)
