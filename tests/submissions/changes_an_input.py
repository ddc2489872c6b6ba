import torch
from right import gemv

from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    output = gemv(data)
    data[5].view(torch.uint8)[0] ^= 1
    return output
