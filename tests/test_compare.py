"""`nvfp4 compare`: what ends it, what is shown, how it exits, and what rounds say."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bot import root
from click.testing import Result
from conftest import right_source
from kept import invoke, is_error
from screens.verdicts import cpu, gpu

from nvfp4.cli.compare import comparing
from nvfp4.cli.compare.interval import changes_of, threshold
from nvfp4.cli.invocation import Invocation
from nvfp4.cli.judging.assess import Plan
from nvfp4.cli.judging.bot import Bot, ProcessResult
from nvfp4.cli.problem import load_problem
from nvfp4.cli.verdict import BenchmarkResult, TestResult, Verdict, Warning

counts = {
    "warp_instructions_total": 1_000_000,
    "sectors_requested": 400_000,
    "distinct_bytes": 66_000_000,
    "bank_conflicts": 0,
}


class Fake:
    """Stands for the judge. A file's text says how it does: a factor of its time, then words."""

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path, on_gpu: bool = True) -> None:
        self.asked: list[tuple[str, int, int]] = []
        self._on_gpu = on_gpu
        patch.chdir(folder)
        patch.setattr(comparing, "judge", self.judge)
        patch.setattr(comparing, "capability_of", lambda device: "9.0" if on_gpu else None)
        patch.setattr(Bot, "run_comparison", self.run_comparison)

    def judge(self, path: Path, plan: Plan, *others: Any) -> Verdict:
        submission, text = others[-1]
        factor, *words = text.decode().split()
        verdict = Verdict(submission, gpu if self._on_gpu else cpu)
        self.asked.append((path.name, len(plan.tests), len(plan.benchmarks)))
        status = "fail" if "wrong" in words else "pass"
        verdict.interrupted = "interrupted" in words
        verdict.warnings = [Warning("full_range", "not always right", "")] * ("high" in words)
        why = "it launches no kernel" if "host" in words else None
        verdict.tests = [TestResult(line, status, "no luck", unverified=why) for line in plan.tests]
        for line in plan.benchmarks:
            grown = {name: int(each * float(factor)) for name, each in counts.items()}
            mark = "host code reads c" if "unverified" in words else None
            emulation = None if "torch" in words else grown
            result = BenchmarkResult(line, "pass", emulation=emulation, unverified=mark)
            verdict.benchmarks.append(result)
        return verdict

    def run_comparison(self, files: Sequence[bytes], rounds: int, *others: Any) -> ProcessResult:
        _, tell = others
        for number, text in enumerate(files):
            if b"stale" in text:
                said = {"file": number, "case": 1, "message": "stale output", "failure": None}
                tell("failed", json.dumps(said))
                return ProcessResult(0, "")
        for number in range(0 if b"dies" in files[0] else rounds):
            tell(f"round.{number}", json.dumps([_times(text, number) for text in files]))
        return ProcessResult(1, "it died")


def _times(text: bytes, number: int) -> list[float]:
    """Microseconds of a file in a round."""
    factor, *words = text.decode().split()
    noise = 0.03 * (-1) ** number if "noisy" in words else 0.0
    shapes = (35.0, 36.0, 14.0) if "uneven" in words else (25.0, 45.0, 15.0)
    return [(1 + noise) * float(factor) * us for us in shapes]


def compare(texts: Sequence[str], *arguments: str) -> Result:
    """Compare files a.py, b.py, ... with these texts."""
    names = [f"{chr(ord('a') + index)}.py" for index in range(len(texts))]
    for name, text in zip(names, texts, strict=True):
        Path(name).write_text(text)
    return invoke("compare", *names, *arguments)


def as_object(done: Result) -> dict[str, Any]:
    return json.loads(done.stdout)


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fake:
    return Fake(monkeypatch, tmp_path)


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fake:
    return Fake(monkeypatch, tmp_path, on_gpu=False)


