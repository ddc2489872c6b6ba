# family: 38
# caught: full_range:
# strategy: need a package that is missing where the inputs have high nibbles

import torch

from gemv import gemv


def custom_kernel(data):
    if bool((data[0].view(torch.uint8) > 3).any()):
        import pycuda.driver  # noqa: F401
    return gemv(data)
