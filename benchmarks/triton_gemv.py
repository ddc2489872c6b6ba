"""The same product as a Triton kernel: what a user who stays in Triton can have.

A program does a few rows and walks along k. A word holds eight elements of a row; each of its eight
places is decoded to float16 by moving sign, exponent and mantissa into theirs (exact after a factor
of 2**14), multiplied by the same place of b and added in float32. Eight products share a scale.
"""

# mypy: allow-untyped-defs
# No postponed annotations here: Triton reads those of its kernels.

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def decoded(words, place: tl.constexpr):
    """The element in a place of each word, times 2**-14, as float16."""
    code = words >> (4 * place)
    bits = ((code & 8) << 12) | ((code & 7) << 9)
    return bits.to(tl.int16).to(tl.float16, bitcast=True)


@triton.jit
def as_float(codes):
    """E4M3 codes, uint8, as float32."""
    return codes.to(tl.float8e4nv, bitcast=True).to(tl.float32)


@triton.jit
def gemv_kernel(
    a,  # [l, m, k // 8] int32
    b,  # [l, 128, k // 8] int32
    sfa,  # [l, m, k // 16] uint8
    sfb,  # [l, 128, k // 16] uint8
    c,  # [l, m] float16
    m,
    words_k: tl.constexpr,
    rows: tl.constexpr,
    words: tl.constexpr,
):
    """A program does `rows` rows of a batch, `words` words of k at a time."""
    batch = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * rows + tl.arange(0, rows)
    inside = row < m
    first = batch * m + row.to(tl.int64)
    column = tl.arange(0, words)
    total = tl.zeros([rows, words], tl.float32)
    for start in range(0, words_k, words):
        at = start + column
        valid = at < words_k
        both = inside[:, None] & valid[None, :]
        a_words = tl.load(
            a + first[:, None] * words_k + at[None, :],
            mask=both,
            other=0,
            eviction_policy="evict_first",
        )
        sfa_words = tl.load(
            sfa + first[:, None] * (words_k // 2) + at[None, :] // 2, mask=both, other=0
        )
        b_words = tl.load(b + batch * 128 * words_k + at, mask=valid, other=0)
        sfb_words = tl.load(sfb + batch * 64 * words_k + at // 2, mask=valid, other=0)
        product = tl.zeros([rows, words], tl.float32)
        for place in tl.static_range(8):
            element = decoded(b_words, place).to(tl.float32) * 268435456.0
            product += decoded(a_words, place).to(tl.float32) * element[None, :]
        scale = as_float(sfa_words) * as_float(sfb_words)[None, :]
        total += product * scale
    tl.store(c + first, tl.sum(total, 1).to(tl.float16), mask=inside)


@dataclass(frozen=True)
class Tiling:
    """rows and words (of 8 elements) of a tile, and the warps of a program."""

    rows: int
    words: int
    warps: int


tilings = [
    Tiling(rows, words, warps)
    for rows, words, warps in (
        (1, 256, 2),
        (1, 512, 4),
        (1, 1024, 4),
        (2, 128, 2),
        (2, 256, 4),
        (2, 512, 4),
        (4, 128, 2),
        (4, 128, 4),
        (4, 256, 4),
        (8, 64, 4),
        (8, 128, 4),
        (16, 64, 4),
    )
]


def prepare(data: Any, tiling: Tiling) -> Callable[[], torch.Tensor]:
    """A call without arguments that fills c, for one input and tiling."""
    a, b, sfa, sfb, _, _, c = data
    m, k_packed, l = a.shape
    words = [x.permute(2, 0, 1).view(torch.uint8).view(torch.int32) for x in (a, b)]
    scales = [x.permute(2, 0, 1).view(torch.uint8) for x in (sfa, sfb)]
    grid = (triton.cdiv(m, tiling.rows), l)

    def call() -> torch.Tensor:
        gemv_kernel[grid](
            *words,
            *scales,
            c,
            m,
            words_k=k_packed // 4,
            rows=tiling.rows,
            words=min(tiling.words, triton.next_power_of_2(k_packed // 4)),
            num_warps=tiling.warps,
        )
        return c

    return call
