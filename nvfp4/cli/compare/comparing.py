"""The course of a comparison: every file is tested, then they are timed side by side; without a GPU
their counts are set side by side.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from nvfp4.cli import interrupts
from nvfp4.cli.compare.decision import Limits, Round, Waves, comparisons_of, mean_times_us
from nvfp4.cli.compare.results import (
    Counted,
    Failed,
    File,
    Result,
    Timed,
    read_files,
    result_object,
)
from nvfp4.cli.compare.tables import show_result
from nvfp4.cli.display.benchmark_tables import status_text
from nvfp4.cli.display.console import new_console, say
from nvfp4.cli.display.progress import observed, quiet
from nvfp4.cli.display.render import show_verdict
from nvfp4.cli.errors import SetupError
from nvfp4.cli.judging.assess import Observer, Plan
from nvfp4.cli.judging.bot import Bot, side_by_side
from nvfp4.cli.judging.build_ahead import BuildAhead
from nvfp4.cli.judging.info import capability_of
from nvfp4.cli.judging.invocation import Invocation, judge
from nvfp4.cli.judging.mistakes import first_mistake
from nvfp4.cli.problem import Problem, load_problem
from nvfp4.cli.text import microseconds, seconds, several, visible_json
from nvfp4.cli.verdict import BenchmarkResult, Device, Verdict
from nvfp4.records.failures import Failure, read_failure
from nvfp4.records.options import Options

_tests_at_once = 4


@dataclass(frozen=True)
class CompareOptions:
    """threshold: a share of the baseline's time. limit_s: of the whole comparison. rounds: exactly
    so many, whatever they take. seed: draws the orders, None for any.
    """

    device: str = "auto"
    flush: str = "contest"
    model: str = "B200"
    timeout_s: float = 170.0
    threshold: float = 0.005
    limit_s: float = 90.0
    rounds: int | None = None
    seed: int | None = None
    as_json: bool = False


class _Wrong(Exception):
    """A file failed."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.file.label)
        self.failed = failed


def compare_and_show(named: Sequence[str], options: CompareOptions) -> int:
    """Compares files and judgements by number, shows what came of it and returns the exit code.
    Raises SetupError, and KeyboardInterrupt where there is nothing to show yet.
    """
    started_s = time.monotonic()
    files = read_files(named)
    capability = capability_of(options.device)
    on_gpu = capability is not None
    if on_gpu and find_spec("scipy") is None:
        hint = "pip install 'nvfp4[compare]' brings it."
        raise SetupError("a comparison of times needs scipy, which is missing", hint)
    console = new_console(stderr=options.as_json)
    comparing = _Comparing(files, options, load_problem(), console, capability)
    result: Result
    try:
        comparing.refuse_mistakes()
        result = comparing.timed(started_s) if on_gpu else comparing.counted()
    except _Wrong as wrong:
        result = wrong.failed
    elapsed_s = time.monotonic() - started_s
    if options.as_json:
        content = result_object(files, comparing.device, result, elapsed_s)
        click.echo(json.dumps(content, indent=2, allow_nan=False))
    elif isinstance(result, Failed):
        show_verdict(console, result.verdict)
        unclear = result.verdict.unclear
        why = "could not be judged" if unclear else "is wrong"
        style = "bold yellow" if unclear else "bold red"
        say(console, f"{result.file.name} {why}, so nothing is compared", style)
    else:
        show_result(console, files, result, elapsed_s)
    if isinstance(result, Timed) and result.end == "interrupted":
        return interrupts.exit_code()
    return result.exit_code


