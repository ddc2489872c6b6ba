"""Causes of a wrong output: each is found when it is there, and none is made up."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from layout import storages
from nvfp4.local.diagnosis import Sample, likely_cause, misreadings
from reference import check_implementation, generate_full_range_input, generate_input, ref_kernel
from task import input_t

Shape = tuple[int, int, int]

joiner = ", or "


def misread(data: input_t, shape: Shape, cause: str) -> torch.Tensor:
    """What a kernel with that misreading returns for all rows."""
    m, k, l = shape
    raw = storages(data, m, k, l)
    sample = Sample(
        torch.arange(m, device=data[6].device),
        raw["a"].view(l, m, k // 2),
        raw["b"].view(l, 128, k // 2),
        raw["sfa"].view(l, m, k // 16),
        raw["sfb"].view(l, 128, k // 16),
        raw["sfa_permuted"],
        raw["sfb_permuted"],
    )
    output = torch.empty_like(data[6])
    for batch in range(l):
        operands = misreadings[cause](sample, batch)
        assert operands is not None, "the shape does not allow this misreading"
        output[:, 0, batch] = operands.gemv()
    return output


def causes_named(data: input_t, output: torch.Tensor) -> list[str]:
    expected = ref_kernel(data)
    assert not check_implementation(data, output, expected)[0]
    cause = likely_cause(data, output, expected)
    return cause.split(joiner) if cause else []


@pytest.mark.parametrize("cause", misreadings)
def test_a_misreading_is_named_and_no_other(cause: str) -> None:
    shape = (256, 512, 3)
    data = generate_full_range_input(*shape, 1)
    assert causes_named(data, misread(data, shape, cause)) == [cause]


@pytest.mark.parametrize("cause", [cause for cause in misreadings if "block" in cause])
def test_scales_one_block_off_are_named_on_the_contest_s_inputs_too(cause: str) -> None:
    shape = (128, 512, 1)
    data = generate_input(*shape, 1111)
    assert cause in causes_named(data, misread(data, shape, cause))


def test_causes_that_cannot_be_told_apart_are_all_named() -> None:
    shape = (128, 256, 2)
    data = generate_full_range_input(*shape, 1)
    for scales in (data[2], data[3]):  # row 0 of sfa and sfb is all that two of the causes read
        scales.view(torch.uint8).fill_(0x38)
    data[0].view(torch.uint8).bitwise_and_(0x77)
    both = ["the sign of FP4 values is ignored", "the sign of b's FP4 values is ignored"]
    assert causes_named(data, misread(data, shape, both[0])) == both


@pytest.mark.parametrize("m", [64, 200])
def test_a_cause_is_found_where_m_is_no_multiple_of_128(m: int) -> None:
    cause = "high nibbles are skipped"
    shape = (m, 128, 1)
    data = generate_full_range_input(*shape, 2)
    assert causes_named(data, misread(data, shape, cause)) == [cause]


def test_an_output_returned_unwritten_is_named() -> None:
    data = generate_input(128, 256, 2, 1111)
    [cause] = causes_named(data, data[6].clone())
    assert cause.startswith("c was not written")


def test_rows_left_unwritten_are_counted() -> None:
    data = generate_input(128, 4096, 1, 1111)
    output = ref_kernel(data)
    output[96:] = data[6][96:]
    assert causes_named(data, output) == ["c was not written: 32 elements hold what c held before"]


def test_batches_in_the_wrong_place_are_named() -> None:
    data = generate_full_range_input(64, 128, 3, 1)
    rolled = ref_kernel(data)[:, :, [1, 2, 0]]
    assert causes_named(data, rolled) == [
        "results stand in the wrong batch: batch 0 holds 1, 1 holds 2, 2 holds 0"
    ]


def test_a_right_output_has_no_cause() -> None:
    data = generate_full_range_input(128, 256, 2, 1)
    assert check_implementation(data, ref_kernel(data)) == (True, "")


@given(seed=st.integers(0, 2**32), full=st.booleans())
def test_garbage_has_no_cause(seed: int, full: bool) -> None:
    data = (generate_full_range_input if full else generate_input)(128, 128, 2, 1)
    generator = torch.Generator().manual_seed(seed)
    garbage = torch.randn(data[6].shape, generator=generator).half() * 100
    assert causes_named(data, garbage.to(data[6].device)) == []


@pytest.mark.parametrize("constant", [0.0, float("nan"), float("inf"), 1.0])
def test_a_constant_has_no_cause(constant: float) -> None:
    data = generate_full_range_input(128, 256, 2, 1)
    assert causes_named(data, torch.full_like(data[6], constant)) == []


def test_a_kernel_wrong_in_a_few_rows_only_has_no_cause() -> None:
    shape = (512, 256, 1)
    data = generate_full_range_input(*shape, 1)
    output = ref_kernel(data)
    output[[5, 77, 300]] = 12345.0
    assert causes_named(data, output) == []


def test_a_misreading_in_some_rows_only_is_found_in_those() -> None:
    """The sample takes wrong rows first."""
    cause = "the scales of a are left out"
    shape = (512, 256, 1)
    data = generate_full_range_input(*shape, 1)
    output = ref_kernel(data)
    output[256:] = misread(data, shape, cause)[256:]
    assert causes_named(data, output) == [cause]
