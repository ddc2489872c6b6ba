"""`torch._scaled_mm` as the tensor cores of Blackwell compute it, on other devices.

Operands are FP4 with a scale for every 16 (E4M3) or 32 (E8M0) elements of k, or FP8 with one scale
a tensor or a row. Products and sums are float64, or integers or float32 where these are exact, too,
so each result is rounded once, to `out_dtype`: for NVFP4 every partial sum below 2**33 is exact. A
GPU adds in float32.

Block scales come in the layout of cuBLAS and the tensor cores, as a flat tensor or any other
contiguous one: tiles of 128 rows by 4 blocks, row tiles outermost, and in a tile the scale of
row i, block j at [i % 32, i // 32, j].
"""

from typing import Any

import numpy as np
import torch

from nvfp4.records.launch_errors import NeedsGpu

_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_CODES = torch.tensor([*_E2M1, *(-value for value in _E2M1)], dtype=torch.float64)
_PAIRS = torch.stack([_CODES.repeat(16), _CODES.repeat_interleave(16)], dim=1)

_OF_TORCH = torch._scaled_mm

_BLOCK = {torch.float8_e4m3fn: 16, torch.float8_e8m0fnu: 32}
_OUT_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
_ROWS_AT_ONCE = 512
_LEAST_DEPTH = 256
"""Least number of elements along k for which a product in float32 is faster than one in float64."""
_WEIGHTS = 127 * 128, 128, -127
"""Factors of the products of two numbers' digits, whose sum is the numbers' product."""
_MOST_OF_DIGITS = {torch.int8: 127, torch.int16: 127 * 64}
_DEPTH_OF_DIGITS = 1 << 17
"""Number of products of two digits whose sum fits in 32 bits."""