@dataclass
class _Comparing:
    """capability: of the GPU, None without one. Methods raise _Wrong, SetupError and
    KeyboardInterrupt.
    """

    files: list[File]
    options: CompareOptions
    problem: Problem
    console: Console
    capability: str | None = None
    device: Device | None = None

    def timed(self, started_s: float) -> Timed:
        """started_s: when the comparison began, on the monotonic clock."""
        plan = Plan(self.problem.tests, [])
        with (
            BuildAhead([self.capability]) as ahead,
            side_by_side(_tests_at_once) as pool,
            quiet(self.console),
        ):
            begun = {
                file.label: ahead.begin(self._judging.bot(file.content)) for file in self._different
            }

            def judged(file: File) -> Verdict:
                begun[file.label].result()
                return self._judged(file, plan)

            self._tell(pool.map(judged, self._different))
        options = self.options
        seed = secrets.randbits(32) if options.seed is None else options.seed
        waves = Waves(Limits(started_s + options.limit_s, options.rounds), options.threshold)
        try:
            self._time(waves, seed)
        except KeyboardInterrupt:
            if not waves.cut_short("interrupted"):
                raise
        except SetupError as error:
            if not waves.cut_short("limit"):
                raise
            say(self.console, str(error), "yellow")
        assert waves.end
        found = comparisons_of(waves.rounds, options.threshold)
        benchmarks = self.problem.benchmarks
        return Timed(benchmarks, options.threshold, seed, waves.rounds, waves.end, found)

    def refuse_mistakes(self) -> None:
        """What reading the files finds is told before any is run."""
        for file in self.files:
            mistake = first_mistake(file.submission.path, file.content)
            if mistake:
                raise _Wrong(Failed(file, Verdict(file.submission, None, mistake=mistake)))

    def counted(self) -> Counted:
        """What the emulated benchmarks count."""
        plan = Plan(self.problem.tests, self.problem.benchmarks)

        def judged(file: File) -> Verdict:
            with observed(self.console) as observer:
                return self._judged(file, plan, observer)

        verdicts = self._tell(map(judged, self._different))
        counts = [[each.emulation for each in verdict.benchmarks] for verdict in verdicts]
        marks = [[each.unverified for each in verdict.benchmarks] for verdict in verdicts]
        predicted = [verdict.score.predicted for verdict in verdicts]
        return Counted(self.problem.benchmarks, counts, marks, predicted)

    @property
    def _different(self) -> list[File]:
        """Without those that equal another before them."""
        return [file for file in self.files if file.same_as is None]

    @property
    def _judging(self) -> Invocation:
        chosen = self.options
        return Invocation(
            Options(
                device=chosen.device,
                flush=chosen.flush,
                timeout_s=chosen.timeout_s,
                model=chosen.model,
            )
        )

    def _tell(self, different: Iterator[Verdict]) -> list[Verdict]:
        """The verdict of every file, each told as it comes. different: of those that differ."""
        verdicts: dict[str, Verdict] = {}
        for file in self.files:
            say(self.console, file.line)
            if file.same_as is None:
                verdict = next(different)
                say(self.console, _tested(verdict))
            else:
                verdict = verdicts[file.same_as]
            verdicts[file.label] = verdict
        return list(verdicts.values())

    def _judged(self, file: File, plan: Plan, observer: Observer | None = None) -> Verdict:
        """A verdict that passed."""
        read = (file.submission, file.content)
        verdict = judge(file.path, plan, self._judging, observer or Observer(), read)
        self.device = verdict.device or self.device
        if verdict.interrupted:
            raise KeyboardInterrupt
        if not verdict.passed:
            raise _Wrong(Failed(file, verdict))
        return verdict

    def _time(self, waves: Waves, seed: int) -> None:
        """Has the files timed side by side, until there are rounds enough."""

        def on_wave(times: Times) -> bool:
            self._show_wave(waves.add(times))
            return waves.end is not None

        contents = [file.content for file in self.files]
        benchmarks, rounds = self.problem.benchmarks, self.options.rounds
        try:
            with quiet(self.console):
                bot = self._judging.bot(b"")
                time_side_by_side(bot, contents, benchmarks, rounds, seed, on_wave)
        except FailedThere as failed:
            raise _Wrong(self._failed(failed)) from None

    def _failed(self, failed: FailedThere) -> Failed:
        """As the benchmarks of the file would have failed."""
        file, at = self.files[failed.file], failed.case or 0
        benchmarks = [
            BenchmarkResult(line, "fail", message=str(failed), failure=failed.failure)
            if number == at
            else BenchmarkResult(line, "skipped", message="not run: another benchmark failed")
            for number, line in enumerate(self.problem.benchmarks)
        ]
        return Failed(file, Verdict(file.submission, self.device, benchmarks=benchmarks))

    def _show_wave(self, rounds: list[Round]) -> None:
        """The geometric means over the rounds of a wave."""
        means = zip(self.files, mean_times_us(rounds), strict=True)
        said = ", ".join(f"{file.label} {microseconds(us)} us" for file, us in means)
        say(self.console, f"{several(len(rounds), 'round')} side by side: {said}", "dim")


def _tested(verdict: Verdict) -> Text:
    """That a file is right, and what only warns."""
    wrong = sum(each.status != "pass" for each in verdict.tests)
    text = f"  {several(len(verdict.tests), 'test')} in {seconds(verdict.elapsed_s or 0.0)}"
    if wrong:
        text += f"; {several(wrong, 'test')} with full-range inputs failed, which only warns"
    return Text.assemble("   ", status_text("pass"), (text, "dim"))


Times = list[list[list[float]]]
"""Of a wave: microseconds [rounds][files][shapes]."""


class FailedThere(Exception):
    """A file was wrong while it was timed. file: its number. case: the number of the benchmark,
    None where it could not be loaded.
    """

    def __init__(self, file: int, case: int | None, message: str, failure: Failure | None) -> None:
        super().__init__(message)
        self.file, self.case, self.failure = file, case, failure


def time_side_by_side(
    bot: Bot,
    contents: list[bytes],
    benchmarks: list[str],
    rounds: int | None,
    seed: int,
    on_wave: Callable[[Times], bool],
) -> None:
    """Until on_wave returns True, or there were so many rounds. Raises FailedThere, and SetupError
    where nothing can be timed.
    """
    told: list[FailedThere] = []
    enough = False

    def on_result(key: str, value: str) -> bool:
        nonlocal enough
        if key.startswith("wave."):
            enough = on_wave(json.loads(value))
        elif key == "failed":
            found: dict[str, Any] = visible_json(value)
            failure = read_failure(found["failure"])
            told.append(FailedThere(found["file"], found["case"], found["message"], failure))
        return enough

    ended = bot.run_comparison(contents, rounds, seed, benchmarks, on_result)
    if told:
        raise told[0]
    if not enough:
        last = ended.stderr.splitlines()[-1:] or [f"it ended with {ended.exit_code}"]
        why = ended.values.get("error", last[0])
        raise SetupError(f"the files could not be timed: {why}", "nvfp4 eval says more of each.")
