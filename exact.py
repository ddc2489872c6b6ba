"""Exact block-scaled GEMV over raw FP4 bytes, in chunks of rows.

Why it is exact: a product of two E2M1 values is a multiple of 0.25 up to 36, so float32 holds the
sum of a 16-element block without rounding. A block sum times two E4M3 scales is a multiple of
2**-20 below 2**27, and float64 holds every sum of such terms below 2**33. A result that is finite
in float16 is below 2**16, so each is rounded exactly once, at the end.
"""

import numpy as np
import torch

from task import atol, rtol, sf_vec_size

chunk_bytes = {"cpu": 8 << 20, "cuda": 512 << 20}
"""Working memory of one chunk of rows: what the caches of a CPU hold, what fills a GPU. It keeps
the largest shape far below 4 GiB."""

_bytes_per_packed = 24  # two float32 values, their int16 and float16 forms, and slack


def _e2m1_streams(packed: torch.Tensor) -> list[torch.Tensor]:
    """The values of nibbles 0, 1, 2, 3 of each little-endian pair of bytes, times 2**-14.

    packed: uint8 [..., k//2], contiguous; returns four float32 [..., k//4]. Sign, exponent and
    mantissa of an E2M1 code are put in their places of a float16, subnormal code included; the
    smaller exponent bias of E2M1 is the factor 2**-14.
    """
    pairs = packed.view(torch.int16)
    streams = []
    for i in range(4):
        sign = torch.bitwise_and(torch.bitwise_left_shift(pairs, 12 - 4 * i), -0x8000)
        shift = 9 - 4 * i
        magnitude = (
            torch.bitwise_left_shift(pairs, shift)
            if shift >= 0
            else torch.bitwise_right_shift(pairs, -shift)
        )
        half = torch.bitwise_or(torch.bitwise_and(magnitude, 0x0E00), sign)
        streams.append(half.view(torch.float16).float())
    return streams


def exact_gemv(
    a: torch.Tensor, b: torch.Tensor, sfa: torch.Tensor, sfb: torch.Tensor
) -> torch.Tensor:
    """The GEMV of one batch: ``sum_kk a[i, kk] * sfa[i, kk // 16] * b[kk] * sfb[kk // 16]``.

    a: uint8 [m, k//2]; b: uint8 [k//2]; sfa: float8_e4m3fn [m, k//16]; sfb: float8_e4m3fn [k//16].
    Returns float64 [m], exact below 2**33 in magnitude. NaN scales give NaN, as they must.
    """
    m, k_packed = a.shape
    k_blocks = k_packed * 2 // sf_vec_size
    b_streams = [
        (stream * 2.0**28).view(k_blocks, 4, 1) for stream in _e2m1_streams(b.contiguous())
    ]
    block_scale = sfb.float().double()
    out = torch.empty(m, dtype=torch.float64, device=a.device)
    rows = max(1, chunk_bytes[a.device.type] // (k_packed * _bytes_per_packed))
    for start in range(0, m, rows):
        chunk = a[start : start + rows].contiguous()
        block_sums = torch.zeros(k_blocks, chunk.shape[0], 1, dtype=torch.float32, device=a.device)
        for a_stream, b_stream in zip(_e2m1_streams(chunk), b_streams, strict=True):
            by_block = a_stream.view(-1, k_blocks, 4)
            if a.is_cuda:  # one pass over memory; a CPU is faster at many small products
                block_sums += (by_block * b_stream.view(1, k_blocks, 4)).sum(dim=2).T[:, :, None]
            else:
                block_sums += torch.bmm(by_block.transpose(0, 1), b_stream)
        scaled = block_sums[:, :, 0].T.double() * sfa[start : start + rows].float()
        out[start : start + rows] = scaled @ block_scale
    return out


def round_once_to_fp16(exact: torch.Tensor) -> torch.Tensor:
    """float64 to float16 in one rounding to nearest even, on the device of ``exact``.

    torch goes through float32 and rounds twice; NumPy rounds once.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = exact.cpu().numpy().astype(np.float16)
    return torch.from_numpy(rounded).to(exact.device)


def close_enough(output: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Where an output passes, bool of the same shape: ``|out - ref| <= atol + rtol * |ref|``.

    NaN passes only where NaN is expected, infinity only where the same infinity is.
    """
    got, want = output.double(), expected.double()
    close = (got - want).abs() <= atol + rtol * want.abs()
    same = (got == want) | (got.isnan() & want.isnan())
    return same | (close & want.isfinite())