def scaled_mm(
    mat1: torch.Tensor, mat2: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor,
    bias: torch.Tensor | None = None, scale_result: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None, use_fast_accum: bool = False
) -> torch.Tensor:  # fmt: skip
    """mat1 [m, k] @ mat2 [k, n], scaled, plus bias [n]: [m, n] in `out_dtype`.

    FP4 operands are packed, [m, k//2] and [k//2, n]. mat1 is row-major, mat2 column-major.
    Raises RuntimeError or ValueError where torch refuses the operands on a GPU, and
    NotImplementedError for scales and output types that only a GPU can do.
    """
    _check(mat1, mat2, scale_a, scale_b, bias, scale_result, out_dtype)
    dtype = out_dtype or mat1.dtype
    ranges = [_range(each) for each in (scale_a, scale_b)] if _is_nvfp4(mat1, scale_a) else []
    k = mat1.shape[1] * (2 if mat1.dtype == torch.float4_e2m1fn_x2 else 1)
    depth = _depth_in_float32(*ranges) if ranges else 0
    wide = _integers_for(ranges, k) or (torch.float32 if depth >= _LEAST_DEPTH else torch.float64)
    units = [0, 0] if wide.is_floating_point else [unit for _, unit in ranges]
    unit = units[0] * units[1] / 2**20 or 1.0
    weights = [each * unit for each in (_WEIGHTS if wide == torch.int16 else [1])]
    few = bias is None and depth >= k and wide in (torch.int8, torch.float32)
    of_sums = torch.float32 if few else torch.float64
    columns = _digits(_decoded(mat2.t(), scale_b, wide, unit=units[1]))
    step = depth if wide == torch.float32 else k
    multiply = torch.mm if wide.is_floating_point else torch._int_mm
    result = torch.empty(mat1.shape[0], mat2.shape[1], dtype=dtype, device=mat1.device)
    for start in range(0, mat1.shape[0], _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        own = _digits(_decoded(mat1, scale_a, wide, rows, units[0]))
        exact = result.new_zeros((len(own[0]), len(result[0])), dtype=of_sums)
        for one, other, weight in zip(own, columns, weights, strict=True):
            for first in range(0, k, step):
                part = slice(first, first + step)
                exact.add_(multiply(one[:, part], other[:, part].t()), alpha=weight)
        if scale_a.dtype == torch.float32:
            factors = scale_a.double().reshape(-1, 1)
            exact *= factors if scale_a.numel() == 1 else factors[rows]
            exact *= scale_b.double().reshape(1, -1)
        if bias is not None:
            exact += bias.double()
        result[rows] = rounded(exact, dtype)
    return result


def multiply_fp4_here() -> None:
    """Let `torch._scaled_mm` multiply FP4 by `scaled_mm` if the GPU is older than Blackwell and
    cannot do it."""
    if torch.cuda.get_device_capability() < (10, 0):
        torch._scaled_mm = _either


def _either(mat1: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    by = scaled_mm if mat1.dtype == torch.float4_e2m1fn_x2 else _OF_TORCH
    return by(mat1, *args, **kwargs)


def _check(
    mat1: torch.Tensor,
    mat2: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    bias: torch.Tensor | None,
    scale_result: torch.Tensor | None,
    out_dtype: torch.dtype | None,
) -> None:
    """Check torch's own rules for CUDA, which it applies to meta tensors, and refuse what is not
    supported here."""
    shapes = [
        torch.empty_strided(each.shape, each.stride(), dtype=each.dtype, device="meta")
        for each in (mat1, mat2, scale_a, scale_b)
    ]
    _OF_TORCH(*shapes, out_dtype=out_dtype)
    if mat1.shape[1] != mat2.shape[0]:
        raise RuntimeError(
            "mat1 and mat2 shapes cannot be multiplied "
            f"({mat1.shape[0]}x{mat1.shape[1]} and {mat2.shape[0]}x{mat2.shape[1]})"
        )
    if mat1.dtype == mat2.dtype == torch.float8_e5m2:
        raise RuntimeError("Multiplication of two Float8_e5m2 matrices is not supported")
    dtype = out_dtype or mat1.dtype
    if bias is not None:
        if bias.numel() != mat2.shape[1]:
            raise RuntimeError(f"Bias must be size {mat2.shape[1]} but got {bias.numel()}")
        if dtype == torch.float32:
            raise RuntimeError("Bias is not supported when out_dtype is set to Float32")
        if bias.dtype not in ([dtype] if dtype in _OUT_DTYPES else _OUT_DTYPES[:2]):
            raise RuntimeError(f"Bias must be {dtype} to compute {dtype} output, not {bias.dtype}")
    is_fp4 = mat1.dtype == torch.float4_e2m1fn_x2
    if is_fp4 != (mat2.dtype == torch.float4_e2m1fn_x2):
        raise RuntimeError(f"Expected both operands to be FP4, got {mat1.dtype} and {mat2.dtype}")
    _refuse(scale_result is not None, "scale_result")
    _refuse(scale_a.dtype != scale_b.dtype, f"scales of {scale_a.dtype} and {scale_b.dtype}")
    _refuse(dtype not in _OUT_DTYPES, f"out_dtype {out_dtype}")
    if scale_a.dtype in _BLOCK:
        is_e4m3 = scale_a.dtype == torch.float8_e4m3fn
        _refuse(is_e4m3 and not is_fp4, f"{mat1.dtype} with E4M3 block scales")
        return
    _refuse(is_fp4, "FP4 with float32 scales")
    by_row = scale_a.numel() == mat1.shape[0] and scale_b.numel() == mat2.shape[1]
    by_tensor = scale_a.numel() == scale_b.numel() == 1
    _refuse(not (by_row or by_tensor), "scales of 128-element blocks")


def _refuse(condition: bool, what: str) -> None:
    if condition:
        raise NeedsGpu(
            f"torch._scaled_mm without a GPU does not support {what}",
            hint="NVFP4 and MX block scales in the 128x4 tile layout, and FP8 with a scale a "
            "tensor or a row, to float16, bfloat16 or float32, are supported",
        )


def _is_nvfp4(operand: torch.Tensor, scales: torch.Tensor) -> bool:
    """Whether an operand is NVFP4 on a CPU; a GPU may round what it multiplies."""
    fits = operand.dtype == torch.float4_e2m1fn_x2 and scales.dtype == torch.float8_e4m3fn
    return fits and not operand.is_cuda


def _range(scales: torch.Tensor) -> tuple[int, int]:
    """Return the largest of E4M3 scales, and the largest power of two that all are multiples of, in
    units of the least subnormal number. NaN counts as very large."""
    units = (scales.float().abs() * 512).int().flatten().numpy().view(np.uint32)
    bits = int(np.bitwise_or.reduce(units))
    return int(units.max()), bits & -bits


def _depth_in_float32(a: tuple[int, int], b: tuple[int, int]) -> int:
    """Return how many FP4 products with scales of these ranges float32 can add in any order without
    rounding: all products are multiples of the least possible one."""
    most, least = 36.0 * a[0] * b[0], 0.25 * a[1] * b[1]
    return int(2**24 * least / most) if most else 0


def _integers_for(ranges: list[tuple[int, int]], k: int) -> torch.dtype | None:
    """Return the narrowest integers that hold FP4 values times scales of these ranges, as multiples
    of the least one; None if products of such integers are not for this processor."""
    if not ranges or k > _DEPTH_OF_DIGITS or not torch.cpu._is_vnni_supported():
        return None  # others saturate
    fitting = (
        dtype
        for dtype, most in _MOST_OF_DIGITS.items()
        if all(0 < 12 * largest <= most * unit for largest, unit in ranges)
    )
    return next(fitting, None)


def _digits(values: torch.Tensor) -> list[torch.Tensor]:
    """Return numbers as matrices whose products, times `_WEIGHTS`, add to that of the numbers:
    [h, h + l, l] of 8 bits each for a number 128 * h + l, or the numbers themselves if not
    int16."""
    if values.dtype != torch.int16:
        return [values]
    high = (values + 64) >> 7
    low = values - (high << 7)
    return [each.to(torch.int8) for each in (high, high + low, low)]


def _decoded(
    operand: torch.Tensor, scales: torch.Tensor, dtype: torch.dtype, rows: slice = slice(None),
    unit: int = 0,
) -> torch.Tensor:  # fmt: skip
    """Return the rows of an operand [rows, k] as numbers, multiplied by its block scales if there
    are any. unit: for integers, the number that all scales are multiples of; FP4 values are
    multiples of 0.5."""
    chosen = operand[rows]
    if operand.dtype == torch.float4_e2m1fn_x2:
        codes = chosen.view(torch.uint8)
        pairs = (_PAIRS * 2 if unit else _PAIRS).to(codes.device, dtype)
        values = pairs.index_select(0, codes.flatten().int()).view(len(codes), -1)
    else:
        values = chosen.to(dtype)
    block = _BLOCK.get(scales.dtype)
    if block is None:
        return values
    by_row = unblocked(scales, operand.shape[0], values.shape[1] // block)[rows]
    if unit:
        by_row = by_row.float() * (512 / unit)
    return (values.unflatten(1, (-1, block)) * by_row.to(dtype).unsqueeze(2)).flatten(1)


def unblocked(scales: torch.Tensor, rows: int, blocks: int) -> torch.Tensor:
    """Return scales [rows, blocks] from the layout of 128x4 tiles, padded to whole tiles."""
    row_tiles, block_tiles = -(-rows // 128), -(-blocks // 4)
    tiles = scales.view(torch.uint8).reshape(row_tiles, block_tiles, 32, 4, 4)
    by_row = tiles.permute(0, 3, 2, 1, 4).reshape(row_tiles * 128, block_tiles * 4)
    return by_row[:rows, :blocks].view(scales.dtype)


def rounded(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Round float64 values to a narrower type once, to nearest even; or float32 ones.

    Torch goes through float32. Rounding to odd on the way keeps the information that the second
    rounding needs: whether anything was cut off.
    """
    single = values.to(torch.float32)
    if torch.float32 in (dtype, values.dtype):
        return single.to(dtype)
    inexact = (single.double() != values) & ~values.isnan()
    bits = single.view(torch.int32)
    bits = torch.where(single.double().abs() > values.abs(), bits - 1, bits)
    bits = torch.where(inexact, bits | 1, bits)
    return bits.view(torch.float32).to(dtype)
