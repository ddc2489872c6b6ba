"""Inputs, exact reference and check of the problem, on CUDA if there is one, else on the CPU.

Why the reference is exact: a product of two E2M1 values is a multiple of 0.25 up to 36, so float32
holds the sum of a 16-element block. A block sum times two E4M3 scales is a multiple of 2**-20 below
2**27; float64 holds sums of these below 2**33. A result that is finite in float16 is below 2**16,
so it is rounded once, at the end.
"""

import numpy as np
import torch

from nvfp4.problems.nvfp4_gemv.task import (
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

e4m3_max_code = 126  # 448; 127 is NaN

cap_sums = range(136, 0, -8)
"""Sums of the caps on the magnitude codes of two scales that meet in full-range inputs, in the
order in which they are tried."""


def default_device() -> torch.device:
    """CUDA if there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _permute_scales(codes: torch.Tensor, permuted_storage: torch.Tensor) -> torch.Tensor:
    """Write codes [l, rows, k//16] to their permuted storage [l, rest_m, rest_k, 32, 4, 4].

    Returns the storage's view as in ``task.input_t``. Rows past the last keep what it held.
    """
    fours = codes.view(torch.int32)  # neighbours in both: they move together
    _, rows, columns = fours.shape
    i = torch.arange(rows, device=codes.device)[:, None]
    j = torch.arange(columns, device=codes.device)
    by_tile = permuted_storage.view(torch.int32)[..., 0].permute(3, 4, 1, 2, 0)
    by_tile[i % 32, i % 128 // 32, i // 128, j] = fours.permute(1, 2, 0)
    return permuted_storage.permute(3, 4, 1, 5, 2, 0)


def _scale_storage_shape(rows: int, k_blocks: int, l: int) -> tuple[int, ...]:
    return (l, -(-rows // 128), -(-k_blocks // 4), 32, 4, 4)


def generate_input(m: int, k: int, l: int, seed: int) -> input_t:
    """The contest's inputs for a seed, drawn in the contest's order; see ``task.input_t``.

    FP4 bytes are 0 to 3, so every high nibble is zero; scales are 0, 1 or 2, c is random. Raises
    ValueError for a shape outside the problem.
    """
    a, b, c = _draw(m, k, l, seed, 4)

    def scales(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        k_blocks, device = k // sf_vec_size, c.device
        drawn = torch.randint(0, 3, (l, rows, k_blocks), dtype=torch.int8, device=device)
        # The contest draws the storage, which moves the generator on, and overwrites it.
        storage_shape = _scale_storage_shape(rows, k_blocks, l)
        storage = torch.randint(0, 3, storage_shape, dtype=torch.int8, device=device)
        plain = drawn.to(torch.float8_e4m3fn)
        return _as_scales(plain.view(torch.uint8), storage.to(torch.float8_e4m3fn))

    (sfa, sfa_permuted), (sfb, sfb_permuted) = scales(m), scales(n_padded)
    return a, b, sfa, sfb, sfa_permuted, sfb_permuted, c


def _draw(m: int, k: int, l: int, seed: int, codes: int) -> tuple[torch.Tensor, ...]:
    """Draw random codes for a and b, and a random c."""
    if m < 1 or l < 1:
        raise ValueError(f"m and l must be at least 1, got m={m} and l={l}")
    if k < k_multiple or k % k_multiple:
        raise ValueError(f"k must be a positive multiple of {k_multiple}, got {k}")
    torch.manual_seed(seed)
    device = default_device()
    a, b = (
        torch.randint(0, codes, (l, rows, k // 2), dtype=torch.uint8, device=device)
        .view(torch.float4_e2m1fn_x2)
        .permute(1, 2, 0)
        for rows in (m, n_padded)
    )
    c = torch.randn((l, m, 1), dtype=torch.float16, device=device)
    return a, b, c.permute(1, 2, 0)


def _as_scales(
    codes: torch.Tensor, permuted_storage: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return E4M3 codes, uint8 [l, rows, k//16], as the plain and the permuted tensor."""
    permuted = _permute_scales(codes, permuted_storage.view(torch.uint8))
    plain = codes.view(torch.float8_e4m3fn).permute(1, 2, 0)
    return plain, permuted.view(torch.float8_e4m3fn)


def patches(
    l: int, rows: int, k_blocks: int, generator: torch.Generator | None = None
) -> torch.Tensor:
    """Choose half of the 64 rectangles of each batch at random: bool [l, rows, k//16]. generator:
    None for torch's own."""
    device = default_device()
    i, j = (torch.arange(size, device=device) * 8 // size for size in (rows, k_blocks))
    drawn = torch.rand((l, 64), generator=generator, device=device)
    half = drawn <= drawn.sort(dim=1).values[:, 31:32]
    return half.view(l, 8, 8)[:, i[:, None], j]


def generate_full_range_input(m: int, k: int, l: int, seed: int) -> input_t:
    """Inputs that use the whole format, unlike the contest's, with results finite in float16.

    Both nibbles take all 16 codes, scales every finite E4M3 code of both signs. The magnitude codes
    of sfa and sfb in a block column have caps with a constant sum: where sfa may be 448, sfb is
    small. If a result still overflows, smaller caps are tried. In patches the inputs look like the
    contest's, so that a sample of them does not reveal which kind they are. Raises ValueError for a
    shape outside the problem.
    """
    k_blocks, device = k // sf_vec_size, default_device()
    for cap_sum in cap_sums:
        a, b, c = _draw(m, k, l, seed, 256)
        lowest = max(0, cap_sum - e4m3_max_code)
        sfa_cap = torch.randint(
            lowest, min(cap_sum, e4m3_max_code) + 1, (1, 1, k_blocks), device=device
        )

        def scales(
            rows: int, cap: torch.Tensor, plain: torch.Tensor
        ) -> tuple[torch.Tensor, torch.Tensor]:
            contest = torch.tensor([0, 0x38, 0x40], dtype=torch.uint8, device=device)  # 0, 1, 2
            small = contest[torch.randint(0, 3, (l, rows, k_blocks), device=device)]
            uniform = torch.rand((l, rows, k_blocks), device=device)
            magnitude = (uniform * (cap + 1)).to(torch.uint8).clamp(max=e4m3_max_code)
            sign = torch.randint(0, 2, (l, rows, k_blocks), dtype=torch.uint8, device=device)
            storage_shape = _scale_storage_shape(rows, k_blocks, l)
            storage = torch.zeros(storage_shape, dtype=torch.uint8, device=device)
            codes = torch.where(plain, small * (small <= cap), magnitude | (sign << 7))
            return _as_scales(codes, storage)

        plain_a, plain_b = (patches(l, rows, k_blocks) for rows in (m, n_padded))
        for packed, plain in ((a, plain_a), (b, plain_b)):
            raw = packed.view(torch.uint8).permute(2, 0, 1)
            raw &= torch.where(plain, 3, 255).to(torch.uint8).repeat_interleave(8, dim=2)
        sfa, sfa_permuted = scales(m, sfa_cap, plain_a)
        sfb, sfb_permuted = scales(n_padded, cap_sum - sfa_cap, plain_b)
        data = a, b, sfa, sfb, sfa_permuted, sfb_permuted, c
        if bool(torch.isfinite(ref_kernel(data)).all()):
            return data
    raise AssertionError("results of zero scales are finite")


chunk_bytes = {"cpu": 8 << 20, "cuda": 1 << 30}
"""Working memory of a chunk of rows: as much as a CPU's caches hold, or as fills a GPU."""

_bytes_per_packed = 24  # two float32 or float64 values, their float16 forms, and slack


def e2m1_streams(packed: torch.Tensor) -> list[torch.Tensor]:
    """The values of nibbles 0, 1, 2, 3 of each little-endian pair of bytes, times 2**-14.

    packed: uint8 [..., k//2], contiguous; returns four float16 [..., k//4]. The bits of an E2M1
    code, subnormals included, move to their places in a float16; the biases differ by 14. Two
    pairs move at once.
    """
    pairs = packed.view(torch.int32)
    streams = []
    for i in range(4):
        sign = (pairs << 12 - 4 * i) & -0x7FFF8000
        magnitude = (pairs << 9 - 4 * i if i < 3 else pairs >> 3) & 0x0E000E00
        streams.append((magnitude | sign).view(torch.float16))
    return streams


def exact_gemv(
    a: torch.Tensor, b: torch.Tensor, sfa: torch.Tensor, sfb: torch.Tensor
) -> torch.Tensor:
    """The GEMV of one batch: ``sum_kk a[i, kk] * sfa[i, kk // 16] * b[kk] * sfb[kk // 16]``.

    a: uint8 [m, k//2]; b: uint8 [k//2]; sfa: float8_e4m3fn [m, k//16]; sfb: float8_e4m3fn [k//16]
    or [k//16, n]. Returns float64 [m] or [m, n], exact below 2**33 in magnitude. NaN scales give
    NaN, as they must.
    """
    m, k_packed = a.shape
    sums, b_streams = _sums_on_gpu if a.is_cuda else _sums_on_cpu, e2m1_streams(b.contiguous())
    out = torch.empty((m, *sfb.shape[1:]), dtype=torch.float64, device=a.device)
    rows = max(1, chunk_bytes[a.device.type] // (k_packed * _bytes_per_packed))
    for start in range(0, m, rows):
        part = slice(start, start + rows)
        out[part] = sums(a[part].contiguous(), b_streams, sfa[part], sfb)
    return out


def _sums_on_cpu(
    a: torch.Tensor, b_streams: list[torch.Tensor], sfa: torch.Tensor, sfb: torch.Tensor
) -> torch.Tensor:
    """``exact_gemv`` by the sums of blocks, which float32 holds: few passes in caches."""
    sums = torch.zeros(len(a), 4 * len(sfb))
    for a_stream, b_stream in zip(e2m1_streams(a), b_streams, strict=True):
        sums.addcmul_(a_stream.float(), b_stream.float() * 2.0**28)
    block_sums = sums.view(len(a), -1, 4).sum(-1)
    return (block_sums.double() * sfa.float()) @ sfb.float().double()


def _sums_on_gpu(
    a: torch.Tensor, b_streams: list[torch.Tensor], sfa: torch.Tensor, sfb: torch.Tensor
) -> torch.Tensor:
    """``exact_gemv`` by scaled values in float64: few passes over memory."""
    k_blocks = len(sfb)
    a_values, b_values = (
        torch.stack(streams, dim=-1).view(-1, k_blocks, 16)
        for streams in (e2m1_streams(a), b_streams)
    )
    scaled_a = (a_values * sfa.float().double()[:, :, None]).view(len(a), -1)
    columns = sfb.float().double().view(k_blocks, 1, -1)
    scaled_b = (b_values.view(k_blocks, 16, 1) * (columns * 2.0**28)).view(k_blocks * 16, -1)
    return (scaled_a @ scaled_b).view(len(a), *sfb.shape[1:])


def round_once_to_fp16(exact: torch.Tensor) -> torch.Tensor:
    """Round float64 to float16, to nearest even. torch would go through float32 and round twice."""
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = exact.cpu().numpy().astype(np.float16)
    return torch.from_numpy(rounded).to(exact.device)


def close_enough(output: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Return where the contest's check passes an output: bool of its shape. expected: float16.

    As in the contest, every step of ``atol + rtol * |ref|`` is rounded to float16, and
    ``|out - ref|`` to the common dtype.
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
    """The largest error over the allowed one; infinity where NaN or infinity differ."""
    got, want = output.double(), expected.double()
    share = (got - want).abs() / (atol + rtol * want.abs())
    share[(got == want) | (got.isnan() & want.isnan())] = 0.0
    return float(share.nan_to_num(nan=torch.inf).max())


def ref_kernel(data: input_t) -> output_t:
    """The exact result, rounded once: float16 [m, 1, l] with the strides of c. Leaves c alone."""
    a, b, sfa, sfb, _, _, c = data
    exact = [
        exact_gemv(
            a.view(torch.uint8)[:, :, batch],
            b.view(torch.uint8)[0, :, batch],
            sfa[:, :, batch],
            sfb[0, :, batch],
        )
        for batch in range(c.shape[2])
    ]
    out = torch.empty_like(c)
    out[:, 0] = round_once_to_fp16(torch.stack(exact, dim=1))
    return out


def check_implementation(
    data: input_t, output: output_t, expected: output_t | None = None
) -> tuple[bool, str]:
    """Return whether the contest would accept an output, and a message that shows the first
    mismatches.

    expected: the result of ``ref_kernel``, if it is known.
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
