"""``nvfp4 tune`` without a GPU: a bench that pretends stands in for one."""

from __future__ import annotations

import contextlib
import random
import statistics
import sys
from collections.abc import Callable
from dataclasses import make_dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from bot import root
from hypothesis import given
from hypothesis import strategies as st
from kept import invoke

import nvfp4.cli.tuning
import nvfp4.tuner.predicted
from nvfp4.cli.problem import load_problem
from nvfp4.tuner.predicted import Ranked, climb, neighbours
from nvfp4.tuner.search import Search, _memory_gbps, median_interval
from nvfp4.tuner.space import Shape, TuneError, load_submission, name_of, table_for
from nvfp4.tuner.table import with_entry
from nvfp4.tuner.tune import main as tuner

source = """\
from dataclasses import dataclass


@dataclass(frozen=True)
class Split:
    rows: int
    hint: str = "none"


tables = {
    80: {
        (64, 64, 1): Split(1),
    },
    100: {
    },
}


def configurations(m, k, l, capability):
    return [Split(rows) for rows in (1, 2, 4, 8)] + [Split(16, "last")]


def gemv(data, configuration):
    return data
"""


class Pretended:
    """Times by rows: 4 is the fastest, 2 close to it, 8 wrong, the rest hopeless."""

    name = "pretended GPU"
    capability = 90
    memory_gbps = 25.0

    def __init__(self, stop_after: int | None = None, wrong: tuple[int, ...] = (8,)) -> None:
        self.timed: list[int] = []
        self.checked: list[int] = []
        self._stop_after = stop_after
        self._wrong = wrong
        self._draw = random.Random(1)

    def open(self, submission: Any, shape: Shape) -> None:
        self.shape = shape

    def refusal(self, configuration: Any) -> str | None:
        self.checked.append(configuration.rows)
        return "3 elements are wrong" if configuration.rows in self._wrong else None

    def time_us(self, configuration: Any) -> float:
        if self._stop_after is not None and len(self.timed) >= self._stop_after:
            raise KeyboardInterrupt
        self.timed.append(configuration.rows)
        true_us = {1: 20.0, 2: 10.05, 4: 10.0, 8: 1.0, 16: 30.0}[configuration.rows]
        return true_us * (1 + 0.02 * self._draw.random())


