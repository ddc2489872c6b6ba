"""`nvfp4 compare`: which files are tested, what ends it, what is shown, how it exits."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from bot import root
from click.testing import Result
from kept import invoke, is_error, kept_in, named
from recorded_verdicts import timed_verdict
from rich.console import Console
from screens.verdicts import cpu, gpu

from nvfp4.cli.compare import comparing
from nvfp4.cli.compare.comparing import FailedThere, Times
from nvfp4.cli.compare.results import names
from nvfp4.cli.history.database import History
from nvfp4.cli.judging.assess import Observer, Plan
from nvfp4.cli.judging.bot import Bot
from nvfp4.cli.judging.invocation import Options
from nvfp4.cli.problem import Problem, load_problem
from nvfp4.cli.verdict import BenchmarkResult, Submission, TestResult, Verdict

counts = {
    "warp_instructions_total": 1_000_000,
    "sectors_requested": 400_000,
    "distinct_bytes": 66_000_000,
    "bank_conflicts": 0,
    "divergent_branches": 12,
    "b200_memory_us": 8.25,
    "b200_issue_us": 4.5,
}


class Fake:
    """Stands for the judge. A file's text says how it does: a factor of its time, then words."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, on_gpu: bool = True) -> None:
        self.asked: list[tuple[str, int, int]] = []
        self.interrupted_at = -1
        self.waves = 0
        self.seed: int | None = None
        self._on_gpu = on_gpu
        monkeypatch.chdir(folder)
        monkeypatch.setattr(comparing, "judge", self.judge)
        monkeypatch.setattr(comparing, "first_mistake", lambda file, content: None)
        monkeypatch.setattr(comparing, "time_side_by_side", self.time_side_by_side)
        monkeypatch.setattr(comparing, "capability_of", lambda device: "9.0" if on_gpu else None)

    def judge(
        self,
        path: Path,
        plan: Plan,
        options: Options,
        observer: Observer,
        read: tuple[Submission, bytes],
    ) -> Verdict:
        submission, text = read
        factor, *words = text.decode().split()
        verdict = Verdict(submission, gpu if self._on_gpu else cpu, elapsed_s=1.5)
        verdict.interrupted = len(self.asked) == self.interrupted_at
        self.asked.append((path.name, len(plan.all_tests), len(plan.benchmarks)))
        bad = {each for each in ("contest", "full") if f"wrong-{each}" in words}
        verdict.tests = [
            TestResult(line, inputs, "fail" if inputs in bad else "pass", "no luck")
            for inputs in plan.inputs
            for line in plan.tests
        ]
        for line in plan.benchmarks:
            grown = {name: int(each * float(factor)) for name, each in counts.items()}
            emulation = None if "torch" in words else grown
            verdict.benchmarks.append(BenchmarkResult(line, "pass", emulation=emulation))
        return verdict

    def time_side_by_side(
        self,
        bot: Bot,
        contents: list[bytes],
        benchmarks: list[str],
        rounds: int | None,
        seed: int,
        on_wave: Callable[[Times], bool],
    ) -> None:
        """Two rounds at once."""
        self.seed = seed
        for number, text in enumerate(contents):
            if b"stale" in text:
                raise FailedThere(number, 1, "stale output", None)
        for wave in count():
            if self.interrupted_at == wave:
                raise KeyboardInterrupt
            self.waves += 1
            if on_wave([[_times(text, wave + 0.5 * half) for text in contents] for half in (0, 1)]):
                return


def _times(text: bytes, at: float) -> list[float]:
    """What a file took in a round. at: when."""
    factor, *words = text.decode().split()
    noise = 0.03 * (-1) ** round(2 * at) if "noisy" in words else 0.0
    return [(1 + noise) * float(factor) * us * (1 + 1e-5 * at) for us in (25.0, 45.0, 15.0)]


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fake:
    return Fake(monkeypatch, tmp_path)


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fake:
    return Fake(monkeypatch, tmp_path, on_gpu=False)


def test_what_reading_a_file_finds_is_told_before_any_is_judged(tmp_path: Path) -> None:
    right, broken = tmp_path / "right.py", tmp_path / "broken.py"
    right.write_text("def custom_kernel(data):\n    return data[6]\n")
    broken.write_text("def custom_kernel(data:\n")
    done = invoke("compare", str(right), str(broken))
    assert done.exit_code == 1
    assert "SyntaxError" in done.output
    assert "B (" in done.output
    assert "pass" not in done.output


def compare(texts: Sequence[str], *arguments: str) -> Result:
    """Compares files a.py, b.py, ... with these texts."""
    names = [f"{chr(ord('a') + index)}.py" for index in range(len(texts))]
    for name, text in zip(names, texts, strict=True):
        Path(name).write_text(text)
    return invoke("compare", *names, *arguments)


