"""Full-range inputs for the kernel and what their product is, in float64, on the GPU."""

from __future__ import annotations

from typing import Any

import torch

Shape = tuple[int, int, int]

contest_shapes = [(7168, 16384, 1), (4096, 7168, 8), (7168, 2048, 4)]
odd_shapes = [
    (1, 64, 1),
    (3, 64, 5),
    (17, 192, 2),
    (129, 320, 3),
    (128, 256, 1),
    (2432, 4608, 2),
    (384, 7168, 2),
    (33, 1088, 2),
    (250, 2112, 3),
    (7, 16384, 1),
    (5, 131072, 2),
    (2, 64, 70000),
]


def inputs(m: int, k: int, l: int, seed: int, scale_codes: int = 127) -> tuple[Any, Any]:
    """A full-range input: all 16 codes, all finite scales below scale_codes, both signs."""
    g = torch.Generator(device="cuda").manual_seed(seed)

    def codes(*shape: int) -> torch.Tensor:
        size = (*shape,)
        return torch.randint(0, 256, size, generator=g, device="cuda", dtype=torch.uint8)

    def scales(*shape: int) -> torch.Tensor:
        low = torch.randint(0, scale_codes, shape, generator=g, device="cuda", dtype=torch.uint8)
        return low | (codes(*shape) & 128)

    a, b = codes(l, m, k // 2), codes(l, 128, k // 2)
    sfa, sfb = scales(l, m, k // 16), scales(l, 128, k // 16)
    c = torch.full((l, m, 1), float("nan"), device="cuda", dtype=torch.float16)
    fp4, fp8 = torch.float4_e2m1fn_x2, torch.float8_e4m3fn
    view = [
        a.view(fp4).permute(1, 2, 0),
        b.view(fp4).permute(1, 2, 0),
        sfa.view(fp8).permute(1, 2, 0),
        sfb.view(fp8).permute(1, 2, 0),
        None,
        None,
        c.permute(1, 2, 0),
    ]
    return tuple(view), (a, b, sfa, sfb)


def expected(raw: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The product in float64, [m, 1, l], and the sum of the magnitudes of its terms."""
    a, b, sfa, sfb = raw
    table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], device="cuda", dtype=torch.float64)
    table = torch.cat([table, -table])

    def values(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
        pairs = torch.stack([codes & 15, codes >> 4], -1).flatten(-2).int()
        factor = scales.view(torch.float8_e4m3fn).double().repeat_interleave(16, -1)
        return table[pairs] * factor

    products, magnitudes = [], []
    step = max(1, (1 << 27) // (a.shape[1] * a.shape[2] * 2))
    for i in range(0, a.shape[0], step):
        vector = values(b[i : i + step, :1], sfb[i : i + step, :1])
        terms = values(a[i : i + step], sfa[i : i + step]) * vector
        products.append(terms.sum(-1))
        magnitudes.append(terms.abs().sum(-1))
    return torch.cat(products).t().unsqueeze(1), torch.cat(magnitudes).t().unsqueeze(1)


def mismatch(
    out: torch.Tensor, reference: torch.Tensor, magnitude: torch.Tensor
) -> tuple[int, int]:
    """How many outputs differ from the correctly rounded ones, and how many by more than f32
    rounding of terms of that magnitude and one unit in the last place of f16 explain."""
    right = reference.to(torch.float16)
    same = (out == right) | (torch.isnan(out) & torch.isnan(right))
    error = (out.double() - reference).abs()
    allowed = reference.abs() * 2.0**-10 + 2.0**-24 + magnitude * 2.0**-22
    infinite = torch.isinf(out) | torch.isinf(right)
    error = torch.where(infinite & ((reference.abs() - 65504).abs() < 64), 0.0, error)
    wrong = ~same & ~(error <= allowed)
    return int((~same).sum()), int(wrong.sum())


def bytes_of(m: int, k: int, l: int) -> int:
    """The least that a call must move: a, sfa, row 0 of b and sfb, c."""
    return l * (m + 1) * (k // 2 + k // 16) + 2 * m * l
