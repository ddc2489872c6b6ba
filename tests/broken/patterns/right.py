"""Right: the base of the others, exact on any device."""

import torch

from task import input_t, output_t

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
VALUES = torch.tensor(E2M1 + tuple(-value for value in E2M1))


def unpack(packed: torch.Tensor) -> torch.Tensor:
    codes = packed.view(torch.uint8).int()
    return VALUES.to(codes.device)[torch.stack([codes & 15, codes >> 4], dim=2).flatten(1)]


def custom_kernel(data: input_t) -> output_t:
    a, b, sfa, sfb, _, _, c = data
    m, _, l = c.shape
    for batch in range(l):
        scale_a = sfa[:, :, batch].float()
        scale_b = sfb[:1, :, batch].float()
        scales = (scale_a * scale_b).repeat_interleave(16, dim=1)
        products = unpack(a[:, :, batch]) * unpack(b[:1, :, batch]) * scales
        c[:, 0, batch] = products.double().sum(1).half()
    return c
