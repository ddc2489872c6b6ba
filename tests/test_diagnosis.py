"""Causes of a wrong output: each is found when it is there, and none is made up."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nvfp4.problems.nvfp4_gemv.diagnosis.evidence import Hypothesis, texts
from nvfp4.problems.nvfp4_gemv.diagnosis.inputs import Array, read_inputs
from nvfp4.problems.nvfp4_gemv.diagnosis.misreadings import misreadings
from nvfp4.problems.nvfp4_gemv.diagnosis.where import region
from nvfp4.problems.nvfp4_gemv.diagnosis.wrong_outputs import Diagnosis, diagnose
from nvfp4.problems.nvfp4_gemv.reference import (
    check_implementation,
    generate_full_range_input,
    generate_input,
    ref_kernel,
)
from nvfp4.problems.nvfp4_gemv.task import input_t

shape = (256, 512, 3)
every_misreading = {each.cause.text: each for each in misreadings(shape[1])}


def whole(data: input_t, hypothesis: Hypothesis) -> torch.Tensor:
    """What a kernel with that mistake returns for all rows."""
    m, _, l = read_inputs(data).shape
    columns = [hypothesis.predict(batch, np.arange(m)) for batch in range(l)]
    return output_of(np.stack(columns, axis=1))


def output_of(values: Array) -> torch.Tensor:
    """Values [m, l] as an output."""
    with np.errstate(over="ignore", invalid="ignore"):
        return torch.from_numpy(np.asarray(values, np.float64).astype(np.float16))[:, None, :]


def wrong_of(data: input_t) -> Array:
    """Right values, float64 [m, l]."""
    return ref_kernel(data)[:, 0, :].double().numpy()


def diagnosed(data: input_t, output: torch.Tensor) -> Diagnosis:
    expected = ref_kernel(data)
    assert not check_implementation(data, output, expected)[0]
    return diagnose(data, output, expected)


def codes(data: input_t, output: torch.Tensor) -> list[str]:
    """Codes of the causes of all wrong elements."""
    found = diagnosed(data, output)
    named = [each.hypothesis.cause.code for part in found.parts for each in part]
    assert sum(part[0].explained for part in found.parts) <= found.wrong
    return named


def products(data: input_t) -> Array:
    """float64 [m, l, k]."""
    inputs = read_inputs(data)
    m, _, l = inputs.shape
    return np.stack([inputs.operands(b, np.arange(m)).products() for b in range(l)], axis=1)


@pytest.fixture(scope="module")
def full() -> input_t:
    return generate_full_range_input(*shape, 1)


@pytest.fixture(scope="module")
def terms(full: input_t) -> Array:
    return products(full)


@pytest.mark.parametrize("text", every_misreading)
def test_a_misreading_is_named_and_no_other(full: input_t, text: str) -> None:
    output = whole(full, every_misreading[text].hypothesis(read_inputs(full)))
    if check_implementation(full, output, ref_kernel(full))[0]:
        assert "a and b" in text  # both are exchanged alike within a block
        return
    found = diagnosed(full, output)
    assert found.cause == text
    assert found.causes()[0]["explains"] == found.wrong


@pytest.mark.parametrize("blocks", [-8, -4, -1, 1, 2, 7])
@pytest.mark.parametrize("operand", ["sfa", "sfb"])
def test_scales_of_blocks_nearby_are_named(full: input_t, operand: str, blocks: int) -> None:
    inputs = read_inputs(full)
    m, _, l = inputs.shape
    flat = getattr(inputs, operand).reshape(-1)
    stored = np.concatenate([np.zeros(64, np.uint8), flat, np.zeros(64, np.uint8)])
    moved = stored[64 + blocks :][: flat.size].reshape(getattr(inputs, operand).shape)

    def predict(batch: int, rows: Array) -> Array:
        right = inputs.operands(batch, rows)
        scales = moved[batch, rows] if operand == "sfa" else moved[batch, 0]
        return type(right)(**{**vars(right), operand: scales}).exact()

    record = diagnosed(full, output_of(np.stack([predict(b, np.arange(m)) for b in range(l)], 1)))
    first = record.causes()[0]
    assert (first["code"], first["operand"], first["blocks"]) == ("scales.shift", operand, blocks)


def test_the_codes_of_the_parts_of_a_sum(full: input_t, terms: Array) -> None:
    k = np.arange(512)
    total = terms.sum(axis=2)
    for code, sums in {
        "k.tail_dropped": terms[:, :, :448].sum(axis=2),
        "k.dropped": total - terms[:, :, 160:224].sum(axis=2),
        "k.twice": total + terms[:, :, 160:224].sum(axis=2),
        "k.share_alone": terms[:, :, k // 8 % 32 == 3].sum(axis=2),
    }.items():
        assert codes(full, output_of(sums)) == [code]


@pytest.mark.parametrize("full_range", [True, False])
def test_right_values_in_wrong_places(full_range: bool) -> None:
    make = generate_full_range_input if full_range else generate_input
    data = make(*shape, 2)
    want, i = wrong_of(data), np.arange(256)
    for source, rows in {
        "row i ^ 1": i ^ 1,
        "row (i + 1) % 256": (i + 1) % 256,
        "row i % 128": i % 128,
        "row i % 32 * 4 + i // 32 of its tile of 128 rows (i counts in the tile)": (
            i - i % 128 + i % 32 * 4 + i % 128 // 32
        ),
    }.items():
        [part] = diagnosed(data, output_of(want[rows])).parts
        assert [each.hypothesis.cause.arguments["source"] for each in part] == [source]
    rolled = want[:, [1, 2, 0]]
    text = "results stand in the wrong batch: batch 0 holds 1, 1 holds 2, 2 holds 0"
    assert diagnosed(data, output_of(rolled)).cause == text


def test_what_follows_from_the_values(full: input_t) -> None:
    want, inputs = wrong_of(full), read_inputs(full)
    assert codes(full, output_of(want + inputs.c)) == ["output.added"]
    assert codes(full, output_of(inputs.c)) == ["output.unwritten"]
    exact = products(full).sum(axis=2)
    assert codes(full, output_of(np.cumsum(exact, axis=1))) == ["output.carried_batches"]
    unsigned = replace(inputs, sfa=inputs.sfa & 0x7F, sfb=inputs.sfb & 0x7F)
    sums = [unsigned.operands(batch, np.arange(256)).exact() for batch in range(3)]
    assert codes(full, output_of(np.stack(sums, axis=1))) == ["scales.unsigned"]


@pytest.mark.parametrize("k", [1536, 4608])
def test_sums_in_float16_are_recognised_by_the_size_of_their_errors(k: int) -> None:
    data = generate_full_range_input(128, k, 1, 4)
    halves = products(data).astype(np.float16)
    serial = np.zeros((128, 1), np.float16)
    for number in range(k):
        serial = serial + halves[:, :, number]
    assert codes(data, output_of(serial)) == ["precision.float16"]


@pytest.mark.parametrize("seed", range(3))
def test_two_mistakes_in_rows_of_their_own_are_both_named(seed: int) -> None:
    data = generate_full_range_input(256, 512, 2, seed)
    sums = products(data)[:, :, :448].sum(axis=2)
    sums[128:] = read_inputs(data).c[128:]
    assert set(codes(data, output_of(sums))) == {"k.tail_dropped", "output.unwritten"}


def test_two_mistakes_in_the_same_rows_are_not_guessed_at(full: input_t, terms: Array) -> None:
    found = diagnosed(full, output_of(np.roll(terms[:, :, :448].sum(axis=2), 1, axis=0)))
    assert all(part[0].explained < found.wrong for part in found.parts)


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32), many=st.booleans())
def test_garbage_has_no_cause(seed: int, many: bool) -> None:
    data = (generate_full_range_input if many else generate_input)(128, 128, 2, 1)
    generator = torch.Generator().manual_seed(seed)
    assert codes(data, torch.randn(data[6].shape, generator=generator).half() * 100) == []


@settings(max_examples=15)
@given(row=st.integers(0, 127), batch=st.integers(0, 1), value=st.floats(-1000, 1000, width=16))
def test_one_wrong_element_has_a_place_and_no_cause(row: int, batch: int, value: float) -> None:
    data = generate_full_range_input(128, 128, 2, 1)
    output = ref_kernel(data)
    output[row, 0, batch] = value
    if check_implementation(data, output)[0]:
        return
    found = diagnosed(data, output)
    assert found.region == f"row {row} of batch {batch}"
    assert found.cause is None


@pytest.mark.parametrize("constant", [0.0, 1.0])
def test_a_constant_output_is_said_to_be_one(full: input_t, constant: float) -> None:
    found = diagnosed(full, torch.full_like(full[6], constant))
    assert found.cause is None
    assert f"every element of c is {constant:g}" in found.text
    assert found.causes()[0]["code"] == ("output.constant" if constant else "output.zero")


def test_nan_and_infinity_are_counted(full: input_t) -> None:
    output = ref_kernel(full)
    output[5, 0, 1], output[128:, 0, 2] = torch.nan, torch.inf
    found = diagnosed(full, output)
    assert "one element is NaN: row 5 of batch 1, the first is c[5, 0, 1]" in found.text
    assert "128 elements are infinite: rows 128 to 255 of batch 2" in found.text
    assert found.cause is None
    json.loads(json.dumps(found.causes(), allow_nan=False))


@pytest.mark.parametrize(
    ("rows", "batches", "text"),
    [
        (slice(0, None), slice(0, None), "every row of every batch"),
        (slice(0, None), slice(1, None), "every row of batches 1 to 2"),
        (slice(5, 6), slice(0, 1), "row 5 of batch 0"),
        (slice(1, None, 2), slice(0, None), "odd rows of every batch"),
        (slice(64, 128), slice(2, None), "rows 64 to 127 of batch 2"),
        (slice(32, None), slice(0, None), "all but the first 32 rows of every batch"),
        (slice(3, None, 32), slice(0, None), "rows with row % 32 == 3 of every batch"),
    ],
)
def test_regions_in_words(rows: slice, batches: slice, text: str) -> None:
    wrong = np.zeros((256, 3), bool)
    wrong[rows, batches] = True
    assert region(wrong) == text


def test_part_of_each_tile_is_a_region() -> None:
    wrong = np.zeros((512, 1), bool)
    wrong[np.arange(512) % 128 >= 96] = True
    wrong[97] = False  # right by chance
    assert region(wrong) == "rows with row % 128 >= 96 (127 of 128 elements there are wrong)"


@given(st.lists(st.tuples(st.integers(0, 63), st.integers(0, 2)), min_size=1))
def test_a_region_counts_all_wrong_elements(places: list[tuple[int, int]]) -> None:
    wrong = np.zeros((64, 3), bool)
    for row, batch in places:
        wrong[row, batch] = True
    if found := re.search(r"\((\d+) of (\d+) elements", region(wrong)):
        assert int(found[1]) == wrong.sum() < int(found[2]) <= wrong.size


def test_every_text_can_be_made() -> None:
    assert all("{" not in each.cause.text for each in every_misreading.values())
    assert all(each.cause.code in texts for each in every_misreading.values())
