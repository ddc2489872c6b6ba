"""Torch refuses to multiply matrices of two types."""

import torch


def custom_kernel(data):
    c = data[6]
    weights = torch.ones(4, 4, device=c.device)
    print("weights", weights.dtype)
    return c + weights.half() @ weights
