# strategy: waits for the device in every call

import torch

from gemv import gemv


def custom_kernel(data):
    gemv(data)
    if data[0].is_cuda:
        torch.cuda.synchronize()
    return data[6]
