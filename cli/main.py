"""The commands. Heavy libraries stay out, so that help answers at once."""

from __future__ import annotations

import json
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import click

from nvfp4.cli.errors import SetupError
from nvfp4.cli.parameters import (
    DeviceType,
    flush_option,
    judging_options,
    shapes_option,
    submission_argument,
)

bench_seed = 1111
setup_exit = 2


class Commands(click.Group):
    """A group whose commands end with exit code 2 where nothing could be judged."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except SetupError as error:
            click.echo(f"error: {error}\nhint: {error.hint}", err=True)
            ctx.exit(setup_exit)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="nvfp4")
def main() -> None:
    """Judges submissions to the NVFP4 GEMV contest on the GPU you have, or on none."""
    if threading.current_thread() is threading.main_thread():
        # A signal that ends the command ends the judge too, as Ctrl-C does.
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.default_int_handler)


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

    Exit code 0: it passed; 1: it failed; 2: nothing was judged.
    """
    from nvfp4.cli.assess import Plan
    from nvfp4.cli.judging import Options, judge_and_show, profile_and_show
    from nvfp4.cli.problem import load_problem

    problem = load_problem()
    if mode == "profile":
        sys.exit(profile_and_show(submission, problem.benchmarks, Options(**options)))
    tests = problem.tests if mode != "benchmark" else []
    benchmarks = problem.benchmarks if mode != "test" else []
    sys.exit(judge_and_show(submission, Plan(tests, benchmarks, mode), Options(**options)))


@main.command()
@submission_argument
@shapes_option("time")
@judging_options
def bench(submission: Path, shapes: tuple[tuple[int, int, int], ...], **options: Any) -> None:
    """Times SUBMISSION: statistics, bandwidth, percent of the floor, geometric mean.

    Every call sees new contents and every output is checked.
    """
    from nvfp4.cli.assess import Plan
    from nvfp4.cli.judging import Options, judge_and_show
    from nvfp4.cli.problem import case_line, load_problem

    lines = [case_line({"m": m, "k": k, "l": l, "seed": bench_seed}) for m, k, l in shapes]
    plan = Plan([], lines or load_problem().benchmarks)
    sys.exit(judge_and_show(submission, plan, Options(**options)))


@main.command()
@submission_argument
@judging_options
def test(submission: Path, **options: Any) -> None:
    """Tests SUBMISSION on the contest's inputs and on full-range ones; times nothing."""
    from nvfp4.cli.assess import Plan
    from nvfp4.cli.judging import Options, judge_and_show
    from nvfp4.cli.problem import load_problem

    sys.exit(judge_and_show(submission, Plan(load_problem().tests, []), Options(**options)))


@main.command()
@click.option("--device", default="auto", type=DeviceType(), help="Which device to describe.")
@flush_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object, nothing else.")
def info(device: str, flush: str, as_json: bool) -> None:
    """Shows the device, its measured limits, and the floor of each benchmark."""
    from nvfp4.cli.info import inspect, show_info
    from nvfp4.cli.judging import new_console
    from nvfp4.cli.problem import load_problem

    information = inspect(load_problem(), device, flush)
    if as_json:
        click.echo(json.dumps(information.as_json(), indent=2))
    else:
        show_info(new_console(), information)


@main.command()
@click.argument("names", nargs=-1)
@click.option(
    "--quick",
    is_flag=True,
    help="Judge a few that stand for the rest, without benchmarks, in a minute.",
)
@click.option("--device", default="auto", type=DeviceType(), help="Where to judge.")
@flush_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object, nothing else.")
def selftest(names: tuple[str, ...], quick: bool, device: str, flush: str, as_json: bool) -> None:
    """Judges honest submissions, which must pass, and cheats, which must be caught.

    NAMES picks some of the corpus; all of it is judged without, or a few with --quick. Exit 1 if
    the judge was fooled, or failed an honest submission.
    """
    from nvfp4.cli.info import inspect
    from nvfp4.cli.judging import failed_exit, new_console, passed_exit
    from nvfp4.cli.problem import load_problem
    from nvfp4.cli.selftest import load_corpus, run_corpus, show_findings

    problem = load_problem()
    corpus = load_corpus(problem)
    unknown = set(names) - {specimen.name for specimen in corpus}
    if unknown:
        known = ", ".join(specimen.name for specimen in corpus)
        raise SetupError(f"{', '.join(sorted(unknown))} is not in the corpus", f"It has {known}.")
    chosen = [each for each in corpus if each.name in names]
    if not names:
        chosen = [each for each in corpus if each.quick or not quick]
    on_cuda = inspect(problem, device).device.kind == "cuda"
    findings = run_corpus(problem, chosen, device, on_cuda, quick, flush)
    good = show_findings(new_console(), findings, as_json)
    sys.exit(passed_exit if good else failed_exit)


@main.command()
@submission_argument
@shapes_option("tune for")
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
    from nvfp4.cli.problem import load_problem
    from nvfp4.cli.tune import tune as run_tuner

    if device in ("cpu", "emulate"):
        raise SetupError("only a GPU can say what is fast", "Use --device auto, cuda or cuda:N.")
    if not submission.is_file():
        raise SetupError(f"{submission} does not exist", "Name the submission to tune.")
    sys.exit(run_tuner(load_problem(), submission, shapes, device, calls, state, write))
