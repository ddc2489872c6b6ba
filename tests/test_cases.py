"""Case files and seeds."""

from pathlib import Path

import bot
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nvfp4.cli.problem import case_line, shape_of
from nvfp4.judge.cases import CaseFileError, combine_seed, parse_case, read_cases

sizes = st.integers(1, 10**6)
seeds = st.integers(0, 2**63 - 1)
spaces = st.text(" \t", max_size=3)


@given(sizes, sizes, sizes, seeds, st.sampled_from(["", "contest", "full"]), spaces, st.randoms())
def test_a_line_gives_its_case_in_any_order_and_spacing(
    m: int, blocks: int, l: int, seed: int, inputs: str, space: str, random: object
) -> None:
    fields = {"m": m, "k": 64 * blocks, "l": l, "seed": seed}
    parts = [f"{space}{name}:{space}{value}{space}" for name, value in fields.items()]
    parts += [f"inputs: {inputs}"] if inputs else []
    random.shuffle(parts)  # type: ignore[attr-defined]
    line = ";".join(parts)
    case = parse_case(line)
    assert (case.m, case.k, case.l, case.seed) == (m, 64 * blocks, l, seed)
    assert case.full_range is (inputs == "full")
    assert case.spec == line.strip()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("m: 128; k: 256; l: 1; seed: 1111;", "is not 'name: value'"),
        ("", "is not 'name: value'"),
        ("m 128; k: 256; l: 1; seed: 1", "is not 'name: value'"),
        ("m: 1.5; k: 256; l: 1; seed: 1", "is not 'name: value'"),
        ("m: 128; k: 256; l: 1", "must name k, l, m, seed"),
        ("m: 128; k: 256; l: 1; seed: 1; n: 3", "must name k, l, m, seed"),
        ("m: 128; m: 128; k: 256; l: 1; seed: 1", "stands twice"),
        ("m: many; k: 256; l: 1; seed: 1", "must be a whole number"),
        ("m: 0; k: 256; l: 1; seed: 1", "at least 1"),
        ("m: 128; k: 256; l: -1; seed: 1", "at least 1"),
        ("m: 128; k: 100; l: 1; seed: 1", "multiple of 64"),
        ("m: 128; k: 0; l: 1; seed: 1", "multiple of 64"),
        ("m: 128; k: 256; l: 1; seed: -1", "seed must lie"),
        (f"m: 128; k: 256; l: 1; seed: {2**63}", "seed must lie"),
        ("m: 128; k: 256; l: 1; seed: 1; inputs: some", "inputs must be contest or full"),
        ("m: 128; k: 256; l: 1; seed: " + "1" * 5000, "must be a whole number"),
    ],
)
def test_a_bad_line_is_refused_with_the_reason(line: str, why: str) -> None:
    with pytest.raises(CaseFileError, match=why):
        parse_case(line)


@given(case=st.integers(0, 2**40), secret=st.integers(0, 2**40))
def test_seeds_are_paired_as_the_bot_pairs_them(case: int, secret: int) -> None:
    expected = case + (case + secret) * (case + secret + 1) // 2
    assert combine_seed(case, secret) == expected % 2**63


@given(case=seeds, secret=st.integers(0, 2**64))
def test_a_combined_seed_is_one_that_torch_takes(case: int, secret: int) -> None:
    assert 0 <= combine_seed(case, secret) < 2**63


def test_a_file_is_read_line_by_line_and_a_secret_changes_the_seed_alone(tmp_path: Path) -> None:
    path = tmp_path / "cases.txt"
    lines = [bot.case(seed=3), bot.case(m=256, full=True)]
    path.write_text("\n".join(lines))
    plain, secret = read_cases(path), read_cases(path, secret_seed=40)
    assert [case.spec for case in plain] == [case.spec for case in secret] == lines
    assert [case.seed for case in plain] == [3, 1111]
    assert [case.seed for case in secret] == [3 + 43 * 44 // 2, 1111 + 1151 * 1152 // 2]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "holds no case"),
        (b"\n", "line 1 of"),
        (f"{bot.case()}\n\n{bot.case()}".encode(), "line 2 of"),
        (f"{bot.case()}\n{bot.case()};".encode(), "line 2 of"),
        (b"\xff\xfe m: 1", "cannot read"),
        (None, "cannot read"),
    ],
)
def test_a_bad_file_is_refused_with_the_line(
    content: bytes | None, why: str, tmp_path: Path
) -> None:
    path = tmp_path / "cases.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CaseFileError, match=why):
        read_cases(path)


def test_a_folder_is_no_case_file(tmp_path: Path) -> None:
    with pytest.raises(CaseFileError, match="cannot read"):
        read_cases(tmp_path)


@pytest.mark.parametrize(
    ("shape", "nbytes"),
    [
        ((7168, 16384, 1), 7168 * 16384 * 9 // 16 + 16384 * 9 // 16 + 2 * 7168),
        ((4096, 7168, 8), 8 * (4096 * 7168 * 9 // 16 + 7168 * 9 // 16 + 2 * 4096)),
        ((1, 64, 1), 36 + 36 + 2),
    ],
)
def test_the_bytes_of_a_case_are_what_a_kernel_must_move(
    shape: tuple[int, int, int], nbytes: int
) -> None:
    assert parse_case(bot.case(*shape)).bytes == nbytes


@given(sizes, sizes, sizes, seeds)
def test_the_command_writes_lines_that_the_judge_reads(
    m: int, blocks: int, l: int, seed: int
) -> None:
    line = case_line({"m": m, "k": 64 * blocks, "l": l, "seed": seed})
    case, shape = parse_case(line), shape_of(line)
    assert (case.m, case.k, case.l) == (shape.m, shape.k, shape.l) == (m, 64 * blocks, l)
    assert line == bot.case(m, 64 * blocks, l, seed)
