"""The commands. Heavy libraries stay out, so that help answers at once."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console

    from cli.assess import Plan
    from cli.verdict import Verdict

failed_exit = 1
setup_exit = 2

bench_seed = 1111

F = TypeVar("F", bound=Callable[..., Any])


class SetupError(click.ClickException):
    """One sentence and a hint on stderr, exit 2."""

    exit_code = setup_exit

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint

    def show(self, file: Any = None) -> None:
        click.echo(f"error: {self.message}", err=True)
        click.echo(f"hint: {self.hint}", err=True)


class ShapeType(click.ParamType):
    """M,K,L as three whole numbers; k a multiple of 64."""

    name = "M,K,L"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int, int]:
        if isinstance(value, tuple):
            return value
        try:
            m, k, l = (int(part) for part in value.split(","))
        except ValueError:
            self.fail(f"{value!r} is not M,K,L, such as 7168,16384,1", param, ctx)
        if m < 1 or l < 1:
            self.fail(f"m and l must be at least 1 in {value!r}", param, ctx)
        if k < 64 or k % 64:
            self.fail(f"k must be a positive multiple of 64 in {value!r}", param, ctx)
        return m, k, l


class DeviceType(click.ParamType):
    """auto, cpu, emulate, cuda or cuda:N."""

    name = "auto|cpu|emulate|cuda|cuda:N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        kind, _, number = value.partition(":")
        known = value in ("auto", "cpu", "emulate", "cuda") or (
            kind == "cuda" and number.isdecimal()
        )
        if not known:
            self.fail(f"{value!r} is not auto, cpu, emulate, cuda or cuda:N", param, ctx)
        return value


def submission_argument(function: F) -> F:
    """SUBMISSION, submission.py unless named."""
    return click.argument("submission", default="submission.py", type=click.Path(path_type=Path))(
        function
    )


def judging_options(function: F) -> F:
    """The options of every command that judges."""
    options = (
        click.option("--device", default="auto", type=DeviceType(), help="Where to judge."),
        click.option(
            "--seed",
            type=click.IntRange(0, 2**62),
            help="A secret seed, combined with the seed of each case as the leaderboard does.",
        ),
        click.option(
            "--timeout",
            default=170.0,
            show_default=True,
            type=click.FloatRange(1, 3600),
            help="Seconds for the tests and for the benchmarks, each.",
        ),
        click.option(
            "--arch",
            default="sm_100a",
            show_default=True,
            type=click.Choice(["sm_100a", "sm_90a"]),
            help="What CuTe DSL kernels are emulated as where there is no GPU.",
        ),
        click.option(
            "--check/--no-check",
            default=True,
            help="Look for races and unset memory and registers while emulating.",
        ),
        click.option("--json", "as_json", is_flag=True, help="Print a JSON object, nothing else."),
        click.option(
            "--output",
            type=click.Path(dir_okay=False, path_type=Path),
            help="Write the JSON object to a file too.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="nvfp4")
def main() -> None:
    """Judges submissions to the NVFP4 GEMV contest on the GPU you have, or on none."""


@main.command("eval")
@submission_argument
@click.option(
    "--mode",
    default="leaderboard",
    show_default=True,
    type=click.Choice(["test", "benchmark", "leaderboard", "profile"]),
    help="leaderboard: tests, then benchmarks with new contents for every call. benchmark: "
    "benchmarks alone, contents kept. test: tests alone. profile: a profile of each benchmark.",
)
@judging_options
def eval_command(submission: Path, mode: str, **options: Any) -> None:
    """Judges SUBMISSION: the contest's tests, full-range tests, then the benchmarks.

    Exit 0: it passed. 1: it failed. 2: the judge could not begin.
    """
    from cli.assess import Plan

    problem = _problem()
    if mode == "profile":
        _profile(submission, problem.benchmarks, **options)
        return
    tests = problem.tests if mode != "benchmark" else []
    benchmarks = problem.benchmarks if mode != "test" else []
    _judge(submission, Plan(tests, benchmarks, mode), **options)


@main.command()
@submission_argument
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    type=ShapeType(),
    help="A shape to time, may be repeated. Default: the three of the contest.",
)
@judging_options
def bench(submission: Path, shapes: tuple[tuple[int, int, int], ...], **options: Any) -> None:
    """Times SUBMISSION: statistics, bandwidth, percent of the floor, geometric mean.

    Every call sees new contents and every output is checked.
    """
    from cli.assess import Plan
    from cli.problem import case_line

    lines = [case_line({"m": m, "k": k, "l": l, "seed": bench_seed}) for m, k, l in shapes]
    _judge(submission, Plan([], lines or _problem().benchmarks), **options)


@main.command()
@submission_argument
@judging_options
def test(submission: Path, **options: Any) -> None:
    """Tests SUBMISSION on the contest's inputs and on full-range ones; times nothing."""
    from cli.assess import Plan

    _judge(submission, Plan(_problem().tests, []), **options)


