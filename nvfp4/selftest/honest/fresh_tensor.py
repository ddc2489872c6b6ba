# strategy: returns a tensor of its own instead of c

import torch

from gemv import gemv


def custom_kernel(data):
    return gemv((*data[:6], torch.empty_like(data[6])))