@pytest.fixture
def submission(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(source)
    return path


def tune(submission: Path, *arguments: str, bench: Pretended | None = None) -> int:
    return tuner([str(submission), "--shape", "64,64,1", *arguments], bench or Pretended())


def test_the_ranking_shows_mean_interval_and_relation_to_the_best(
    submission: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tune(submission, "--calls", "40") == 0
    shown = capsys.readouterr().out
    rows = [line.split() for line in shown.splitlines() if " x " in line]
    assert [row[0] for row in rows] == ["4/none", "2/none", "1/none", "16/last"]
    mean, median, low, high = (float(each.strip("[],")) for each in rows[0][1:5])
    assert 10 <= low <= median <= high <= 10.2
    assert 10 <= mean <= 10.2
    assert rows[0][5:] == ["40", "x", "1.000"]
    assert float(rows[2][7]) == pytest.approx(2, rel=0.05)
    assert "8/none left out: 3 elements are wrong" in shown
    assert "12 calls each, 2 of 4 left" in shown


def test_candidates_take_turns_and_the_hopeless_get_few_calls(submission: Path) -> None:
    bench = Pretended()
    tune(submission, "--calls", "24", bench=bench)
    assert bench.timed[:12] == [1, 2, 4, 16] * 3
    assert bench.timed[12:] == [2, 4] * 21
    assert 8 not in bench.timed


def test_nothing_is_written_unless_asked(submission: Path) -> None:
    assert tune(submission, "--calls", "6") == 0
    assert submission.read_text() == source


def test_the_fastest_is_written_to_the_table_of_the_device(submission: Path) -> None:
    assert tune(submission, "--calls", "24", "--write", "--shape", "128,64,2") == 0
    new = "(64, 64, 1): Split(4, 'none'),\n        (128, 64, 2): Split(4, 'none'),"
    assert submission.read_text() == source.replace("(64, 64, 1): Split(1),", new)


def test_an_interrupt_ends_with_130(submission: Path) -> None:
    assert tune(submission, "--calls", "24", bench=Pretended(stop_after=30)) == 130


def test_no_right_configuration_ends_with_1_and_writes_nothing(
    submission: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tune(submission, "--write", bench=Pretended(wrong=(1, 2, 4, 8, 16))) == 1
    assert "no configuration is right" in capsys.readouterr().out
    assert submission.read_text() == source


def test_progress_is_sparse_where_nobody_watches(
    submission: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    submission.write_text(source.replace("(1, 2, 4, 8)", "[4] * 60"))
    tune(submission, "--calls", "3")
    shown = capsys.readouterr().out
    assert shown.count("compiling and checking") == 3
    assert "\r" not in shown


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("def configurations", "def space", "no `configurations`"),
        ("def gemv", "def product", "no `gemv`"),
        ("tables =", "table =", "no `tables`"),
        ("80: {", "95: {", "none for sm_90"),
    ],
)
def test_a_submission_without_a_space_is_refused(
    old: str, new: str, why: str, submission: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    submission.write_text(source.replace(old, new))
    bench = Pretended()
    assert tune(submission, bench=bench) == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert error.startswith("error: ")
    assert why in error
    assert hint.startswith("hint: ")
    assert bench.checked == []


def test_a_table_that_cannot_be_written_is_found_out_before_the_search(
    submission: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    submission.write_text(source.replace("Split(1),\n    },", "Split(1)},"))
    bench = Pretended()
    assert tune(submission, "--write", "--shape", "128,64,1", bench=bench) == 2
    assert "must stand on lines of its own" in capsys.readouterr().err
    assert bench.checked == []


def test_a_submission_that_does_not_import_is_refused(submission: Path) -> None:
    submission.write_text("raise SystemExit(3)")
    with pytest.raises(TuneError, match="does not run by itself: SystemExit: 3"):
        load_submission(submission)


# The command


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["missing.py"], "missing.py does not exist"),
        (["--device", "cpu"], "only a GPU can say what is fast"),
        (["--device", "tpu"], "'tpu' is not auto"),
        (["--shape", "64,100,1"], "k must be a positive multiple of 64"),
        (["--calls", "0"], "0 is not in the range"),
    ],
)
def test_wrong_usage_ends_with_2_and_one_reason(arguments: list[str], why: str) -> None:
    done = invoke("tune", *arguments)
    assert done.exit_code == 2
    assert why in done.output
    assert "Traceback" not in done.output


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_no_cuda_device_ends_with_2_and_a_hint_in_any_folder(
    submission: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(submission.parent)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    Path("reference.py").write_text("raise ImportError('another reference')")
    done = invoke("tune", str(submission))
    assert done.exit_code == 2
    error, hint = capfd.readouterr().err.splitlines()
    assert error.startswith("error: torch sees no CUDA device here")
    assert hint.startswith("hint: ")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the command starts in place of the tuner."""
    found: list[dict[str, Any]] = []

    def start(command: list[str], **settings: Any) -> Any:
        found.append({**settings, "command": command})
        return SimpleNamespace(wait=lambda: 1)

    monkeypatch.setattr(nvfp4.cli.tuning.subprocess, "Popen", start)
    return found


def test_the_command_hands_everything_to_the_tuner(
    submission: Path, started: list[dict[str, Any]]
) -> None:
    options = ["--shape", "1,64,1", "--calls", "9", "--device", "cuda:1"]
    assert invoke("tune", str(submission), *options, "--write").exit_code == 1
    (tuner_process,) = started
    wanted = [str(submission), "--calls", "9", "--shape", "1,64,1", "--write"]
    assert tuner_process["command"] == [sys.executable, "-m", "nvfp4.tuner.tune", *wanted]
    assert tuner_process["env"]["CUDA_VISIBLE_DEVICES"] == "1"
    assert tuner_process["env"]["PYTHONPATH"].startswith(str(root))


def test_the_contest_s_shapes_are_tuned_for_unless_others_are_named(
    submission: Path, started: list[dict[str, Any]]
) -> None:
    nvfp4.cli.tuning.tune(load_problem(), submission, [], "auto", 50, False)
    shapes = [each for each in started[0]["command"] if "," in each]
    assert shapes == ["7168,16384,1", "4096,7168,8", "7168,2048,4"]


@pytest.mark.gpu
def test_a_gpu_refuses_what_is_wrong_and_times_what_is_right(tmp_path: Path) -> None:
    from nvfp4.tuner.search import Gpu

    bench = Gpu()
    path = tmp_path / "mine.py"
    path.write_text(
        "from reference import ref_kernel\n\n"
        "def gemv(data, configuration):\n"
        "    if configuration == 'raises':\n        raise ValueError('no')\n"
        "    if configuration == 'right':\n        data[6].copy_(ref_kernel(data))\n"
        "    return data[6]\n"
    )
    bench.open(load_submission(path), (128, 256, 2))
    assert bench.refusal("right") is None
    assert bench.refusal("raises") == "ValueError: no"
    assert "256 of 256 elements are wrong" in (bench.refusal("wrong") or "")
    assert bench.time_us("right") > 0


@pytest.mark.parametrize(
    ("capability", "memory_gbps", "expected"),
    [(80, 19.0, (80, 0)), (90, 25.4, (80, 0)), (90, 36.5, (80, 30)), (100, 54.0, (100, 0))],
)
def test_the_table_is_the_one_whose_bounds_a_device_reaches(
    capability: int, memory_gbps: float, expected: tuple[int, int]
) -> None:
    submission = SimpleNamespace(
        tables={(100, 0): {}, (80, 30): {}, (80, 0): {}}, gemv=None, configurations=None
    )
    found = table_for(submission, Path("mine.py"), capability, memory_gbps)
    assert found == expected


def test_an_entry_goes_into_the_table_of_its_bounds() -> None:
    text = "tables = {\n    (80, 0): {\n    },\n    (80, 30): {\n    },\n}\n"
    written = with_entry(text, (80, 30), (1, 64, 1), None)
    assert written == text.replace(
        "(80, 30): {\n", "(80, 30): {\n        (1, 64, 1): NoneType(),\n"
    )


def test_the_bandwidth_of_a_multiprocessor_comes_from_the_bus_or_is_unknown() -> None:
    h200 = SimpleNamespace(
        memory_clock_rate=3_201_000, memory_bus_width=6016, multi_processor_count=132
    )
    assert 36.4 < _memory_gbps(h200) < 36.6
    assert _memory_gbps(SimpleNamespace(multi_processor_count=132)) == 0


# ``nvfp4 tune --model``: the search that predicts, on a bench that pretends.

two_fields = source.replace('hint: str = "none"', "groups: int")
two_fields = two_fields.replace("Split(1)", "Split(1, 1)").replace("    100: {\n    },\n", "")
two_fields = two_fields.replace("80: {", "100: {").replace(
    'Split(rows) for rows in (1, 2, 4, 8)] + [Split(16, "last")]',
    "Split(rows, groups) for rows in (1, 2, 4, 8) for groups in (1, 2, 4, 8)]",
)


class Predicted(contextlib.AbstractContextManager["Predicted"]):
    """Predicts 40 us, and less by rows; groups do nothing but slow. error: of the model."""

    name = "B200, predicted"
    capability = 100
    memory_gbps = 50.0

    def __init__(self, error: float = 0.2, wrong: tuple[int, ...] = ()) -> None:
        self.predicted: list[str] = []
        self._error, self._wrong = error, wrong

    def __exit__(self, *error: object) -> None:
        pass

    def open(self, submission: Any, shape: Any) -> None:
        pass

    def predicted_us(self, configuration: Any) -> float:
        self.predicted.append(name_of(configuration))
        return 40.0 / configuration.rows + configuration.groups

    def refusal(self, configuration: Any) -> str | None:
        return "3 elements are wrong" if configuration.rows in self._wrong else None

    def ranked(self, name: str, configuration: Any, us: float) -> Ranked:
        return Ranked(name, configuration, us, us * (1 - self._error), us * (1 + self._error))


@pytest.fixture
def space(submission: Path) -> dict[str, Any]:
    submission.write_text(two_fields)
    return {name_of(each): each for each in load_submission(submission).configurations(1, 1, 1, 1)}


def test_neighbours_differ_in_one_field(space: dict[str, Any]) -> None:
    assert neighbours(space, "2/4") == ["1/4", "2/1", "2/2", "2/8", "4/4", "8/4"]


def test_the_best_is_found_without_predicting_everything(space: dict[str, Any]) -> None:
    bench: Any = Predicted()
    times: dict[str, list[float]] = {}
    climb(bench, space, ["1/8"], times, print)
    assert min(times, key=lambda name: times[name][0]) == "8/1"
    assert len(bench.predicted) == len(set(bench.predicted)) == len(times) < len(space)


def test_a_search_goes_on_from_what_is_known(space: dict[str, Any]) -> None:
    bench: Any = Predicted()
    times = {"1/8": [48.0], "8/8": [13.0]}
    climb(bench, space, ["1/8"], times, print)
    assert "8/1" in times
    assert "1/8" not in bench.predicted


@pytest.mark.parametrize(
    ("bench", "best", "written", "said"),
    [
        (Predicted(), "8/1", "Split(8, 1),", ""),
        (Predicted(wrong=(8,)), "4/1", "Split(4, 1),", "8/1 left out: 3 elements are wrong"),
        (
            *(Predicted(error=0.9), "8/1", "Split(1, 1),"),
            "1/1, as today: 41.00; the gain is within the error",
        ),
    ],
    ids=["a gain beyond the error", "the best is wrong", "a gain within the error"],
)
@pytest.mark.usefixtures("space")
def test_a_right_configuration_is_written_if_it_gains_more_than_the_error(
    bench: Predicted,
    best: str,
    written: str,
    said: str,
    submission: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(nvfp4.tuner.predicted, "ModelBench", lambda *_: bench)
    assert tune(submission, "--model", "B200", "--write") == 0
    shown = capsys.readouterr().out
    rows = [line.split() for line in shown.splitlines() if " x " in line]
    assert rows[0][0] == best
    assert not any(row[0].startswith("8") for row in rows if best != "8/1")
    assert said in shown
    assert submission.read_text() == two_fields.replace("Split(1, 1),", written)


# The search for the fastest configuration and the table it is written to, without a GPU.


Configuration = make_dataclass(
    "Configuration", ["threads_k", "groups", "rows", "pieces", "bytes", "resident"]
)
"""As the submission's."""

edited = """\
import x

# kept
tables = {
    80: {
        (1, 64, 1): Configuration(8, 4, 1, 1, 16, 1024),
        (2, 64, 1): Configuration(
            8, 4, 1, 1, 16, 1024
        ),
    },
    100: {},
}
after = 1
"""


def noisy(true_us: dict[str, float]) -> tuple[Callable[[str], float], dict[str, int]]:
    """A timer whose samples are the true time and up to 10 % more."""
    draw = random.Random(1)
    counts = dict.fromkeys(true_us, 0)

    def time_us(candidate: str) -> float:
        counts[candidate] += 1
        return true_us[candidate] * (1 + 0.1 * draw.random())

    return time_us, counts


def test_a_search_ends_when_one_contender_is_left() -> None:
    time_us, counts = noisy({"best": 10.0, "far": 20.0})
    Search(time_us, calls=1000).run(counts)
    assert counts == {"best": 3, "far": 3}


def test_progress_reports_every_round_and_who_is_left() -> None:
    time_us, counts = noisy({"best": 10.0, "near": 10.05, "hopeless": 20.0})
    seen: list[tuple[Any, ...]] = []
    Search(time_us, calls=12).run(counts, lambda done, alive, times: seen.append((done, *alive)))
    assert [done for done, *_ in seen] == [3, 6, 12]
    assert all("hopeless" not in alive for _, *alive in seen)


def test_an_empty_space_is_refused() -> None:
    with pytest.raises(ValueError, match="no candidate"):
        Search(lambda _: 1.0).run([])


@given(st.lists(st.floats(0.1, 1e6), min_size=1, max_size=200))
def test_the_interval_of_a_median_holds_the_median(samples: list[float]) -> None:
    low, high = median_interval(samples)
    assert min(samples) <= low <= statistics.median(samples) <= high <= max(samples)


def test_the_interval_of_a_median_covers_it_about_95_times_in_100() -> None:
    draw = random.Random(3)
    covered = 0
    for _ in range(1000):
        low, high = median_interval(draw.random() for _ in range(40))
        covered += low <= 0.5 <= high
    assert 930 <= covered <= 985


def test_an_entry_of_several_lines_is_replaced_by_one() -> None:
    changed = with_entry(edited, 80, (2, 64, 1), Configuration(16, 2, 1, 1, 16, 1024))
    assert "        (2, 64, 1): Configuration(16, 2, 1, 1, 16, 1024),\n    },\n" in changed


@pytest.mark.parametrize(
    ("table", "text", "reason"),
    [(90, edited, "no table 90"), (80, "a = 1\n", "must assign"), (100, edited, "line of its own")],
)
def test_a_table_that_cannot_be_written_says_why(table: int, text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        with_entry(text, table, (9, 64, 1), Configuration(8, 4, 1, 1, 16, 1024))


@pytest.mark.parametrize(
    "entries",
    [
        "        (1, 64, 1): C(1), (2, 64, 1): C(2),\n",
        "        (2, 64, 1): C(2)\n",
        "        (2, 64, 1): C(2), (1, 64,\n            1): C(1),\n",
    ],
)
def test_entries_that_share_a_line_are_not_lost(entries: str) -> None:
    text = f"tables = {{\n    80: {{\n{entries}    }},\n}}\n"
    with pytest.raises(ValueError, match="lines of its own"):
        with_entry(text, 80, (1, 64, 1), Configuration(8, 4, 1, 1, 16, 1024))