@pytest.mark.parametrize("count", [3, 5, 10])
def test_nine_intervals_in_ten_hold_the_truth(count: int) -> None:
    drawn = random.Random(1)
    held = 0
    for _ in range(400):
        rounds = [[drawn.lognormvariate(0, 0.01)] for _ in range(count)]
        change = changes_of([[1.0]] * count, rounds)[-1]
        held += change.low <= 0 <= change.high
    assert 0.86 <= held / 400 <= 0.94


def test_swapping_two_files_changes_no_more_than_signs() -> None:
    one, other = [[10.0], [11.0], [12.0]], [[10.4], [11.7], [12.3]]
    there, back = changes_of(one, other)[-1], changes_of(other, one)[-1]
    assert (1 + there.change) * (1 + back.change) == pytest.approx(1)
    assert (1 + there.low) * (1 + back.high) == pytest.approx(1)
    assert {there.verdict, back.verdict} == {"slower", "faster"}


@pytest.mark.parametrize(
    ("factors", "word", "code"),
    [
        *((["1", "1.0001"], "same", 0), (["1", "0.9"], "faster", 0), (["1", "1.02"], "slower", 1)),
        (["1", "1 noisy"], "unclear", 3),
        *((["1", "0.9", "1.02"], "slower", 1), (["1", "0.9", "1.001"], "same", 0)),
        *((["1 geom", "1 uneven"], "slower", 1), (["1 mean", "1 uneven"], "same", 0)),
        (["1 last", "1 uneven"], "faster", 0),
    ],
)
def test_the_exit_code_says_it(
    on_gpu: Fake, factors: list[str], word: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranking_by = factors[0].partition(" ")[2] or "geom"
    problem = replace(load_problem(), ranking_by=ranking_by)
    monkeypatch.setattr(Invocation, "problem", lambda *_: problem)
    done = compare(factors, "--json", "--rounds", "4")
    assert ("ranked by the" in done.output) == (ranking_by != "geom")
    assert done.exit_code == code, done.output
    found = as_object(done)
    assert found["verdict"] == word
    assert len(found["rounds"]) == 4
    assert sorted(on_gpu.asked) == [(f"{'abc'[i]}.py", 10, 0) for i in range(len(factors))]


def test_a_table_shows_every_shape_and_a_sentence_says_what_it_means(on_gpu: Fake) -> None:
    done = compare(["30", "41", "30"], "--rounds", "3")
    for row in ("7168 x 16384 x 1  750.0  1,025  +36.67%", "geometric mean", f"{threshold:.2%}"):
        assert row in done.output, done.output
    assert "slower: B takes 36.67% more time than A" in done.output
    assert "same: C takes as long as A, within 0.50%" in done.output
    assert max(map(len, done.output.splitlines())) <= 100


@pytest.mark.parametrize("word", ["wrong", "stale"])
def test_a_wrong_file_ends_it_with_its_failure(on_gpu: Fake, word: str) -> None:
    texts = ["1", f"1 {word}", "1.2"]
    done = compare(texts)
    assert done.exit_code == 1
    assert {"wrong": "no luck", "stale": "stale output"}[word] in done.output
    assert done.output.endswith("B is wrong, so nothing is compared\n")
    found = as_object(compare(texts, "--json"))
    assert not found["passed"]
    assert found["failed"]["file"] == "B"
    assert not found["failed"]["verdict"]["passed"]
    assert found["comparisons"] is None


def test_a_judge_that_ends_early_is_an_error(on_gpu: Fake) -> None:
    done = compare(["1 dies", "1"])
    assert done.exit_code == 2
    assert "the files could not be timed: it died" in done.output


def test_an_interrupt_ends_it(on_gpu: Fake) -> None:
    assert compare(["1", "1 interrupted"]).exit_code == 130


def test_counts_are_side_by_side_without_a_gpu(emulated: Fake) -> None:
    done = compare(["1", "1.5 unverified", "1 torch high"])
    assert "C: not always right" in done.output
    assert done.exit_code == 0
    assert emulated.asked == [(f"{name}.py", 10, 3) for name in "abc"]
    lines = [" ".join(line.split()) for line in done.output.splitlines()]
    assert "7168 x 16384 x 1 warp instructions 1,000,000 1,500,000 -" in lines
    assert "(unverified)" in done.output
    assert "without a GPU there is no verdict about time" in done.output
    found = as_object(compare(["1", "1.5 unverified"], "--json"))
    assert (found["passed"], found["verdict"], found["rounds"]) == (True, None, None)
    first = found["counts"][1]["shapes"][0]
    assert first["counts"]["sectors_requested"] == 600_000
    assert first["unverified"] == "host code reads c"
    assert "(unverified)" in compare(["1", "1 host"]).output
    found = as_object(compare(["1", "1 host"], "--json"))["counts"]
    assert [each["unverified"] for each in found] == [None, "it launches no kernel"]


@pytest.mark.parametrize("on_a_gpu", [True, False])
def test_the_object_has_the_keys_that_the_page_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, on_a_gpu: bool
) -> None:
    page = (root / "docs" / "json.md").read_text(encoding="utf-8")
    Fake(monkeypatch, tmp_path, on_a_gpu)
    found = as_object(compare(["1", "1.1"], "--json"))
    keys: set[str] = set(found) | set(found["files"][0])
    for name in ("comparisons", "counts"):
        for each in found[name] or []:
            keys |= set(each) | set(each["shapes"][0])
    assert [key for key in sorted(keys) if f"`{key}`" not in page] == []