def as_object(done: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("factors", "word", "code"),
    [
        (["1", "1.0001"], "same", 0),
        (["1", "0.9"], "faster", 0),
        (["1", "1.02"], "slower", 1),
        (["1", "1 noisy"], "unclear", 3),
        (["1", "0.9", "1.02"], "slower", 1),
        (["1", "0.9", "1.001"], "same", 0),
    ],
)
def test_the_exit_code_says_it(on_gpu: Fake, factors: list[str], word: str, code: int) -> None:
    done = compare(factors, "--json", "--rounds", "4")
    assert done.exit_code == code, done.output
    assert as_object(done)["verdict"] == word


def test_files_are_tested_first_and_then_timed_side_by_side(on_gpu: Fake) -> None:
    done = compare(["1", "1.1"], "--json", "--seed", "5")
    assert sorted(on_gpu.asked) == [("a.py", 20, 0), ("b.py", 20, 0)]
    found = as_object(done)
    assert [each["wave"] for each in found["rounds"]] == [1, 1, 2, 2, 3, 3]
    assert found["rounds"][0]["mean_us"]["B"] == pytest.approx([27.5, 49.5, 16.5])
    assert (found["end"], found["seed"], on_gpu.seed) == ("clear", 5, 5)


def test_a_copy_is_noticed_tested_once_and_timed_all_the_same(on_gpu: Fake) -> None:
    done = compare(["1", "1"], "--rounds", "3")
    assert "B  b.py, equal to A, byte for byte" in done.output
    assert on_gpu.asked == [("a.py", 20, 0)]
    assert "2 rounds side by side: A 25.650 us, B 25.650 us" in done.output
    assert "same: B takes as long as A, within 0.50%" in done.output
    assert done.exit_code == 0


@pytest.mark.parametrize("word", ["wrong-contest", "stale"])
def test_a_wrong_file_ends_it_with_its_failure(on_gpu: Fake, word: str) -> None:
    texts = ["1", f"1 {word}", "1.2"]
    done = compare(texts, "--seed", "1")
    assert done.exit_code == 1
    assert {"wrong-contest": "no luck", "stale": "stale output"}[word] in done.output
    assert done.output.endswith("B (b.py) is wrong, so nothing is compared\n")
    assert on_gpu.waves == 0
    found = as_object(compare(texts, "--json"))
    assert not found["passed"]
    assert found["failed"]["file"] == "B"
    assert not found["failed"]["verdict"]["passed"]
    assert found["comparisons"] is None


def test_what_only_full_range_inputs_fail_is_said(on_gpu: Fake) -> None:
    done = compare(["1", "1 wrong-full"], "--rounds", "3")
    assert "10 tests with full-range inputs failed, which only warns" in done.output
    assert done.exit_code == 0