@main.command()
@click.option("--device", default="auto", type=DeviceType(), help="Which device to describe.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object, nothing else.")
def info(device: str, as_json: bool) -> None:
    """Shows the device, its measured limits, and the floor of each benchmark."""
    from cli.assess import SetupFailed
    from cli.info import inspect, show_info

    try:
        information = inspect(_problem(), device)
    except SetupFailed as error:
        raise SetupError(str(error), error.hint) from None
    if as_json:
        click.echo(json.dumps(information.as_json(), indent=2))
    else:
        show_info(_console(), information)


@main.command()
@click.argument("names", nargs=-1)
@click.option("--device", default="auto", type=DeviceType(), help="Where to judge.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object, nothing else.")
def selftest(names: tuple[str, ...], device: str, as_json: bool) -> None:
    """Judges honest submissions, which must pass, and cheats, which must be caught.

    NAMES picks some of the corpus; all of it is judged without. Exit 1 if the judge was fooled, or
    failed an honest submission.
    """
    from cli.assess import SetupFailed
    from cli.info import inspect
    from cli.selftest import CorpusError, load_corpus, run_corpus, show_findings

    problem = _problem()
    try:
        corpus = load_corpus(problem)
        unknown = set(names) - {specimen.name for specimen in corpus}
        if unknown:
            known = ", ".join(specimen.name for specimen in corpus)
            raise SetupError(
                f"{', '.join(sorted(unknown))} is not in the corpus", f"It has {known}."
            )
        chosen = [each for each in corpus if not names or each.name in names]
        on_cuda = inspect(problem, device).device.kind == "cuda"
        findings = run_corpus(problem, chosen, device, on_cuda)
        good = show_findings(_console(), findings, as_json)
    except CorpusError as error:
        raise SetupError(str(error), "Restore the folder tests from the repository.") from None
    except SetupFailed as error:
        raise SetupError(str(error), error.hint) from None
    sys.exit(0 if good else failed_exit)


@main.command()
@submission_argument
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    type=ShapeType(),
    help="A shape to tune for, may be repeated. Default: the three of the contest.",
)
@click.option("--device", default="auto", type=DeviceType(), help="auto, cuda or cuda:N.")
@click.option(
    "--calls",
    default=50,
    show_default=True,
    type=click.IntRange(3, 100_000),
    help="Timed calls of a configuration that may still be the fastest.",
)
@click.option(
    "--state",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Keep timings in this file and go on from those it has.",
)
@click.option("--write", is_flag=True, help="Put the fastest into SUBMISSION's table.")
def tune(
    submission: Path,
    shapes: tuple[tuple[int, int, int], ...],
    device: str,
    calls: int,
    state: Path | None,
    write: bool,
) -> None:
    """Searches the space that SUBMISSION declares for the fastest configurations on this GPU.

    SUBMISSION must have configurations(m, k, l, capability), gemv(data, configuration) and tables.
    Every configuration is checked first, then they take turns on a cold L2 cache. SUBMISSION runs
    unconfined: tune only what you trust. Exit 1: no configuration of a shape is right.
    """
    from cli.tune import NoTuner
    from cli.tune import tune as run_tuner

    if device in ("cpu", "emulate"):
        raise SetupError("only a GPU can say what is fast", "Use --device auto, cuda or cuda:N.")
    if not submission.is_file():
        raise SetupError(f"there is no file {submission}", "Name the submission to tune.")
    try:
        code = run_tuner(_problem(), submission, shapes, device, calls, state, write)
    except NoTuner as error:
        raise SetupError(str(error), "Restore the folder scripts from the repository.") from None
    sys.exit(code)


