"""The reference: exact, rounded once, small in memory; and the tolerance of the check."""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch
from bot import root
from conftest import run_python
from hypothesis import given
from hypothesis import strategies as st
from ptx_runs import run_ptx

from nvfp4.problems.nvfp4_gemv import gpu_reference, reference
from nvfp4.problems.nvfp4_gemv.extras import names
from nvfp4.problems.nvfp4_gemv.gpu_reference import PTX, WARPS, expected_output, launch_of, tables
from nvfp4.problems.nvfp4_gemv.layout import layouts
from nvfp4.problems.nvfp4_gemv.task import output_dtypes

e2m1 = [Fraction(value) for value in ("0", "1/2", "1", "3/2", "2", "3", "4", "6")]
e2m1 += [-value for value in e2m1]


def e4m3_value(code: int) -> Fraction:
    """An E4M3 code by its definition: bias 7, subnormals in units of 2**-9."""
    exponent, mantissa = (code >> 3) & 15, code & 7
    size = (
        Fraction(mantissa, 512)
        if exponent == 0
        else Fraction(8 + mantissa, 8) * Fraction(2) ** (exponent - 7)
    )
    return -size if code & 0x80 else size


def brute_force(a: list[int], b: list[int], sfa: list[int], sfb: list[int]) -> Fraction:
    """One row of the GEMV by its formula, element by element."""

    def element(packed: list[int], kk: int) -> Fraction:
        byte = packed[kk // 2]
        return e2m1[byte >> 4 if kk % 2 else byte & 15]

    scales = [e4m3_value(one) * e4m3_value(other) for one, other in zip(sfa, sfb, strict=True)]
    terms = (element(a, kk) * element(b, kk) * scales[kk // 16] for kk in range(2 * len(a)))
    return sum(terms, start=Fraction(0))


def scales_of(codes: list[list[int]] | list[int]) -> torch.Tensor:
    return torch.tensor(codes, dtype=torch.uint8).view(torch.float8_e4m3fn)


finite_scales = st.integers(0, 255).filter(lambda code: code & 0x7F != 0x7F)


@st.composite
def rows_of_bytes(draw: st.DrawFn) -> tuple[list[list[int]], list[int], list[list[int]], list[int]]:
    """a, b, sfa, sfb of up to three rows and two groups of 64 elements."""
    m, k = draw(st.integers(1, 3)), 64 * draw(st.integers(1, 2))
    byte = st.integers(0, 255)

    def listed(of: st.SearchStrategy[int], size: int) -> list[int]:
        return draw(st.lists(of, min_size=size, max_size=size))

    a = [listed(byte, k // 2) for _ in range(m)]
    sfa = [listed(finite_scales, k // 16) for _ in range(m)]
    return a, listed(byte, k // 2), sfa, listed(finite_scales, k // 16)


@pytest.mark.parametrize("sums", [reference._sums_on_cpu, reference._sums_on_gpu])
@given(operands=rows_of_bytes())
def test_the_gemv_is_exact_for_every_code_and_scale(
    sums: Callable[..., torch.Tensor],
    operands: tuple[list[list[int]], list[int], list[list[int]], list[int]],
) -> None:
    a, b, sfa, sfb = operands
    codes_a, codes_b = (torch.tensor(each, dtype=torch.uint8) for each in (a, b))
    got = sums(codes_a, reference.e2m1_streams(codes_b), scales_of(sfa), scales_of(sfb))
    for row, value in enumerate(got.tolist()):
        assert Fraction(value) == brute_force(a[row], b, sfa[row], sfb)


def test_the_largest_products_and_the_smallest_meet_in_one_exact_sum() -> None:
    k = 128
    a, b = torch.full((1, k // 2), 0x77, dtype=torch.uint8), torch.full((k // 2,), 0x77)
    a[0, 32], a[0, 33:] = 0x01, 0
    sfa, sfb = [[126] * 4 + [1] + [0] * 3], [126] * 4 + [1] + [0] * 3
    got = reference.exact_gemv(a, b.to(torch.uint8), scales_of(sfa), scales_of(sfb))
    want = 64 * 36 * Fraction(448) ** 2 + Fraction(6, 2) * Fraction(1, 512) ** 2
    assert Fraction(float(got[0])) == want


@pytest.mark.parametrize("full", [False, True], ids=["contest", "full-range"])
def test_the_reference_is_the_exact_result_rounded_once(full: bool) -> None:
    m, k, l = 5, 192, 2
    data = (reference.generate_full_range_input if full else reference.generate_input)(m, k, l, 3)
    a, b, sfa, sfb = (tensor.view(torch.uint8).cpu() for tensor in data[:4])
    ref = reference.ref_kernel(data)
    for row in range(m):
        for batch in range(l):
            codes = a[row, :, batch], b[0, :, batch], sfa[row, :, batch], sfb[0, :, batch]
            value = brute_force(*(each.tolist() for each in codes))
            # The sum fits into float64 exactly, and NumPy rounds it once.
            assert Fraction(float(value)) == value
            assert float(ref[row, 0, batch]) == float(np.float16(float(value)))


@pytest.mark.parametrize(
    ("value", "rounded"),
    [
        (65519.99, 65504.0),
        (65520.0, math.inf),
        (-1e9, -math.inf),
        (2.0**-25, 0.0),
        (2.0**-25 * 1.001, 2.0**-24),
        # Halfway between two float16 values and a little more, which float32 would lose.
        (1 + 2**-11 + 2**-40, 1 + 2**-10),
    ],
)
def test_a_result_is_rounded_once_also_at_the_ends_of_float16(value: float, rounded: float) -> None:
    exact = torch.tensor([value], dtype=torch.float64)
    assert float(reference.round_once_to_fp16(exact)) == rounded


@pytest.mark.parametrize("chunk_bytes", [1, 4096, 20_000])
def test_chunks_of_rows_change_nothing(chunk_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = reference.generate_full_range_input(67, 256, 2, 9)
    whole = reference.ref_kernel(data)
    monkeypatch.setitem(reference.chunk_bytes, reference.default_device().type, chunk_bytes)
    assert torch.equal(reference.ref_kernel(data), whole)


def test_the_reference_does_not_touch_its_inputs() -> None:
    data = reference.generate_full_range_input(70, 128, 2, 9)
    before = [tensor.view(torch.uint8).clone() for tensor in data[:6]] + [data[6].clone()]
    reference.ref_kernel(data)
    after = [tensor.view(torch.uint8) for tensor in data[:6]] + [data[6]]
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


@pytest.mark.parametrize(
    ("operand", "place", "code", "wrong"),
    [
        (2, (4, 1, 1), 0x7F, [(4, 1)]),
        (2, (4, 1, 1), 0xFF, [(4, 1)]),
        (3, (0, 3, 1), 0x7F, [(row, 1) for row in range(6)]),
    ],
    ids=["of a", "negative, of a", "of b, for its whole batch"],
)
def test_a_nan_scale_makes_the_rows_nan_that_it_scales(
    operand: int, place: tuple[int, ...], code: int, wrong: list[tuple[int, int]]
) -> None:
    data = reference.generate_full_range_input(6, 64, 2, 1)
    data[operand].view(torch.uint8)[place] = code
    undefined = reference.ref_kernel(data)[:, 0].isnan().nonzero()
    assert undefined.tolist() == [list(each) for each in wrong]


def test_rows_of_b_behind_the_first_do_not_count() -> None:
    data = reference.generate_full_range_input(40, 128, 2, 1)
    before = reference.ref_kernel(data)
    data[1].view(torch.uint8)[1:] ^= 0xFF
    data[3].view(torch.uint8)[1:] ^= 0xFF
    assert torch.equal(reference.ref_kernel(data), before)


def test_a_quarter_of_the_largest_shape_stays_under_half_a_gib() -> None:
    program = (
        "import reference\n"
        "data = reference.generate_input(4096, 7168, 2, 1111)\n"
        "ok, message = reference.check_implementation(data, reference.ref_kernel(data))\n"
        "assert ok, message\n"
        "status = dict(line.split(':') for line in open('/proc/self/status'))\n"
        "print(status['VmHWM'].split()[0])\n"  # ru_maxrss begins with that of the parent
    )
    done = run_python("-c", program, cwd=root)
    assert int(done.stdout) * 1024 < 512 << 20, done.stderr


inf, nan = math.inf, math.nan


@pytest.mark.parametrize(
    ("got", "want", "passes"),
    [
        *((0.0, 0.0, True), (-0.0, 0.0, True), (0.00099, 0.0, True), (0.00101, 0.0, False)),
        *((1000.0, 1001.0, True), (1000.0, 1002.0, False), (1001.0, 1000.0, True)),
        *((1001.5, 1000.0, False), (-1000.0, 1000.0, False)),
        *((nan, nan, True), (nan, 0.0, False), (0.0, nan, False)),
        *((inf, inf, True), (-inf, inf, False), (inf, 65504.0, False), (65504.0, inf, False)),
        *((nan, inf, False), (inf, nan, False)),
    ],
)
def test_an_output_passes_within_the_tolerance_and_nowhere_else(
    got: float, want: float, passes: bool
) -> None:
    pair = (torch.tensor([value], dtype=torch.float16) for value in (got, want))
    assert bool(reference.close_enough(*pair)) is passes


@pytest.mark.parametrize(
    ("got", "want", "share"),
    [(0.001, 0.0, 1.0004), (4002.0, 3998.0, 1.00025), (1.0, 1.0, 0.0), (nan, nan, 0.0)],
)
def test_the_contest_rounds_to_float16_and_so_takes_a_little_more(
    got: float, want: float, share: float
) -> None:
    output, expected = (torch.tensor([value], dtype=torch.float16) for value in (got, want))
    assert reference.close_enough(output, expected)
    assert reference.error_share(output, expected) == pytest.approx(share, abs=1e-4)


@given(st.floats(width=16, allow_nan=False), st.floats(width=16, allow_nan=False))
def test_the_tolerance_is_that_of_the_contest(got: float, want: float) -> None:
    output, expected = (torch.tensor([value], dtype=torch.float16) for value in (got, want))
    passes = bool(reference.close_enough(output, expected))
    if math.isinf(got) or math.isinf(want):
        assert passes is (got == want)
    else:
        share = abs(got - want) / (1e-3 + 1e-3 * abs(want))
        assert reference.error_share(output, expected) == pytest.approx(share)
        # Three roundings to 11 bits on one side, one on the other.
        assert passes if share < 0.998 else not passes if share > 1.003 else True


@pytest.mark.parametrize("dtype", output_dtypes)
def test_any_number_of_the_right_shape_is_compared(dtype: torch.dtype) -> None:
    expected = torch.tensor([3.0, 64.0], dtype=torch.float16)
    assert reference.close_enough(expected.to(dtype), expected).tolist() == [True, True]
    assert reference.close_enough((expected + 2).to(dtype), expected).tolist() == [False, False]


def test_a_mismatch_counts_the_wrong_elements_and_shows_the_first_few() -> None:
    data = reference.generate_input(128, 64, 2, 1)
    output = reference.ref_kernel(data)
    want = float(output[3, 0, 1])
    output[3, 0, 1] = want + 5
    output[100:108, 0, 0] += 9
    passed, message = reference.check_implementation(data, output)
    lines = message.splitlines()
    assert not passed
    assert lines[0] == "9 of 256 elements are wrong"
    allowed = f"{1e-3 + 1e-3 * want:.3g}"
    assert lines[1] == (
        f"  (m=3, l=1): got {want + 5:g}, expected {want:g}, allowed error {allowed}"
    )
    assert [line.partition(":")[0].strip() for line in lines[2:6]] == [
        f"(m={row}, l=0)" for row in range(100, 104)
    ]
    assert lines[6] == "  and 4 more"
    assert len(lines) == 7


@pytest.mark.parametrize(
    ("output", "named"),
    [
        (None, "NoneType, not a tensor"),
        ([0.0], "list, not a tensor"),
        (torch.zeros(64, 1, 1, dtype=torch.complex64), "torch.complex64 [64, 1, 1], expected"),
        (torch.zeros(64, 1, dtype=torch.float16), "torch.float16 [64, 1], expected"),
    ],
)
def test_what_is_no_output_is_refused_by_name(output: object, named: str) -> None:
    passed, message = reference.check_implementation(reference.generate_input(64, 64, 1, 1), output)
    assert not passed
    assert named in message


def test_an_expected_output_saves_the_reference() -> None:
    data = reference.generate_input(64, 64, 1, 1)
    expected = reference.ref_kernel(data) + 1000
    assert reference.check_implementation(data, expected.clone(), expected) == (True, "")
    assert not reference.check_implementation(data, expected.clone())[0]


@pytest.mark.blackwell
@pytest.mark.parametrize(("m", "k", "l"), [(128, 256, 1), (256, 7168, 2)])
def test_the_reference_agrees_with_the_tensor_cores(m: int, k: int, l: int) -> None:
    data = reference.generate_input(m, k, l, 1111)
    a, b, _, _, sfa_permuted, sfb_permuted, _ = data
    ref = reference.ref_kernel(data)
    for batch in range(l):
        flat = [
            scales[..., batch].permute(2, 4, 0, 1, 3).flatten()
            for scales in (sfa_permuted, sfb_permuted)
        ]
        matrices = a[:, :, batch], b[:, :, batch].transpose(0, 1)
        got = torch._scaled_mm(*matrices, *flat, out_dtype=torch.float16)
        assert reference.close_enough(got[:, 0], ref[:, 0, batch]).all()


def emulated(m: int, k: int, l: int, data: tuple[torch.Tensor, ...]) -> torch.Tensor:
    of = layouts(m, k, l)
    out = torch.full((l, m, 1), 7.0, dtype=torch.float16)
    inputs = [of[name].flat(each) for name, each in zip(names[:4], data, strict=False)]
    storages = [*inputs, *tables(torch.device("cpu")), out]
    named = zip((*names[:4], "dots", "scales", "c"), storages, strict=True)
    buffers = [(name, each.data_ptr(), each.nbytes) for name, each in named]
    assert run_ptx(PTX, "gemv", *launch_of(storages, (m, k, l)), buffers=buffers).findings == []
    return out.permute(1, 2, 0)


@pytest.mark.parametrize(("m", "k", "l"), [(1, 64, 1), (WARPS + 3, 576, 2), (20, 1088, 3)])
@pytest.mark.parametrize("full", [False, True], ids=["contest", "full-range"])
def test_the_kernel_has_the_reference_s_bits(m: int, k: int, l: int, full: bool) -> None:
    draw = reference.generate_full_range_input if full else reference.generate_input
    data = tuple(each.cpu() for each in draw(m, k, l, 5))
    assert torch.equal(emulated(m, k, l, data), reference.ref_kernel(data))


def test_every_pair_of_bytes_is_multiplied_as_the_reference_does() -> None:
    m, k = 256, 4096
    data = [each.cpu() for each in reference.generate_input(m, k, 1, 5)]
    every = torch.arange(256, dtype=torch.uint8)
    data[0].view(torch.uint8)[:, :, 0] = every[:, None]
    data[1].view(torch.uint8)[0, :, 0] = every.repeat(k // 2 // 256)
    for number in (2, 3):
        finite = every[(every & 127) != 127].roll(number)
        data[number].view(torch.uint8)[0, : len(finite), 0] = finite
    assert torch.equal(emulated(m, k, 1, tuple(data)), reference.ref_kernel(tuple(data)))


@pytest.mark.gpu
@pytest.mark.parametrize("full", [False, True], ids=["contest", "full-range"])
@pytest.mark.parametrize(("m", "k", "l"), [(1, 64, 1), (4096, 7168, 8), (2432, 4608, 2)])
def test_a_gpu_has_the_reference_s_bits(m: int, k: int, l: int, full: bool) -> None:
    draw = reference.generate_full_range_input if full else reference.generate_input
    for seed in (1, 2):
        data = draw(m, k, l, seed)
        assert torch.equal(expected_output(data), reference.ref_kernel(data))
    assert gpu_reference._agrees[data[0].shape]


@pytest.mark.gpu
def test_a_shape_for_which_they_differ_has_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_reference, "_agrees", {})
    monkeypatch.setattr(gpu_reference, "_by_kernel", lambda kernel, data: data[6])
    data = reference.generate_input(128, 256, 1, 1)
    for _ in range(2):
        assert torch.equal(expected_output(data), reference.ref_kernel(data))
