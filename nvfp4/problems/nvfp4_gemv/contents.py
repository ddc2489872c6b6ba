"""Contents of calls that cannot be foreseen, drawn faster on a CPU than the contest draws its own.

They are of the same kinds: the contest's (bytes 0 to 3, scales 0, 1 or 2), and full-range ones in
patches between others that look like the contest's, so that a sample does not tell them apart.
Every element is drawn, as a kernel could recognize repetitions.
"""

import numpy as np
import torch

from nvfp4.problems.nvfp4_gemv import reference
from nvfp4.problems.nvfp4_gemv.task import input_t, n_padded, sf_vec_size
from nvfp4.records.base import Record

_checked_rows = 512
"""Rows of each batch, drawn at random: more would cost as much as the call."""

_low_bits = 0x0303030303030303
_one, _two = 0x38, 0x40
"""The numbers 1 and 2 as E4M3."""


class Contents(Record):
    """Inputs, and the results of some rows."""

    data: input_t
    rows: torch.Tensor
    """The rows whose results are known."""
    expected: torch.Tensor
    """Results of the known rows, [rows, 1, l]."""

    def has_right(self, output: torch.Tensor) -> bool:
        """Return whether the known rows of an output [m, 1, l] are right."""
        return bool(reference.close_enough(output[self.rows], self.expected).all())


def draw(shape: tuple[int, int, int], full_range: bool, seed: int) -> Contents:
    """Return contents for a shape (m, k, l) and a kind of inputs."""
    generator = torch.Generator().manual_seed(seed)
    for cap_sum in reference.cap_sums:
        data = _Draw(shape, full_range, generator).inputs(cap_sum)
        a, b, sfa, sfb, sfa_permuted, sfb_permuted, c = data
        rows = torch.randperm(len(c), generator=generator)[:_checked_rows]
        few_a = a.view(torch.uint8)[rows].view(a.dtype)
        few_sfa = sfa.view(torch.uint8)[rows].view(sfa.dtype)
        few = few_a, b, few_sfa, sfb, sfa_permuted, sfb_permuted, c[rows]
        expected = reference.ref_kernel(few)
        if bool(expected.isfinite().all()):
            break
    return Contents(data, rows, expected)


class _Draw:
    def __init__(
        self, shape: tuple[int, int, int], full_range: bool, generator: torch.Generator
    ) -> None:
        self._m, k, self._l = shape
        self._full_range, self._generator = full_range, generator
        self._k_blocks = k // sf_vec_size
        self._raw = np.random.SFC64(generator.initial_seed())  # takes a quarter of torch's time

    def inputs(self, cap_sum: int) -> input_t:
        """cap_sum: sum of the magnitude codes of full-range scales."""
        caps: tuple[torch.Tensor | None, ...] = (None, None)
        if self._full_range:
            lowest = max(0, cap_sum - reference.e4m3_max_code)
            end = min(cap_sum, reference.e4m3_max_code) + 1
            size, source = (self._k_blocks,), self._generator
            cap = torch.randint(lowest, end, size, generator=source, dtype=torch.int16)
            caps = cap, cap_sum - cap
        (a, sfa, sfa_permuted), (b, sfb, sfb_permuted) = (
            self._operand(rows, cap) for rows, cap in zip((self._m, n_padded), caps, strict=True)
        )
        c = torch.randn((self._l, self._m, 1), dtype=torch.float16, generator=self._generator)
        return a, b, sfa, sfb, sfa_permuted, sfb_permuted, c.permute(1, 2, 0)

    def _operand(self, rows: int, cap: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        """Return packed values, plain scales and permuted scales.

        cap: largest magnitude code of each column; None for the contest's inputs.
        """
        l, padded = self._l, -(-rows // 128) * 128
        blocks = self._words(l * padded * self._k_blocks).view(l, padded, self._k_blocks)
        # E4M3 codes of 0, 1 or 2, each as often as the contest draws it.
        numbers = np.random.Generator(self._raw).integers(3, size=blocks.shape, dtype=np.uint8)
        small = (torch.from_numpy(numbers) * _one).clamp_(max=_two)
        if cap is None:
            blocks &= _low_bits
            codes = small
        else:
            plain = reference.patches(l, padded, self._k_blocks, self._generator)
            blocks &= torch.where(plain, _low_bits, -1)
            codes = self._bytes(blocks.numel()).view(blocks.shape)
            signs = self._bytes(blocks.numel()).view(blocks.shape) & 0x80
            magnitudes = (codes.to(torch.int16) * (cap + 1) >> 8).to(torch.uint8)
            codes = torch.where(plain, small * (small <= cap), magnitudes | signs)
        packed = blocks[:, :rows].contiguous().view(torch.uint8).view(torch.float4_e2m1fn_x2)
        by_tile = codes.view(torch.int32).view(l, padded // 128, 4, 32, self._k_blocks // 4, 1)
        permuted = by_tile.permute(0, 1, 4, 3, 2, 5).contiguous().view(torch.uint8)
        return (
            packed.permute(1, 2, 0),
            codes[:, :rows].contiguous().view(torch.float8_e4m3fn).permute(1, 2, 0),
            permuted.view(torch.float8_e4m3fn).permute(3, 4, 1, 5, 2, 0),
        )

    def _words(self, count: int) -> torch.Tensor:
        return torch.from_numpy(self._raw.random_raw(count).view(np.int64))

    def _bytes(self, count: int) -> torch.Tensor:
        return self._words(-(-count // 8)).view(torch.uint8)[:count]
