"""torch._scaled_mm on the stand-in device, against float64."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from nvfp4.capture import standin
from nvfp4.capture.standin.scaled_mm import _WEIGHTS, _digits, rounded

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a real CUDA device")

E2M1 = (0, 0.5, 1, 1.5, 2, 3, 4, 6)
E4M3, E8M0 = torch.float8_e4m3fn, torch.float8_e8m0fnu


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    with standin.install(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        yield


def random_fp4(rows: int, k: int) -> torch.Tensor:
    codes = torch.randint(0, 256, (rows, k // 2), dtype=torch.uint8)
    return codes.cuda().view(torch.float4_e2m1fn_x2)


def random_e4m3(rows: int, blocks: int) -> torch.Tensor:
    """All finite codes of both signs."""
    magnitudes = torch.randint(0, 127, (rows, blocks), dtype=torch.uint8)
    signs = torch.randint(0, 2, (rows, blocks), dtype=torch.uint8) << 7
    return (magnitudes | signs).view(E4M3)


def to_blocked(scales: torch.Tensor) -> torch.Tensor:
    """As the contest's reference does: padded to tiles of 128x4, rows swizzled, flat, on CUDA."""
    rows, blocks = scales.shape
    row_tiles, block_tiles = -(-rows // 128), -(-blocks // 4)
    padded = torch.zeros(row_tiles * 128, block_tiles * 4, dtype=torch.uint8)
    padded[:rows, :blocks] = scales.view(torch.uint8)
    tiles = padded.view(row_tiles, 128, block_tiles, 4).permute(0, 2, 1, 3)
    rearranged = tiles.reshape(-1, 4, 32, 4).transpose(1, 2).reshape(-1, 32, 16)
    return rearranged.flatten().view(scales.dtype).cuda()


def values_of(packed: torch.Tensor) -> np.ndarray:
    """Element 2i in the low nibble of byte i."""
    codes = packed.cpu().view(torch.uint8).numpy()
    table = np.array([*E2M1, *(-each for each in E2M1)])
    return np.stack([table[codes & 15], table[codes >> 4]], axis=-1).reshape(len(codes), -1)


def expected(a: torch.Tensor, b: torch.Tensor, sfa: torch.Tensor, sfb: torch.Tensor) -> np.ndarray:
    scaled = [
        values_of(values) * np.repeat(scales.double().numpy(), 16, axis=1)
        for values, scales in ((a, sfa), (b, sfb))
    ]
    return scaled[0] @ scaled[1].T


@pytest.mark.parametrize(("m", "n", "k"), [(128, 128, 256), (256, 128, 1024), (1, 16, 64)])
@pytest.mark.parametrize("out_dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_nvfp4_on_full_range_inputs_is_the_exact_product_rounded_once(
    m: int, n: int, k: int, out_dtype: torch.dtype
) -> None:
    a, b = random_fp4(m, k), random_fp4(n, k)
    sfa, sfb = random_e4m3(m, k // 16), random_e4m3(n, k // 16)
    result = torch._scaled_mm(a, b.t(), to_blocked(sfa), to_blocked(sfb), out_dtype=out_dtype)
    assert result.is_cuda
    assert (result.shape, result.dtype) == ((m, n), out_dtype)
    exact = expected(a, b, sfa, sfb)
    if out_dtype == torch.bfloat16:
        want = torch.from_numpy(exact)
        torch.testing.assert_close(result.cpu().double(), want, rtol=2**-8, atol=0)
    else:
        with np.errstate(over="ignore"):
            want = exact.astype(np.float16 if out_dtype == torch.float16 else np.float32)
        assert np.array_equal(result.cpu().numpy(), want)


@pytest.mark.parametrize("scale", [1, 15, 28, 0])
@pytest.mark.parametrize("by_integers", [False, True])
def test_products_in_integers_and_float32_are_exact_too(
    scale: int, by_integers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all of k at once, of parts of it in float32, and not at all for 28 and any below 1 (0);
    integers of 8 bits for 1, and of two digits."""
    if not by_integers:
        monkeypatch.setattr("torch.cpu._is_vnni_supported", lambda: False)
    m, k = 128, 2048
    sixes_and_halves = torch.tensor([0x77, 0x77, 0x71, 0x11], dtype=torch.uint8)
    a, b = (
        sixes_and_halves[torch.randint(4, (m, k // 2))].cuda().view(torch.float4_e2m1fn_x2)
        for _ in range(2)
    )
    sfa, sfb = (scale - 2 * torch.randint(2, (m, k // 16)) for _ in range(2))
    if scale == 0:
        sfa, sfb = (torch.rand(m, k // 16) for _ in range(2))
    sfa, sfb = sfa.to(E4M3), sfb.to(E4M3)
    result = torch._scaled_mm(a, b.t(), to_blocked(sfa), to_blocked(sfb), out_dtype=torch.float32)
    assert np.array_equal(result.cpu().numpy(), expected(a, b, sfa, sfb).astype(np.float32))


def test_digits_of_all_numbers_that_have_two_multiply_to_the_numbers_product() -> None:
    numbers = torch.arange(-127 * 64, 127 * 64 + 1, dtype=torch.int16)
    digits = [each.long() for each in _digits(numbers)]
    for place in (0, 63, 64, 4000, len(numbers) - 1):
        products = sum(w * each * each[place] for w, each in zip(_WEIGHTS, digits, strict=True))
        assert torch.equal(products, numbers.long() * numbers[place].long())


def test_scales_that_are_nan_make_their_rows_nan() -> None:
    a, b = random_fp4(128, 64), random_fp4(128, 64)
    sfa = torch.full((128, 4), 0x38, dtype=torch.uint8)
    sfa[5, 2] = 0x7F
    ones = to_blocked(torch.full((128, 4), 0x38, dtype=torch.uint8).view(E4M3))
    result = torch._scaled_mm(a, b.t(), to_blocked(sfa.view(E4M3)), ones, out_dtype=torch.float16)
    assert result[5].isnan().all()
    assert not result[:5].isnan().any()


def test_mx_scales_cover_32_elements() -> None:
    a, b = (torch.randn(128, 256).to(E4M3) for _ in range(2))
    sfa, sfb = (torch.randint(120, 135, (128, 8), dtype=torch.uint8).view(E8M0) for _ in range(2))
    blocked = to_blocked(sfa), to_blocked(sfb)
    result = torch._scaled_mm(a.cuda(), b.cuda().t(), *blocked, out_dtype=torch.float32)
    scaled = [
        values.double() * scales.double().repeat_interleave(32, dim=1)
        for values, scales in ((a, sfa), (b, sfb))
    ]
    assert torch.equal(result.cpu(), (scaled[0] @ scaled[1].t()).float())


def test_a_bias_is_added_before_rounding() -> None:
    a, b = random_fp4(128, 64), random_fp4(128, 64)
    ones = torch.full((512,), 0x38, dtype=torch.uint8, device="cuda").view(E4M3)
    bias = torch.randn(128, dtype=torch.float16)
    result = torch._scaled_mm(a, b.t(), ones, ones, bias=bias.cuda(), out_dtype=torch.float16)
    exact = values_of(a) @ values_of(b).T + bias.double().numpy()
    assert np.array_equal(result.cpu().numpy(), exact.astype(np.float16))


@pytest.mark.parametrize("by_row", [False, True])
def test_fp8_with_a_scale_a_tensor_or_a_row(by_row: bool) -> None:
    a, b = (torch.randn(32, 64).to(E4M3) for _ in range(2))
    shapes = ((32, 1), (1, 32)) if by_row else ((), ())
    scales = [torch.rand(shape) + 0.5 for shape in shapes]
    on_gpu = (each.cuda() for each in scales)
    result = torch._scaled_mm(a.cuda(), b.cuda().t(), *on_gpu, out_dtype=torch.float32)
    exact = (a.double() @ b.double().t()) * scales[0].double() * scales[1].double()
    assert torch.equal(result.cpu(), exact.float())


def test_an_output_of_the_caller_is_written() -> None:
    a, b = random_fp4(128, 64), random_fp4(128, 64)
    ones = torch.full((512,), 0x38, dtype=torch.uint8, device="cuda").view(E4M3)
    out = torch.empty(128, 128, dtype=torch.float16, device="cuda")
    assert torch._scaled_mm(a, b.t(), ones, ones, out_dtype=torch.float16, out=out) is out
    assert torch.equal(out, torch._scaled_mm(a, b.t(), ones, ones, out_dtype=torch.float16))


@pytest.mark.skipif(not hasattr(torch.nn.functional, "scaled_mm"), reason="newer than this torch")
def test_the_functional_form_gives_the_same_product() -> None:
    from torch.nn.functional import ScalingType, SwizzleType, scaled_mm

    a, b = random_fp4(128, 64), random_fp4(128, 64)
    sfa, sfb = (to_blocked(random_e4m3(128, 4)) for _ in range(2))
    recipe, tiles = ScalingType.BlockWise1x16, SwizzleType.SWIZZLE_32_4_4
    result = scaled_mm(a, b.t(), sfa, recipe, sfb, recipe, tiles, tiles, None, torch.float32)
    assert torch.equal(result, torch._scaled_mm(a, b.t(), sfa, sfb, out_dtype=torch.float32))
    with pytest.raises(NotImplementedError, match="SWIZZLE_32_4_4"):
        scaled_mm(a, b.t(), sfa, recipe, sfb, recipe, None, None, None, torch.float32)


def test_operands_that_a_gpu_refuses_are_refused() -> None:
    a, b = random_fp4(128, 64), random_fp4(128, 64)
    one = torch.ones((), device="cuda")
    e5m2 = torch.ones(32, 32, device="cuda").to(torch.float8_e5m2)
    scales = torch.zeros(512, dtype=torch.uint8, device="cuda").view(E4M3)
    for arguments, message in (
        ((a, b.t(), scales[:256].contiguous(), scales), "scale_a should have 512 elements"),
        ((a, b.t(), scales.float(), scales.float()), "scale"),
        ((a, b.t().contiguous(), scales, scales), "mat2 must be col_major"),
        ((a.t(), b, scales, scales), "must be row_major"),
        ((a[0], b.t(), scales, scales), "Inputs must be 2D"),
        ((a.view(torch.uint8), b.t(), scales, scales), "Expected both inputs to be fp8 or fp4"),
        ((a, b.t(), scales.cpu(), scales), "same device"),
        ((e5m2, e5m2.t(), one.cpu(), one), "same device"),
        ((e5m2, e5m2.t(), one, one), "two Float8_e5m2"),
        ((a, b.t(), scales, scales, one.bfloat16().expand(128)), "Bias must be torch.float16"),
        ((a, b.t(), one, one), "without a GPU does not support FP4 with float32 scales"),
    ):
        with pytest.raises(RuntimeError, match=message):
            torch._scaled_mm(*arguments, out_dtype=torch.float16)
    with pytest.raises(NotImplementedError, match="does not support out_dtype"):
        torch._scaled_mm(a, b.t(), scales, scales)


def test_float64_is_rounded_once() -> None:
    """1 + 2**-11 is half way between two float16 values; what lies just above must go up."""
    above = 1 + 2**-11 + 2**-40
    edges = torch.tensor([1 + 2**-11, above, -above, 65520, 1e300], dtype=torch.float64)
    values = torch.cat([edges, torch.randn(1000, dtype=torch.float64)])
    with np.errstate(over="ignore"):
        want = values.numpy().astype(np.float16)
    assert np.array_equal(rounded(values, torch.float16).numpy(), want)
    assert rounded(torch.tensor([float("nan")]).double(), torch.float16).isnan().all()
