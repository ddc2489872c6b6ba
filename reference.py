"""Inputs, exact reference and check of the NVFP4 GEMV problem, on CUDA if there is one, else CPU.

``generate_input`` draws the contest's own inputs: with the same seed on the same kind of device it
gives the very tensors of the leaderboard. ``generate_full_range_input`` draws what real data hold
and the contest never sets: all 16 FP4 codes in both nibbles, all finite scales of both signs.

Why the reference is exact: a product of two E2M1 values is a multiple of 0.25 up to 36, so float32
holds the sum of a 16-element block without rounding. A block sum times two E4M3 scales is a
multiple of 2**-20 below 2**27, and float64 holds every sum of such terms below 2**33. A result
that is finite in float16 is below 2**16, so each is rounded exactly once, at the end.
"""

import numpy as np
import torch

from task import (
    atol,
    input_t,
    k_multiple,
    n_padded,
    output_dtypes,
    output_t,
    rtol,
    sf_vec_size,
)

_shown_mismatches = 5

_e4m3_max_code = 126
"""Magnitude code of 448, the largest finite E4M3 value; 127 is NaN."""


def default_device() -> torch.device:
    """CUDA where there is a device, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _check_shape(m: int, k: int, l: int) -> None:
    if m < 1 or l < 1:
        raise ValueError(f"m and l must be at least 1, got m={m} and l={l}")
    if k < k_multiple or k % k_multiple:
        raise ValueError(f"k must be a positive multiple of {k_multiple}, got {k}")


def _permute_scales(scales: torch.Tensor, permuted_storage: torch.Tensor) -> torch.Tensor:
    """Writes scales [rows, k//16, l] over their permuted storage [l, rest_m, rest_k, 32, 4, 4].

    Returns the storage as [32, 4, rest_m, 4, rest_k, l], where row i and block j of batch b stand
    at [i % 32, (i % 128) // 32, i // 128, j % 4, j // 4, b]. Rows past the last keep what the
    storage held.
    """
    rows, k_blocks, l = scales.shape
    _, rest_m, rest_k, _, _, _ = permuted_storage.shape
    by_row = permuted_storage.permute(0, 1, 4, 3, 2, 5).reshape(l, rest_m * 128, rest_k * 4)
    by_row[:, :rows, :k_blocks] = scales.permute(2, 0, 1)
    tiled = by_row.view(l, rest_m, 4, 32, rest_k, 4)
    permuted_storage.copy_(tiled.permute(0, 1, 4, 3, 2, 5))
    return permuted_storage.permute(3, 4, 1, 5, 2, 0)


def _scale_storage_shape(rows: int, k_blocks: int, l: int) -> tuple[int, ...]:
    return (l, -(-rows // 128), -(-k_blocks // 4), 32, 4, 4)


def generate_input(m: int, k: int, l: int, seed: int) -> input_t:
    """The contest's inputs for a seed, as the 7-tuple ``task.input_t`` describes.

    FP4 bytes are 0..3 (values 0, 0.5, 1, 1.5; every high nibble zero), scales are 0, 1 or 2, c
    holds normal random values. The order of draws is the contest's.

    Raises ValueError for a shape outside the problem.
    """
    _check_shape(m, k, l)
    device = default_device()
    k_blocks = k // sf_vec_size
    torch.manual_seed(seed)
    a = torch.randint(0, 4, (l, m, k // 2), dtype=torch.uint8, device=device)
    b = torch.randint(0, 4, (l, n_padded, k // 2), dtype=torch.uint8, device=device)
    c = torch.randn((l, m, 1), dtype=torch.float16, device=device)

    def scales(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        drawn = torch.randint(0, 3, (l, rows, k_blocks), dtype=torch.int8, device=device)
        # The contest draws this storage before overwriting it; the draw moves the generator on.
        storage_shape = _scale_storage_shape(rows, k_blocks, l)
        storage = torch.randint(0, 3, storage_shape, dtype=torch.int8, device=device)
        plain = drawn.to(torch.float8_e4m3fn)
        return _as_scales(plain.view(torch.uint8), storage.to(torch.float8_e4m3fn))

    sfa, sfa_permuted = scales(m)
    sfb, sfb_permuted = scales(n_padded)
    return _assemble(a, b, sfa, sfb, sfa_permuted, sfb_permuted, c)


def _as_scales(
    codes: torch.Tensor, permuted_storage: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """E4M3 codes uint8 [l, rows, k//16] as the plain and the permuted scale tensor."""
    plain = codes.permute(1, 2, 0)
    permuted = _permute_scales(plain, permuted_storage.view(torch.uint8))
    return plain.view(torch.float8_e4m3fn), permuted.view(torch.float8_e4m3fn)


def _assemble(
    a: torch.Tensor,
    b: torch.Tensor,
    sfa: torch.Tensor,
    sfb: torch.Tensor,
    sfa_permuted: torch.Tensor,
    sfb_permuted: torch.Tensor,
    c: torch.Tensor,
) -> input_t:
    """The 7-tuple from FP4 bytes [l, rows, k//2], scales in place and c [l, m, 1]."""

    def k_major(packed: torch.Tensor) -> torch.Tensor:
        return packed.view(torch.float4_e2m1fn_x2).permute(1, 2, 0)

    return k_major(a), k_major(b), sfa, sfb, sfa_permuted, sfb_permuted, c.permute(1, 2, 0)


def generate_full_range_input(m: int, k: int, l: int, seed: int) -> input_t:
    """Inputs that use the whole format and still have results that are finite in float16.

    Every byte of a and b is uniform, so all 16 codes stand in both nibbles. Scales take every
    finite E4M3 code of both signs, subnormals and zeros included. To keep results finite the
    magnitude codes of sfa and sfb in one block column are capped so that the caps add up to a
    constant: where sfa may be 448, sfb is small, and the other way round. Should a result still
    overflow, the same draw is repeated with smaller caps.

    Raises ValueError for a shape outside the problem.
    """
    _check_shape(m, k, l)
    device = default_device()
    k_blocks = k // sf_vec_size
    for cap_sum in range(136, 0, -8):
        torch.manual_seed(seed)
        a = torch.randint(0, 256, (l, m, k // 2), dtype=torch.uint8, device=device)
        b = torch.randint(0, 256, (l, n_padded, k // 2), dtype=torch.uint8, device=device)
        c = torch.randn((l, m, 1), dtype=torch.float16, device=device)
        lowest = max(0, cap_sum - _e4m3_max_code)
        sfa_cap = torch.randint(
            lowest, min(cap_sum, _e4m3_max_code) + 1, (1, 1, k_blocks), device=device
        )

        def scales(
            rows: int, cap: torch.Tensor, k_blocks: int = k_blocks
        ) -> tuple[torch.Tensor, torch.Tensor]:
            uniform = torch.rand((l, rows, k_blocks), device=device)
            magnitude = (uniform * (cap + 1)).to(torch.uint8).clamp(max=_e4m3_max_code)
            sign = torch.randint(0, 2, (l, rows, k_blocks), dtype=torch.uint8, device=device)
            storage_shape = _scale_storage_shape(rows, k_blocks, l)
            storage = torch.zeros(storage_shape, dtype=torch.uint8, device=device)
            return _as_scales(magnitude | (sign << 7), storage)

        sfa, sfa_permuted = scales(m, sfa_cap)
        sfb, sfb_permuted = scales(n_padded, cap_sum - sfa_cap)
        data = _assemble(a, b, sfa, sfb, sfa_permuted, sfb_permuted, c)
        if bool(torch.isfinite(ref_kernel(data)).all()):
            return data
    raise AssertionError("results of zero scales are finite")


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
    """Where the contest's check passes an output, bool of the same shape.

    output: any floating or integer dtype; expected: float16. ``|out - ref| <= atol + rtol * |ref|``
    as the contest computes it: every step of the right side is rounded to float16, the left side to
    the common dtype of both. NaN passes only where NaN is expected, infinity likewise.
    """
    common = torch.promote_types(output.dtype, expected.dtype)
    wide = torch.promote_types(common, torch.float32)
    error = (output.to(common).to(wide) - expected.to(wide)).abs().to(common)
    allowed = (expected.float().abs() * rtol).half().float() + atol
    same_kind = output.isnan() == expected.isnan()
    for infinity in (torch.inf, -torch.inf):
        same_kind &= (output == infinity) == (expected == infinity)
    return same_kind & ~(error > allowed.half())


def error_share(output: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest error over the allowed one, in float64; infinity where NaN or infinity differ."""
    got, want = output.double(), expected.double()
    share = (got - want).abs() / (atol + rtol * want.abs())
    share[(got == want) | (got.isnan() & want.isnan())] = 0.0
    return float(share.nan_to_num(nan=torch.inf).max())


def ref_kernel(data: input_t) -> output_t:
    """The exact result, rounded once to float16: [m, 1, l] with the strides of c.

    Reads the plain scales sfa and sfb and row 0 of b; c is not touched.
    """
    a, b, sfa, sfb, _, _, c = data
    out = torch.empty_like(c)
    for batch in range(c.shape[2]):
        exact = exact_gemv(
            a.view(torch.uint8)[:, :, batch],
            b.view(torch.uint8)[0, :, batch],
            sfa[:, :, batch],
            sfb[0, :, batch],
        )
        out[:, 0, batch] = round_once_to_fp16(exact)
    return out


def check_implementation(
    data: input_t, output: output_t, expected: output_t | None = None
) -> tuple[bool, str]:
    """Whether the contest would take an output, and if not, a message that says how it is wrong.

    output: [m, 1, l], float16 or what the contest takes instead. ``expected`` saves computing the
    reference again. The message counts the wrong elements and shows the first few.
    """
    ref = ref_kernel(data) if expected is None else expected
    if not isinstance(output, torch.Tensor):
        return False, f"the output is a {type(output).__name__}, not a tensor"
    if output.dtype not in output_dtypes or output.shape != ref.shape:
        return False, (
            f"the output is {output.dtype} {list(output.shape)}, "
            f"expected {ref.dtype} {list(ref.shape)}"
        )
    wrong = ~close_enough(output, ref)
    count = int(wrong.sum())
    if count == 0:
        return True, ""
    lines = [f"{count} of {wrong.numel()} elements are wrong"]
    for row, batch in wrong[:, 0, :].nonzero()[:_shown_mismatches].tolist():
        got, want = float(output[row, 0, batch]), float(ref[row, 0, batch])
        allowed = f"allowed error {atol + rtol * abs(want):.3g}"
        lines.append(f"  (m={row}, l={batch}): got {got:g}, expected {want:g}, {allowed}")
    if count > _shown_mismatches:
        lines.append(f"  and {count - _shown_mismatches} more")
    return False, "\n".join(lines)
