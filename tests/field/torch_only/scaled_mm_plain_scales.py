#!POPCORN leaderboard nvfp4_gemv
#!POPCORN gpu NVIDIA
#!EXPECT fail cause=mismatch
"""torch._scaled_mm on scales that were flattened but not blocked."""

import torch

from task import input_t, output_t


def to_blocked(scales: torch.Tensor) -> torch.Tensor:
    return scales.reshape(-1)


def custom_kernel(data: input_t) -> output_t:
    a, b, sfa, sfb, _, _, c = data
    for i in range(c.shape[2]):
        scale_a = to_blocked(sfa[:, :, i])
        scale_b = to_blocked(sfb[:, :, i])
        result = torch._scaled_mm(
            a[:, :, i],
            b[:, :, i].transpose(0, 1),
            scale_a.cuda(),
            scale_b.cuda(),
            bias=None,
            out_dtype=torch.float16,
        )
        c[:, 0, i] = result[:, 0]
    return c
