import torch

from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    return torch.empty(1 << 60, dtype=torch.uint8, device=data[6].device)
