"""``nvfp4 tune --model``: the search that predicts, on a bench that pretends."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

import nvfp4.tuner.predicted
from nvfp4.tuner.predicted import Ranked, climb, neighbours
from nvfp4.tuner.space import load_submission, name_of
from nvfp4.tuner.tune import main as tuner

SOURCE = """\
from dataclasses import dataclass


@dataclass(frozen=True)
class Split:
    rows: int
    groups: int


tables = {
    100: {
        (64, 64, 1): Split(1, 1),
    },
}


def configurations(m, k, l, capability):
    return [Split(rows, groups) for rows in (1, 2, 4, 8) for groups in (1, 2, 4, 8)]


def gemv(data, configuration):
    return data
"""


class Pretended:
    """Predicts 40 us, and less by rows; groups do nothing but slow. error: of the model."""

    name = "B200, predicted"
    capability = 100
    memory_gbps = 50.0

    def __init__(self, error: float = 0.2, wrong: tuple[int, ...] = ()) -> None:
        self.predicted: list[str] = []
        self._error, self._wrong = error, wrong

    def __enter__(self) -> Pretended:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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
def submission(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(SOURCE)
    return path


def tune(
    monkeypatch: pytest.MonkeyPatch, submission: Path, bench: Pretended, *arguments: str
) -> int:
    monkeypatch.setattr(nvfp4.tuner.predicted, "ModelBench", lambda *_: bench)
    return tuner([str(submission), "--shape", "64,64,1", "--model", "B200", *arguments])


def test_neighbours_differ_in_one_field(submission: Path) -> None:
    space = {name_of(each): each for each in load_submission(submission).configurations(1, 1, 1, 1)}
    assert neighbours(space, "2/4") == ["1/4", "2/1", "2/2", "2/8", "4/4", "8/4"]


def test_the_best_is_found_without_predicting_everything(submission: Path) -> None:
    space = {name_of(each): each for each in load_submission(submission).configurations(1, 1, 1, 1)}
    bench: Any = Pretended()
    times: dict[str, list[float]] = {}
    climb(bench, space, ["1/8"], times, print)
    assert min(times, key=lambda name: times[name][0]) == "8/1"
    assert len(bench.predicted) == len(set(bench.predicted)) == len(times) < len(space)


def test_a_search_goes_on_from_what_is_known(submission: Path) -> None:
    space = {name_of(each): each for each in load_submission(submission).configurations(1, 1, 1, 1)}
    bench: Any = Pretended()
    times = {"1/8": [48.0], "8/8": [13.0]}
    climb(bench, space, ["1/8"], times, print)
    assert "8/1" in times
    assert "1/8" not in bench.predicted


def test_a_wrong_configuration_is_not_ranked(
    monkeypatch: pytest.MonkeyPatch, submission: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tune(monkeypatch, submission, Pretended(wrong=(8,))) == 0
    shown = capsys.readouterr().out
    rows = [line.split() for line in shown.splitlines() if " x " in line]
    assert rows[0][0] == "4/1"
    assert "8/1 left out: 3 elements are wrong" in shown
    assert not any(row[0].startswith("8") for row in rows)


def test_a_gain_beyond_the_error_is_written(
    monkeypatch: pytest.MonkeyPatch, submission: Path
) -> None:
    assert tune(monkeypatch, submission, Pretended(), "--write") == 0
    assert submission.read_text() == SOURCE.replace("Split(1, 1),", "Split(8, 1),")


def test_a_gain_within_the_error_is_told_and_not_written(
    monkeypatch: pytest.MonkeyPatch, submission: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tune(monkeypatch, submission, Pretended(error=0.9), "--write") == 0
    assert submission.read_text() == SOURCE
    assert "1/1, as today: 41.00; the gain is within the error" in capsys.readouterr().out
