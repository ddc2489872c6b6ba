"""The problem of task.yml as types and constants; the one module a submission may import."""

from typing import TypedDict

import torch

input_t = tuple[
    torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor
]
"""What ``custom_kernel`` receives: ``(a, b, sfa, sfb, sfa_permuted, sfb_permuted, c)``.

a             [m, k//2, l] float4_e2m1fn_x2, stored [l, m, k//2], permuted (1, 2, 0)
b             [128, k//2, l] as a; row 0 is the vector
sfa           [m, k//16, l] float8_e4m3fn, stored [l, m, k//16], permuted (1, 2, 0)
sfb           [128, k//16, l] as sfa; row 0 counts
sfa_permuted  [32, 4, rest_m, 4, rest_k, l] float8_e4m3fn, stored
              [l, rest_m, rest_k, 32, 4, 4], permuted (3, 4, 1, 5, 2, 0)
sfb_permuted  [32, 4, 1, 4, rest_k, l] as sfa_permuted
c             [m, 1, l] float16, stored [l, m, 1], permuted (1, 2, 0)

rest_m = ceil(m / 128), rest_k = ceil(k / 16 / 4). The permuted scale of row i, block j, batch b is
at ``[i % 32, (i % 128) // 32, i // 128, j % 4, j // 4, b]``.
"""

output_t = torch.Tensor
"""What ``custom_kernel`` returns: c."""

output_dtypes = (
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
)
"""What the contest accepts in place of float16."""


class TestSpec(TypedDict):
    """One case; k counts elements."""

    m: int
    k: int
    l: int
    seed: int


sf_vec_size = 16
"""Elements along k that share a scale."""

n_padded = 128
"""Rows of b and sfb."""

k_multiple = 64
"""k is a multiple of this: four scale blocks, one 4-byte group of the permuted layout."""

_e2m1_magnitudes = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
e2m1_values = _e2m1_magnitudes + tuple(-value for value in _e2m1_magnitudes)
"""The value of each E2M1 code."""

rtol = 1e-3
atol = 1e-3
"""``|out - ref| <= atol + rtol * |ref|``, computed in float16; NaN and infinity must match."""
