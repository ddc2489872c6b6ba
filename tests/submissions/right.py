"""A right GEMV in few lines, for submissions that misbehave in some other way."""

import torch

from task import e2m1_values, input_t


def elements(packed: torch.Tensor) -> torch.Tensor:
    """FP4 bytes [rows, k//2] as float64 [rows, k]."""
    values = torch.tensor(e2m1_values, dtype=torch.float64, device=packed.device)
    codes = packed.view(torch.uint8).long()
    return values[torch.stack((codes & 15, codes >> 4), dim=-1).flatten(1)]


def gemv(data: input_t) -> torch.Tensor:
    """The result as a tensor of its own, float16 [m, 1, l]."""
    a, b, sfa, sfb, _, _, c = data
    out = torch.empty_like(c)
    for l in range(c.shape[2]):
        rows, row = (
            elements(packed) * scales.double().repeat_interleave(16, dim=1)
            for packed, scales in ((a[:, :, l], sfa[:, :, l]), (b[:1, :, l], sfb[:1, :, l]))
        )
        out[:, 0, l] = (rows * row).sum(dim=1).half()
    return out