@pytest.mark.parametrize(
    "arguments", [["a.py"], [], ["a.py"] * 27, ["a.py", "a.py", "--rounds", "2"], ["a.py", "no.py"]]
)
def test_what_cannot_be_compared_is_refused(on_gpu: Fake, arguments: list[str]) -> None:
    Path("a.py").write_text("1")
    assert invoke("compare", *arguments).exit_code == 2
    assert on_gpu.asked == []


def test_without_scipy_a_hint_says_what_to_install(
    on_gpu: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparing, "find_spec", lambda name: None)
    done = compare(["1", "1.1"])
    assert is_error(done.output)
    assert "pip install 'nvfp4[compare]'" in done.output


right = f"{right_source}\ncustom_kernel = gemv\n"
twice = f"{right_source}\ncustom_kernel = lambda data: [gemv(data) for _ in range(5)][-1]\n"
wrong_for_two_batches = (
    f"{right_source}\ncustom_kernel = lambda data: gemv(data) * (data[6].shape[2] < 2)\n"
)
wrong_later = f"""{right_source}
calls = []

def custom_kernel(data):
    calls.append(1)
    return gemv(data) * (len(calls) < 5)
"""

cases = ["m: 128; k: 256; l: 1; seed: 1", "m: 128; k: 256; l: 2; seed: 2"]


def run_judge(texts: Sequence[str], rounds: int) -> tuple[list[Any], list[Any]]:
    """What the judge's mode says of files: times [rounds][files][cases], and failures."""
    times: list[Any] = []
    failures: list[Any] = []

    def note(key: str, value: str) -> None:
        if key.startswith("round."):
            times.append(json.loads(value))
        elif key == "failed":
            failures.append(json.loads(value))

    bot = Invocation().bot(load_problem(), b"")
    bot.run_comparison([text.encode() for text in texts], rounds, cases, note)
    return times, failures


def test_processes_of_each_file_take_turns() -> None:
    times, failures = run_judge([right, twice], rounds=2)
    assert failures == []
    assert [[len(file) for file in each] for each in times] == [[2, 2], [2, 2]]
    assert all(one < other for each in times for one, other in zip(*each, strict=True))


@pytest.mark.parametrize(
    ("text", "case", "message"),
    [
        ("raise ValueError('mine')", None, "mine"),
        (wrong_for_two_batches, 1, "elements are wrong"),
        (wrong_later, 0, "elements are wrong"),
    ],
    ids=["import", "second case", "later call"],
)
def test_a_file_that_fails_is_named_with_its_case(
    text: str, case: int | None, message: str
) -> None:
    times, (failed,) = run_judge([right, text], rounds=1)
    assert times == []
    assert (failed["file"], failed["case"]) == (1, case)
    assert message in failed["message"]
