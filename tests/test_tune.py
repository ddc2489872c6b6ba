"""``nvfp4 tune`` without a GPU: a bench that pretends stands in for one."""

import random
import signal
import statistics
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from bot import root
from hypothesis import given
from hypothesis import strategies as st
from kept import invoke, refused

import nvfp4.cli.tuning
from nvfp4.tuner.benches import Gpu, PredictingBench, TimingBench, median_interval, neighbours
from nvfp4.tuner.space import TuneError, load_submission, name_of
from nvfp4.tuner.tune import main as tuner

source = """\
from dataclasses import dataclass


@dataclass(frozen=True)
class Split:
    rows: int
    groups: int = 1


def configurations(m, k, l, capability):
    return [Split(rows) for rows in (1, 2, 4, 8, 16)]


def gemv(data, configuration):
    return data
"""

grid = source.replace(
    "Split(rows) for rows in (1, 2, 4, 8, 16)",
    "Split(rows, groups) for rows in (1, 2, 4, 8) for groups in (8, 4, 2, 1)",
)
case = "m: 64; k: 64; l: 1; seed: 1"


class Pretended:
    """Knows what is wrong by rows."""

    def __init__(self, wrong: tuple[int, ...] = (8,), stop_after: int = 1000) -> None:
        super().__init__()
        self.timed: list[Any] = []
        self.checked: list[int] = []
        self._wrong, self._stop_after = wrong, stop_after
        self._draw = random.Random(1)

    def open(self, submission: Any, shape: Any) -> None:
        self.shape = shape

    def refusal(self, configuration: Any) -> str | None:
        self.checked.append(configuration.rows)
        return "3 elements are wrong" if configuration.rows in self._wrong else None


class Timed(Pretended, TimingBench):
    """4 rows are the fastest, 2 close to it, the others hopeless."""

    name, capability = "pretended GPU", 90

    def time_us(self, configuration: Any) -> float:
        if len(self.timed) >= self._stop_after:
            raise KeyboardInterrupt
        self.timed.append(configuration.rows)
        true_us = {1: 20.0, 2: 10.05, 4: 10.0, 8: 1.0, 16: 30.0}[configuration.rows]
        return true_us * (1 + 0.02 * self._draw.random())


class Predicted(Pretended, PredictingBench):
    """Predicts 40 us, and less by rows; groups do nothing but slow."""

    name, capability = "B200, predicted", 100
    low, high = 0.8, 2.0

    def predicted_us(self, configuration: Any) -> float:
        self.timed.append(name_of(configuration))
        return float(40 / configuration.rows + configuration.groups)