def _problem() -> Any:
    from cli.problem import ProblemError, load_problem

    try:
        return load_problem()
    except ProblemError as error:
        raise SetupError(str(error), "Restore the file from the repository.") from None


def _console(stderr: bool = False) -> Console:
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console = Console(stderr=stderr, highlight=False, width=max(100, console.width))
    return console


def _check_output(output: Path | None) -> None:
    """Finds out before judging that the file cannot be written."""
    if output is None:
        return
    existed = output.exists()
    try:
        with output.open("a", encoding="utf-8"):
            pass
        if not existed:  # an empty file would look like a verdict if there is none in the end
            output.unlink()
    except OSError as error:
        raise _not_written(output, error) from None


def _not_written(output: Path, error: OSError) -> SetupError:
    return SetupError(
        f"cannot write {output}: {error.strerror}", "Name a file in a folder that exists."
    )


def _write_output(output: Path | None, text: str) -> None:
    if output is None:
        return
    try:
        output.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise _not_written(output, error) from None


def _judge(
    submission: Path,
    plan: Plan,
    device: str,
    seed: int | None,
    timeout: float,
    arch: str,
    check: bool,
    as_json: bool,
    output: Path | None,
) -> None:
    """Judges, shows the verdict, and exits with it."""
    from cli.assess import SetupFailed, assess, read_submission
    from cli.bot import Bot
    from cli.progress import observed
    from cli.render import show
    from cli.verdict import Verdict

    _check_output(output)
    console = _console(stderr=as_json)
    try:
        described, content = read_submission(submission)
        verdict = Verdict(described)
        with observed(console) as observer:
            assess(
                Bot(_problem(), content, device, seed, timeout, arch, check),
                plan,
                verdict,
                observer,
            )
    except SetupFailed as error:
        raise SetupError(str(error), error.hint) from None
    _hand_out(verdict, as_json, output)
    if not as_json:
        show(console, verdict)
    sys.exit(0 if verdict.passed else failed_exit)


def _hand_out(verdict: Verdict, as_json: bool, output: Path | None) -> None:
    text = json.dumps(verdict.as_json(), indent=2, allow_nan=False)
    if as_json:
        click.echo(text)
    _write_output(output, text)


def _profile(
    submission: Path,
    cases: list[str],
    device: str,
    seed: int | None,
    timeout: float,
    arch: str,
    check: bool,
    as_json: bool,
    output: Path | None,
) -> None:
    from cli.assess import SetupFailed, profile, read_submission
    from cli.bot import Bot
    from cli.progress import observed

    _check_output(output)
    try:
        described, content = read_submission(submission)
        with observed(_console(stderr=as_json)) as observer:
            reports = profile(
                Bot(_problem(), content, device, seed, timeout, arch, check), cases, observer
            )
    except SetupFailed as error:
        raise SetupError(str(error), error.hint) from None
    passed = all(report.passed for report in reports)
    result = {
        "passed": passed,
        "submission": vars(described),
        "reports": [vars(report) for report in reports],
    }
    text = json.dumps(result, indent=2)
    _write_output(output, text)
    if as_json:
        click.echo(text)
    else:
        for report in reports:
            click.echo(f"{report.spec}\n{report.text}\n")
    sys.exit(0 if passed else failed_exit)
