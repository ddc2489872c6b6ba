"""The course of a comparison: every file is tested, then they are timed in turns; without a GPU
their counts are set side by side.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

import click
from rich.console import Console
from rich.text import Text

from nvfp4.cli import interrupts
from nvfp4.cli.assess import Plan
from nvfp4.cli.compare.files import File, read_files
from nvfp4.cli.compare.results import (
    Counted,
    Failed,
    Result,
    Timed,
    result_object,
)
from nvfp4.cli.compare.rounds import (
    Limits,
    Round,
    comparisons_of,
    is_settled,
    round_means_us,
    run_rounds,
)
from nvfp4.cli.compare.tables import show_result
from nvfp4.cli.console import new_console, say
from nvfp4.cli.errors import SetupError
from nvfp4.cli.gpu import has_gpu
from nvfp4.cli.judging import Options, judge, show_verdict
from nvfp4.cli.problem import Problem, load_problem
from nvfp4.cli.progress import observed, quiet
from nvfp4.cli.quantities import microseconds, seconds, several
from nvfp4.cli.tests_table import status_text
from nvfp4.cli.verdict import Device, Verdict


@dataclass(frozen=True)
class CompareOptions:
    """threshold: a share of the baseline's time. limit_s: of the whole comparison. rounds: exactly
    so many, whatever they take. seed: draws the orders, None for any.
    """

    device: str = "auto"
    flush: str = "contest"
    timeout: float = 170.0
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
    on_gpu = has_gpu(options.device)
    if on_gpu and find_spec("scipy") is None:
        hint = "pip install 'nvfp4[compare]' brings it."
        raise SetupError("a comparison of times needs scipy, which is missing", hint)
    console = new_console(stderr=options.as_json)
    comparing = _Comparing(files, options, load_problem(), console)
    result: Result
    try:
        result = comparing.timed(started_s) if on_gpu else comparing.counted()
    except _Wrong as wrong:
        result = wrong.failed
    elapsed_s = time.monotonic() - started_s
    if options.as_json:
        content = result_object(files, comparing.device, result, elapsed_s)
        click.echo(json.dumps(content, indent=2, allow_nan=False))
    elif isinstance(result, Failed):
        show_verdict(console, result.verdict)
        say(console, f"{result.file.name} is wrong, so nothing is compared", "bold red")
    else:
        show_result(console, files, result, elapsed_s)
    if isinstance(result, Timed) and result.end == "interrupted":
        return interrupts.exit_code()
    return result.exit_code


@dataclass
class _Comparing:
    """Methods raise _Wrong, SetupError and KeyboardInterrupt."""

    files: list[File]
    options: CompareOptions
    problem: Problem
    console: Console
    device: Device | None = None

    def timed(self, started_s: float) -> Timed:
        """started_s: when the comparison began, on the monotonic clock."""
        self._test([])
        options = self.options
        seed = secrets.randbits(32) if options.seed is None else options.seed

        rounds, end = run_rounds(
            self._benchmark,
            len(self.files),
            Limits(started_s + options.limit_s, options.rounds),
            seed,
            partial(is_settled, threshold=options.threshold),
            self._show_round,
        )
        found = comparisons_of(rounds, options.threshold)
        return Timed(self.problem.benchmarks, options.threshold, seed, rounds, end, found)

    def counted(self) -> Counted:
        """What the emulated benchmarks count."""
        verdicts = self._test(self.problem.benchmarks)
        counts = [[each.emulation for each in verdict.benchmarks] for verdict in verdicts]
        return Counted(self.problem.benchmarks, counts)

    def _test(self, benchmarks: list[str]) -> list[Verdict]:
        """Judges each file's contents once, as nvfp4 test does, and on these benchmarks."""
        verdicts: dict[str, Verdict] = {}
        for file in self.files:
            say(self.console, file.line)
            if file.same_as is None:
                verdict = self._judged(file, Plan(self.problem.tests, benchmarks))
                say(self.console, _tested(verdict))
            else:
                verdict = verdicts[file.same_as]
            verdicts[file.label] = verdict
        return list(verdicts.values())

    def _benchmark(self, number: int) -> list[float]:
        """The mean times of a file, by its number, from fresh processes; microseconds."""
        file = self.files[number]
        verdict = self._judged(file, Plan([], self.problem.benchmarks, run_alone=False))
        means = [each.mean_us for each in verdict.benchmarks if each.timed and each.mean_us]
        if len(means) < len(verdict.benchmarks):
            raise SetupError(f"{file.label} was not timed on the GPU", "nvfp4 eval says why.")
        return means

    def _judged(self, file: File, plan: Plan) -> Verdict:
        """A verdict that passed."""
        chosen = self.options
        options = Options(device=chosen.device, flush=chosen.flush, timeout=chosen.timeout)
        course = observed if self.console.is_interactive and plan.tests else quiet
        with course(self.console) as observer:
            read = (file.submission, file.content)
            verdict = judge(file.path, plan, options, observer, read)
        self.device = verdict.device or self.device
        if verdict.interrupted:
            raise KeyboardInterrupt
        if not verdict.passed:
            raise _Wrong(Failed(file, verdict))
        return verdict

    def _show_round(self, number: int, found: Round) -> None:
        """The geometric means in the order in which they were timed."""
        means = round_means_us(found)
        parts = [f"{self.files[file].label} {microseconds(means[file])}" for file in found.order]
        say(self.console, f"round {number}: {', '.join(parts)} us", "dim")


def _tested(verdict: Verdict) -> Text:
    """That a file is right, and what only warns."""
    wrong = sum(each.status != "pass" for each in verdict.tests)
    text = f"  {several(len(verdict.tests), 'test')} in {seconds(verdict.elapsed_s or 0.0)}"
    if wrong:
        text += f"; {several(wrong, 'test')} with full-range inputs failed, which only warns"
    return Text.assemble("   ", status_text("pass"), (text, "dim"))