@pytest.fixture
def submission(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(source)
    return path


def rows_of(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if " x 1." in line]


def test_the_ranking_shows_median_interval_and_relation_to_the_best(
    submission: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = Timed()
    assert tuner([str(submission), case], bench) == 0
    shown = capsys.readouterr().out
    assert "8/1 left out: 3 elements are wrong" in shown
    assert "64 x 64 x 1 on pretended GPU" in shown
    assert shown.endswith("  fastest: Split(rows=4, groups=1)\n")
    rows = rows_of(shown)
    assert [row[0] for row in rows] == ["4/1", "2/1"]
    median, low, high = (float(each.strip("[],")) for each in rows[0][1:4])
    assert 10 <= low <= median <= high <= 10.2
    assert rows[0][4:] == ["x", "1.000"]
    # They take turns, and the hopeless get few calls.
    assert bench.timed == [1, 2, 4, 16] * 3 + [2, 4] * 47
    assert bench.shape == (64, 64, 1)


def test_progress_is_sparse(submission: Path, capsys: pytest.CaptureFixture[str]) -> None:
    submission.write_text(source.replace("(1, 2, 4, 8, 16)", "range(4, 64)"))
    assert tuner([str(submission), case], Timed(wrong=tuple(range(5, 64)))) == 0
    assert capsys.readouterr().out.count("compiling and checking") == 3


def test_an_interrupt_ends_with_130(submission: Path) -> None:
    assert tuner([str(submission), case], Timed(stop_after=30)) == 130


def test_no_right_configuration_ends_with_1(
    submission: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tuner([str(submission), case], Timed(wrong=(1, 2, 4, 8, 16))) == 1
    assert "no configuration is right" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("old", "new", "line", "why"),
    [
        ("def configurations", "def space", case, "no `configurations`"),
        ("def gemv", "def product", case, "no `gemv`"),
        ("    return [", "    raise SystemExit(0)\n    return [", case, "SystemExit: 0"),
        ("rows: int", "rows: int", "m: 64; k: 100; l: 1; seed: 1", "a positive multiple of 64"),
    ],
)
def test_what_cannot_be_tuned_is_refused(
    old: str, new: str, line: str, why: str, submission: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    submission.write_text(source.replace(old, new))
    bench = Timed()
    assert tuner([str(submission), line], bench) == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert error.startswith("error: ")
    assert why in error
    assert hint.startswith("hint: ")
    assert bench.checked == []


def test_a_submission_that_does_not_import_is_refused(submission: Path) -> None:
    submission.write_text("raise SystemExit(3)")
    with pytest.raises(TuneError, match="does not run by itself: SystemExit: 3"):
        load_submission(submission)


def test_the_best_is_predicted_without_predicting_everything(
    submission: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    submission.write_text(grid)
    bench = Predicted()
    assert tuner([str(submission), case], bench) == 0
    assert "8/1" in bench.timed
    assert len(bench.timed) == len(set(bench.timed)) < 16
    shown = capsys.readouterr().out
    rows = rows_of(shown)
    assert rows[0] == ["4/1", "11.00", "[8.80,", "22.00]", "x", "1.000"]
    assert rows[1][-3:] == ["not", "told", "apart"]
    assert "8/1 left out: 3 elements are wrong" in shown


def test_neighbours_differ_in_one_field(submission: Path) -> None:
    submission.write_text(grid)
    space = {name_of(each): each for each in load_submission(submission).configurations(1, 1, 1, 1)}
    assert neighbours(space, "2/4") == ["1/4", "2/8", "2/2", "2/1", "4/4", "8/4"]


@given(st.lists(st.floats(0.1, 1e6), min_size=1, max_size=200))
def test_the_interval_of_a_median_holds_the_median(samples: list[float]) -> None:
    low, high = median_interval(samples)
    assert min(samples) <= low <= statistics.median(samples) <= high <= max(samples)


def test_the_interval_of_a_median_covers_it_about_95_times_in_100() -> None:
    draw = random.Random(3)
    covered = 0
    for _ in range(1000):
        low, high = median_interval([draw.random() for _ in range(40)])
        covered += low <= 0.5 <= high
    assert 930 <= covered <= 985


# The command


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_no_cuda_device_ends_with_2_and_a_hint_in_any_folder(
    submission: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(submission.parent)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    Path("reference.py").write_text("raise ImportError('another reference')")
    refused("tune", str(submission))
    error, hint = capfd.readouterr().err.splitlines()
    assert error.startswith("error: torch sees no CUDA device here")
    assert hint.startswith("hint: ")


def test_the_command_hands_everything_to_the_tuner_and_interrupts_it(
    submission: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[dict[str, Any]] = []
    process = Mock(**{"wait.side_effect": [1, KeyboardInterrupt, 130]})

    def start(command: list[str], **settings: Any) -> Any:
        found.append({**settings, "command": command})
        return process

    monkeypatch.setattr(nvfp4.cli.tuning.subprocess, "Popen", start)
    options = ["--shape", "1,64,1", "--device", "cuda:1", "--model", "B200"]
    assert invoke("tune", str(submission), *options).exit_code == 1
    assert invoke("tune", str(submission)).exit_code == 130
    process.send_signal.assert_called_once_with(signal.SIGINT)
    first, second = found
    wanted = [sys.executable, "-c", nvfp4.cli.tuning._begin, str(submission), "--model", "B200"]
    assert first["command"] == [*wanted, "m: 1; k: 64; l: 1; seed: 1111"]
    assert first["env"]["CUDA_VISIBLE_DEVICES"] == "1"
    assert first["env"]["PYTHONPATH"].startswith(str(root))
    assert [each.rpartition("; ")[0] for each in second["command"][4:]] == [
        *("m: 7168; k: 16384; l: 1", "m: 4096; k: 7168; l: 8", "m: 7168; k: 2048; l: 4")
    ]


@pytest.mark.gpu
def test_a_gpu_refuses_what_is_wrong_and_times_what_is_right(tmp_path: Path) -> None:
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
