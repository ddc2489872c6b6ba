"""A judge that is started before its turn has everything loaded, and judges only then."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from nvfp4.cli.errors import SetupError
from nvfp4.cli.judging.assess import Observer
from nvfp4.cli.judging.bot import Bot, side_by_side
from nvfp4.cli.judging.overlap import BesideTests
from nvfp4.cli.problem import case_line, load_problem
from nvfp4.cli.verdict import BenchmarkResult, Submission, Verdict
from nvfp4.records.options import Options

CASE = case_line({"m": 128, "k": 256, "l": 1, "seed": 1})
SUBMISSION = b"def custom_kernel(data):\n    return data[6]\n"


def test_a_judge_says_nothing_before_its_turn_and_ends_within_it() -> None:
    told: list[tuple[str, str]] = []

    @contextmanager
    def turn() -> Iterator[None]:
        time.sleep(2.0)
        assert told == []
        yield
        told.append(("turn", "over"))

    bot = Bot(load_problem(), SUBMISSION, Options(device="cpu"), turn=turn())
    ended = bot.run_eval("test", [CASE], lambda key, value: told.append((key, value)))
    assert told[-1] == ("turn", "over")
    assert len(told) > 1
    assert ended.values == dict(told[:-1])


class Run:
    """Benchmarks that only note when their turn begins."""

    def __init__(self) -> None:
        self.started, self.judged = threading.Event(), threading.Event()

    def __call__(self, verdict: Verdict, observer: Any, turn: AbstractContextManager[None]) -> None:
        self.started.set()
        with turn:
            observer.loaded()
            self.judged.set()
            verdict.benchmarks = [BenchmarkResult(spec=CASE, status="pass")]


@pytest.fixture
def beside() -> Iterator[tuple[BesideTests, Run, Verdict]]:
    run, verdict = Run(), Verdict(Submission("mine.py", ""))
    with ThreadPoolExecutor(1) as pool, BesideTests(pool, run, verdict, Observer()) as benchmarks:
        yield benchmarks, run, verdict


@pytest.mark.parametrize("judges", [False, True])
def test_on_a_gpu_benchmarks_wait_for_the_end_of_the_tests(
    beside: tuple[BesideTests, Run, Verdict], judges: bool
) -> None:
    benchmarks, run, verdict = beside
    benchmarks.start(judges)
    assert run.started.wait(5)
    assert run.judged.wait(0.3) == judges
    benchmarks.finish(verdict)
    assert [each.status for each in verdict.benchmarks] == ["pass"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SetupError("no judge", "")])
def test_what_ends_the_tests_ends_benchmarks_that_wait_for_them(error: BaseException) -> None:
    run, verdict = Run(), Verdict(Submission("mine.py", ""))

    def judge() -> None:
        with (
            side_by_side(2) as pool,
            BesideTests(pool, run, verdict, Observer()) as benchmarks,
        ):
            benchmarks.start(False)
            assert run.started.wait(5)
            raise error

    ended = ThreadPoolExecutor(1).submit(judge)
    assert ended.exception(timeout=5) is error
    assert not run.judged.is_set()
    assert verdict.benchmarks == []
