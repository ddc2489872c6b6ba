"""The inputs: the contest's own, the full-range ones, and how both lie in memory."""

import math
from collections.abc import Callable
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nvfp4.problems.nvfp4_gemv.extras import names
from nvfp4.problems.nvfp4_gemv.layout import layouts
from nvfp4.problems.nvfp4_gemv.reference import (
    default_device,
    generate_full_range_input,
    generate_input,
    ref_kernel,
)
from nvfp4.problems.nvfp4_gemv.task import input_t

Generate = Callable[[int, int, int, int], input_t]

shapes = st.tuples(st.integers(1, 300), st.integers(1, 6).map(lambda n: 64 * n), st.integers(1, 3))


def raw(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor, or the tensor where its elements are wider."""
    return tensor.view(torch.uint8) if tensor.dtype.itemsize == 1 else tensor


@pytest.mark.parametrize(
    ("m", "k", "l", "seed"), [(128, 256, 1, 1111), (200, 320, 3, 7), (1, 64, 2, 2**62)]
)
def test_a_seed_gives_the_contest_s_tensors(m: int, k: int, l: int, seed: int) -> None:
    device = default_device()
    rest_m, rest_k = (m + 127) // 128, k // 64
    with torch.random.fork_rng():
        data = generate_input(m, k, l, seed)
        torch.manual_seed(seed)
        a = torch.randint(0, 4, (l, m, k // 2), dtype=torch.uint8, device=device)
        b = torch.randint(0, 4, (l, 128, k // 2), dtype=torch.uint8, device=device)
        c = torch.randn((l, m, 1), dtype=torch.float16, device=device)
        sfa = torch.randint(0, 3, (l, m, k // 16), dtype=torch.int8, device=device)
        torch.randint(0, 3, (l, rest_m, rest_k, 32, 4, 4), dtype=torch.int8, device=device)
        sfb = torch.randint(0, 3, (l, 128, k // 16), dtype=torch.int8, device=device)
    expected = [
        a.permute(1, 2, 0),
        b.permute(1, 2, 0),
        sfa.to(torch.float8_e4m3fn).permute(1, 2, 0),
        sfb.to(torch.float8_e4m3fn).permute(1, 2, 0),
    ]
    for got, want in zip(data[:4], expected, strict=True):
        assert torch.equal(raw(got), raw(want))
    assert torch.equal(data[6], c.permute(1, 2, 0))


@given(shape=shapes, full=st.booleans(), seed=st.integers(0, 2**63 - 1))
def test_shapes_dtypes_and_strides_are_those_of_the_contract(
    shape: tuple[int, int, int], full: bool, seed: int
) -> None:
    m, k, l = shape
    data = (generate_full_range_input if full else generate_input)(m, k, l, seed)
    rest_m, rest_k = (m + 127) // 128, k // 64
    fp4, fp8 = torch.float4_e2m1fn_x2, torch.float8_e4m3fn
    expected = [
        ((m, k // 2, l), fp4, (k // 2, 1, m * k // 2)),
        ((128, k // 2, l), fp4, (k // 2, 1, 128 * k // 2)),
        ((m, k // 16, l), fp8, (k // 16, 1, m * k // 16)),
        ((128, k // 16, l), fp8, (k // 16, 1, 128 * k // 16)),
        *(
            ((32, 4, tiles, 4, rest_k, l), fp8, (16, 4, step, 1, 512, tiles * step))
            for tiles, step in ((rest_m, rest_k * 512), (1, rest_k * 512))
        ),
        ((m, 1, l), torch.float16, (1, 1, m)),
    ]
    for tensor, layout, (sizes, dtype, strides) in zip(
        data, layouts(m, k, l).values(), expected, strict=True
    ):
        assert (tuple(tensor.shape), tensor.dtype) == (sizes, dtype)
        # The stride of a dimension of size 1 carries no meaning.
        for size, stride, wanted in zip(sizes, tensor.stride(), strides, strict=True):
            assert size == 1 or stride == wanted
        back = [layout.order.index(dimension) for dimension in range(len(layout.order))]
        assert layout.storage_shape == tuple(tensor.shape[each] for each in back)
        assert layout.dtype == dtype
        assert layout.nbytes == math.prod(sizes) * dtype.itemsize


@pytest.mark.parametrize("full", [False, True], ids=["contest", "full-range"])
@pytest.mark.parametrize(("m", "k", "l"), [(128, 64, 1), (130, 128, 2), (31, 64, 2)])
def test_a_permuted_scale_stands_where_the_tensor_cores_want_it(
    m: int, k: int, l: int, full: bool
) -> None:
    data = (generate_full_range_input if full else generate_input)(m, k, l, 5)
    for plain, permuted in ((data[2], data[4]), (data[3], data[5])):
        codes, placed = raw(plain).cpu(), raw(permuted).cpu()
        for i, j, b in product(*map(range, codes.shape)):  # the index by the contest's rule
            index = (i % 32, (i % 128) // 32, i // 128, j % 4, j // 4, b)
            assert int(placed[index]) == int(codes[i, j, b])


def test_the_contest_s_values_are_a_small_part_of_the_format() -> None:
    a, b, sfa, sfb, _, _, _ = generate_input(256, 512, 2, 1)
    for packed in (a, b):
        assert set(raw(packed).unique().tolist()) == {0, 1, 2, 3}
    for scales in (sfa, sfb):
        assert set(scales.float().unique().tolist()) == {0.0, 1.0, 2.0}


@pytest.fixture(scope="module")
def wide() -> input_t:
    """Full-range inputs large enough to hold every code."""
    return generate_full_range_input(512, 4096, 2, 1111)


def test_full_range_inputs_hold_every_code_and_finite_scale(wide: input_t) -> None:
    """Of b, only the row that counts is looked at."""
    for packed in wide[:2]:
        for codes in (raw(packed) & 15, raw(packed) >> 4):
            assert set(codes.unique().tolist()) == set(range(16))
    finite = {sign | magnitude for sign in (0, 0x80) for magnitude in range(0x7F)}
    assert set(raw(wide[2]).unique().tolist()) == finite
    row = raw(wide[3])[0]
    signs, subnormal = row & 0x80, ((row & 0x78) == 0) & ((row & 7) > 0)
    assert set(signs.unique().tolist()) == {0, 0x80}
    assert subnormal.any()
    assert set(row.unique().tolist()) <= finite


def test_full_range_results_are_finite_of_both_signs_and_of_many_sizes(wide: input_t) -> None:
    ref = ref_kernel(wide)
    assert ref.isfinite().all()
    assert (ref > 1).any()
    assert (ref < -1).any()
    assert ref.abs().max() > 100 * ref.abs().median() or ref.abs().max() > 1000


@pytest.mark.parametrize("shape", [(128, 256, 1), (384, 1792, 2)])
def test_full_range_inputs_look_like_the_contest_s_in_patches(shape: tuple[int, int, int]) -> None:
    corners = []
    for seed in range(12):
        a, _, sfa, _, _, _, _ = generate_full_range_input(*shape, seed)
        plain = (raw(a)[:, :, 0].reshape(shape[0], -1, 8) < 4).all(dim=2)
        assert plain.float().mean() == 0.5, "a share would tell"
        assert set(sfa[:, :, 0].float()[plain].abs().unique().tolist()) >= {0.0, 1.0}
        corners.append(bool(plain[0, 0]))
    assert {True, False} == set(corners), "a corner tells nothing"


@given(m=st.integers(1, 40), blocks=st.integers(1, 40), seed=st.integers(0, 2**63 - 1))
def test_full_range_results_are_finite_for_any_seed(m: int, blocks: int, seed: int) -> None:
    assert ref_kernel(generate_full_range_input(m, 64 * blocks, 1, seed)).isfinite().all()


@pytest.mark.parametrize("generate", [generate_input, generate_full_range_input])
def test_a_seed_decides_every_byte(generate: Generate) -> None:
    first, again, other = (generate(64, 128, 2, seed) for seed in (1, 1, 2))
    for one, same in zip(first, again, strict=True):
        assert torch.equal(raw(one), raw(same))
    assert not torch.equal(raw(first[0]), raw(other[0]))


@pytest.mark.parametrize(
    ("m", "k", "l", "wrong"),
    [(0, 64, 1, "m and l"), (1, 64, 0, "m and l"), (1, 32, 1, "k must"), (1, 0, 1, "k must")],
)
@pytest.mark.parametrize("generate", [generate_input, generate_full_range_input])
def test_a_shape_outside_the_problem_is_refused(
    generate: Generate, m: int, k: int, l: int, wrong: str
) -> None:
    with pytest.raises(ValueError, match=wrong):
        generate(m, k, l, 1)


@given(shapes)
def test_bytes_go_flat_and_come_back_the_same(shape: tuple[int, int, int]) -> None:
    data = generate_full_range_input(*shape, 1)
    for layout, tensor in zip(layouts(*shape).values(), data, strict=True):
        flat = layout.flat(tensor)
        assert (flat.dtype, flat.shape) == (torch.uint8, (layout.nbytes,))
        again = layout.view(flat)
        assert (again.shape, again.dtype) == (tensor.shape, tensor.dtype)
        assert torch.equal(raw(again), raw(tensor))
        assert again.data_ptr() == layout.flat(again).data_ptr() == flat.data_ptr()


@pytest.mark.parametrize("name", names)
def test_a_tensor_that_lies_otherwise_is_laid_out(name: str) -> None:
    layout = layouts(130, 128, 2)[name]
    flat = torch.arange(layout.nbytes).to(torch.uint8) & 0x3B
    elsewhere = raw(layout.view(flat)).clone(memory_format=torch.contiguous_format)
    moved = elsewhere.view(layout.dtype) if layout.dtype.itemsize == 1 else elsewhere
    assert torch.equal(layout.flat(moved), flat)
