import torch

from task import input_t, output_t


def multiply(data: input_t) -> output_t:
    return torch.zeros(3) @ torch.zeros(5)


def custom_kernel(data: input_t) -> output_t:
    return multiply(data)
