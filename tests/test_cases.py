"""Case files and seeds."""

import math
from pathlib import Path

import bot
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemv import plan_of, referee
from nvfp4.cli.problem import shape_of
from nvfp4.judge.cases import CaseFileError, combine_seed, read_cases
from nvfp4.records.cases import CaseError, case_line, full_range_suffix, label, parse_case

sizes = st.integers(1, 10**6)
seeds = st.integers(0, 2**63 - 1)


@given(sizes, sizes, sizes, seeds, st.booleans(), st.text(" \t", max_size=3), st.randoms())
def test_a_line_gives_its_case_in_any_order_and_spacing(
    m: int, blocks: int, l: int, seed: int, full: bool, space: str, random: object
) -> None:
    fields = {"m": m, "k": 64 * blocks, "l": l, "seed": seed, "inputs": "full"}
    parts = [f"{space}{name}:{space}{value}{space}" for name, value in fields.items()]
    random.shuffle(parts)  # type: ignore[attr-defined]
    line = ";".join(parts) + full_range_suffix * full
    case = parse_case(line)
    assert case.arguments == fields
    assert case.full_range is full
    assert case.spec == line.strip()


@pytest.mark.parametrize(
    ("line", "elements", "short"),
    [
        ("m: 128; k: 256; seed: 1111", 128 * 256, "128 x 256"),
        ("m: [2, 3]; g: 2; seed: 1111", 2 * 3 * 2, "m [2, 3], g 2"),
        (
            "m: [80, 176, 72]; n: [4096, 4096, 4096]",
            3 * 176 * 3 * 4096,
            "m 3 of 72 to 176, n 3 x 4096",
        ),
        ("size: 3; kind: normal; nomask: False", 3, "size 3, kind normal, nomask False"),
        ("n: 512; cond: 0; seed: 1111", 512, "512 x 0"),
    ],
)
def test_a_case_has_a_measure_of_its_work_and_a_short_name(
    line: str, elements: int, short: str
) -> None:
    assert parse_case(line).elements == elements
    assert label(line) == short


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("m: 128; k: 256; l: 1; seed: 1111;", "is not 'name: value'"),
        ("", "is not 'name: value'"),
        ("m 128; k: 256; l: 1; seed: 1", "is not 'name: value'"),
        ("m: 1.5; k: 256; l: 1; seed: 1", "must be a whole number"),
        ("m: 128; k: 256; l: 1", "must name k, l, m, seed"),
        ("m: 128; k: 256; l: 1; seed: 1; n: 3", "must name k, l, m, seed"),
        ("m: 128; m: 128; k: 256; l: 1; seed: 1", "stands twice"),
        ("m: many; k: 256; l: 1; seed: 1", "must be a whole number"),
        ("m: 0; k: 256; l: 1; seed: 1", "at least 1"),
        (f"m: {2**31}; k: 256; l: 1; seed: 1", "at most 2147483647"),
        ("m: 128; k: 256; l: -1; seed: 1", "at least 1"),
        ("m: 128; k: 100; l: 1; seed: 1", "multiple of 64"),
        ("m: 128; k: 0; l: 1; seed: 1", "multiple of 64"),
        ("m: 128; k: 256; l: 1; seed: -1", "seed must lie"),
        (f"m: 128; k: 256; l: 1; seed: {2**63}", "seed must lie"),
        ("m: 128; k: 256; l: 1; seed: " + "1" * 5000, "too many digits"),
        ("m: v" + "1" * 5000 + "; k: 256; l: 1; seed: 1", "a list of them or a word"),
    ],
)
def test_a_bad_line_is_refused_with_the_reason(line: str, why: str) -> None:
    with pytest.raises(CaseError, match=why):
        referee.refuse(parse_case(line))


@given(case=seeds, secret=st.integers(0, 2**64))
def test_seeds_are_paired_as_the_bot_pairs_them_and_fit_torch(case: int, secret: int) -> None:
    expected = case + (case + secret) * (case + secret + 1) // 2
    assert combine_seed(case, secret) == expected % 2**63


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
        ("/", "cannot read"),
        ("/dev/null", "cannot read"),  # a device
    ],
)
def test_a_bad_file_is_refused_with_the_line(content: object, why: str, tmp_path: Path) -> None:
    path = tmp_path / "cases.txt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content:
        path.symlink_to(str(content))
    with pytest.raises(CaseFileError, match=why):
        read_cases(path, refuse=referee.refuse)


words = ["m", "k", "l", "seed", "inputs", ": ", ";", "\n", "\r", "64", "-1", "0", "full", "contest"]
numerals = ["1" * 5000, "9" * 4299, "٣", "\x00", "\u2028", " "]
scraps = st.sampled_from([*words, *numerals, bot.case(), bot.case(full=True)])


@given(st.one_of(st.binary(max_size=200), st.lists(scraps, max_size=12).map("".join)))
def test_any_file_holds_valid_cases_or_is_refused_in_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, content: bytes | str
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed_cases.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    try:
        cases = read_cases(path, secret_seed=7, refuse=referee.refuse)
    except CaseFileError as error:
        cases, refused = [], str(error)
    else:
        refused = ""
    assert bool(cases) is not bool(refused)
    assert len(refused.splitlines()) <= 1
    assert len(refused) < 1000
    for case in cases:
        m, k, l = (case.arguments[name] for name in ("m", "k", "l"))
        assert {1 <= each < 2**31 for each in (m, k, l)} == {True}
        assert k % 64 == 0
        assert 0 <= case.seed < 2**63
        assert 0 < referee.plan(case).least_bytes / 2**30 < math.inf


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
    assert plan_of(*shape).least_bytes == nbytes


@given(sizes, sizes, sizes, seeds)
def test_the_command_writes_lines_that_the_judge_reads(
    m: int, blocks: int, l: int, seed: int
) -> None:
    line = case_line({"m": m, "k": 64 * blocks, "l": l, "seed": seed})
    case, shape = parse_case(line), shape_of(line)
    sizes = {"m": m, "k": 64 * blocks, "l": l}
    assert case.arguments == {**sizes, "seed": seed}
    assert shape.sizes == tuple((name, str(value)) for name, value in sizes.items())
    assert str(shape) == f"{m} x {64 * blocks} x {l}"
    assert line == bot.case(m, 64 * blocks, l, seed)