def test_the_time_limit_ends_it_after_three_rounds(
    on_gpu: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter(range(0, 10_000, 7))
    monkeypatch.setattr(comparing.time, "monotonic", lambda: float(next(now)))
    done = compare(["1", "1.02"], "--limit-s", "1")
    assert on_gpu.waves == 2
    assert done.exit_code == 1


@pytest.mark.parametrize("at", [0, 1])
def test_an_interrupt_before_three_rounds_shows_nothing(on_gpu: Fake, at: int) -> None:
    on_gpu.interrupted_at = at
    done = compare(["1", "1.1"])
    assert done.exit_code == 130
    assert "against" not in done.output


def test_an_interrupt_later_shows_what_is_known(on_gpu: Fake) -> None:
    on_gpu.interrupted_at = 3
    done = compare(["1", "1.1"], "--rounds", "9")
    assert done.exit_code == 130
    assert "B against A, means over 6 rounds" in done.output
    assert "interrupted" in done.output


def test_a_judgement_of_the_history_is_compared_by_its_number(
    history: History, on_gpu: Fake
) -> None:
    number = kept_in(history, named(timed_verdict(), "old.py", b"1"), b"1")
    Path("new.py").write_text("0.9")
    done = invoke("compare", str(number), "new.py", "--json")
    files = as_object(done)["files"]
    assert [(each["label"], each["path"], each["id"]) for each in files] == [
        ("A", "old.py", 1),
        ("B", "new.py", None),
    ]
    assert done.exit_code == 0
    assert on_gpu.asked[0] == ("old.py", 20, 0)
    missing = invoke("compare", "77", "new.py")
    assert missing.exit_code == 2
    assert is_error(missing.output)


@pytest.mark.parametrize("width", [80, 160])
def test_the_table_fits_and_no_number_is_cut(
    on_gpu: Fake, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setattr(
        comparing,
        "new_console",
        lambda stderr: Console(width=width, highlight=False, force_interactive=True),
    )
    done = compare(["30", "41"], "--rounds", "3")
    assert max(map(len, done.output.splitlines())) <= width
    for row in ("7168 x 16384 x 1  750.0  1,025", "+36.67%", "geometric mean", "slower"):
        assert row in done.output


def test_counts_are_side_by_side_without_a_gpu(emulated: Fake) -> None:
    done = compare(["1", "1.5"])
    assert done.exit_code == 0
    assert emulated.asked == [("a.py", 20, 3), ("b.py", 20, 3)]
    lines = [line.split() for line in done.output.splitlines()]
    assert ["warp", "instructions", "1,000,000", "1,500,000", "50.0%", "more"] in lines
    assert ["bank", "conflicts", "0", "0", "same"] in lines
    assert ["distinct", "MB", "66.000", "99.000", "50.0%", "more"] in lines
    assert "without a GPU there is no verdict about time" in done.output
    assert max(map(len, done.output.splitlines())) <= 120
    assert "33.3% less" in compare(["1.5", "1"]).output


def test_the_object_without_a_gpu_has_counts_and_no_verdict(emulated: Fake) -> None:
    found = as_object(compare(["1", "1.5"], "--json"))
    assert (found["passed"], found["verdict"], found["rounds"]) == (True, None, None)
    (only,) = found["counts"]
    assert (only["file"], only["baseline"], len(only["shapes"])) == ("B", "A", 3)
    changed = only["shapes"][0]["counts"]["sectors_requested"]
    assert changed == {"baseline": 400_000, "file": 600_000, "change": 0.5}


def test_a_submission_without_kernels_has_no_counts(emulated: Fake) -> None:
    done = compare(["1", "1 torch"])
    assert done.output.count("no counts, B ran no kernel") == 3
    assert done.exit_code == 0
    assert as_object(compare(["1", "1 torch"], "--json"))["counts"][0]["shapes"][0]["counts"] == {}


@pytest.mark.parametrize("on_a_gpu", [True, False])
@pytest.mark.parametrize("texts", [["1", "1.1"], ["1 wrong-contest", "1"]])
def test_the_object_has_the_keys_that_the_page_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, on_a_gpu: bool, texts: list[str]
) -> None:
    page = (root / "docs" / "json.md").read_text(encoding="utf-8")
    Fake(monkeypatch, tmp_path, on_a_gpu)
    found = as_object(compare(texts, "--json"))
    keys: set[str] = set(found) | set(found["files"][0])
    for name in ("rounds", "comparisons", "counts"):
        for each in found[name] or []:
            keys |= set(each) | (set(each["shapes"][0]) if "shapes" in each else set())
    assert [key for key in sorted(keys) if f"`{key}`" not in page] == []
    schema = json.loads((root / "docs" / "verdict.schema.json").read_text(encoding="utf-8"))
    if found["failed"] and on_a_gpu:
        jsonschema.validate(found["failed"]["verdict"], schema)


@pytest.mark.parametrize(
    "arguments",
    [
        ["a.py"],
        [],
        ["a.py"] * 27,
        ["a.py", "a.py", "--threshold", "0.5"],
        ["a.py", "a.py", "--threshold", "0%"],
        ["a.py", "a.py", "--threshold", "nan%"],
        ["a.py", "a.py", "--rounds", "2"],
        ["a.py", "missing.py"],
    ],
)
def test_what_cannot_be_compared_is_refused(on_gpu: Fake, arguments: list[str]) -> None:
    Path("a.py").write_text("1")
    done = invoke("compare", *arguments)
    assert done.exit_code == 2
    assert on_gpu.asked == []


def test_without_scipy_a_hint_says_what_to_install(
    on_gpu: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparing, "find_spec", lambda name: None)
    done = compare(["1", "1.1"])
    assert done.exit_code == 2
    assert "pip install 'nvfp4[compare]'" in done.output
    assert on_gpu.asked == []


@pytest.mark.skipif(sys.platform != "linux", reason="CuTe DSL runs on Linux")
def test_a_kernel_is_emulated_and_compared_with_its_copy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    problem = load_problem()
    small = ["m: 128; k: 256; l: 1; seed: 1111"]

    def load_small() -> Problem:
        return replace(problem, tests=small, benchmarks=small)

    monkeypatch.setattr(comparing, "load_problem", load_small)
    kernel = root / "tests" / "kernels" / "warp_per_row.py"
    (tmp_path / "copy.py").write_bytes(kernel.read_bytes())
    done = invoke("compare", str(kernel), str(tmp_path / "copy.py"), "--device", "cpu", "--json")
    assert done.exit_code == 0, done.output
    found = as_object(done)
    assert found["files"][1]["same_as"] == "A"
    assert found["device"]["kind"] == "cpu"
    changed = found["counts"][0]["shapes"][0]["counts"]
    assert set(changed) == set(names)
    assert all(each["change"] == 0 for each in changed.values())
    assert changed["warp_instructions_total"]["file"] > 0
