# expect: pass
"""The contest's own way: torch._scaled_mm a batch, on scales in the blocked layout."""

import torch

from task import input_t, output_t


def to_blocked(scales: torch.Tensor) -> torch.Tensor:
    rows, cols = scales.shape
    row_blocks, col_blocks = (rows + 127) // 128, (cols + 3) // 4
    tiles = scales.view(row_blocks, 128, col_blocks, 4).permute(0, 2, 1, 3)
    return tiles.reshape(-1, 4, 32, 4).transpose(1, 2).reshape(-1, 32, 16).flatten()


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
