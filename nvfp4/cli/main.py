"""The commands. Heavy libraries stay out, so that help answers at once."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import click

from nvfp4 import __version__
from nvfp4.cli import errors as exits
from nvfp4.cli.commands import compare, log, problems, report, show
from nvfp4.cli.errors import SetupError
from nvfp4.cli.group import Commands
from nvfp4.cli.parameters import (
    DeviceType,
    batch_options,
    cases_option,
    explain_options,
    flush_option,
    json_option,
    judgement_options,
    judging_options,
    log_option,
    problem_option,
    stop_option,
    submission_argument,
    watch_option,
)
from nvfp4.records.prediction import GPUS


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="nvfp4")
def main() -> None:
    """Judges submissions to GPU MODE's kernel contests on the GPU you have, or on none."""


def _end(judge: Callable[[], int], submission: Path, watch: bool) -> NoReturn:
    """Ends with the exit code of a judgement, or of the last of several."""
    if not watch:
        sys.exit(judge())
    from nvfp4.cli.judging.watch import repeatedly

    sys.exit(repeatedly(judge, submission))


@main.command("eval", epilog="nvfp4 eval mine.py\nnvfp4 eval mine.py --json --output verdict.json")
@submission_argument
@stop_option
@watch_option
@log_option
@judging_options
def eval_command(submission: Path, stop_early: bool, watch: bool, **options: Any) -> None:
    """Judges SUBMISSION: the contest's tests, full-range tests, then the benchmarks.

    Exit code 0: it passed; 1: it failed; 2: nothing was judged; 3: unclear.
    """
    from nvfp4.cli.invocation import Invocation, judge_and_show
    from nvfp4.cli.judging.assess import Plan

    invocation = Invocation.of(options)
    plan = Plan.of(invocation.problem(submission), stop_at="fail" if stop_early else None)
    _end(lambda: judge_and_show(submission, plan, invocation), submission, watch)


@main.command(
    epilog="nvfp4 bench mine.py\nnvfp4 bench mine.py --shape 7168,16384,1 --shape 512,4096,2"
)
@submission_argument
@cases_option("time")
@log_option
@judging_options
def bench(submission: Path, cases: tuple[str, ...], **options: Any) -> None:
    """Times SUBMISSION: statistics, bandwidth, percent of the floor, geometric mean.

    Every call sees new contents and every output is checked.
    """
    from nvfp4.cli.invocation import Invocation, judge_and_show
    from nvfp4.cli.judging.assess import Plan

    invocation = Invocation.of(options)
    problem = invocation.problem(submission)
    lines = [problem.case(each, problem.benchmarks) for each in cases] or problem.benchmarks
    plan = Plan.of(problem, tests=[], benchmarks=lines)
    sys.exit(judge_and_show(submission, plan, invocation))


@main.command(epilog="nvfp4 test mine.py\nnvfp4 test mine.py --device cpu --strict")
@submission_argument
@stop_option
@click.option(
    "-k",
    "--only",
    "pattern",
    metavar="SHAPE",
    help="Only shapes that match, such as 512x4096 or 512x4096x2.",
)
@watch_option
@log_option
@judging_options
def test(
    submission: Path, stop_early: bool, pattern: str | None, watch: bool, **options: Any
) -> None:
    """Tests SUBMISSION on the contest's inputs and on full-range ones; times nothing."""
    from nvfp4.cli.invocation import Invocation, judge_and_show
    from nvfp4.cli.judging.assess import Plan
    from nvfp4.cli.problem import matching

    invocation = Invocation.of(options)
    problem = invocation.problem(submission)
    chosen = problem.tests if pattern is None else matching(problem.tests, pattern)
    stop = "fail" if stop_early else None
    plan = Plan.of(problem, tests=chosen, benchmarks=[], stop_at=stop)
    _end(lambda: judge_and_show(submission, plan, invocation), submission, watch)


@main.command(
    epilog="nvfp4 batch kernels --jsonl verdicts.jsonl --stop\n"
    "nvfp4 batch kernels --jsonl verdicts.jsonl --resume"
)
@click.argument("names", nargs=-1, required=True, type=click.Path(path_type=Path))
@batch_options
@judgement_options
def batch(names: tuple[Path, ...], **options: Any) -> None:
    """Judges files and all *.py of folders, equal ones once: as `eval`, a line of JSON for each.

    One at a time on each GPU; without a GPU as many at once as cores and memory allow. Exit code
    0: all passed; 1: some failed; 130: interrupted, and what was judged is kept.
    """
    from nvfp4.cli.batch.command import batch_and_show
    from nvfp4.cli.batch.options import BatchOptions

    sys.exit(batch_and_show(names, BatchOptions.of(options)))


@main.command(epilog="nvfp4 check mine.py\nnvfp4 check mine.py --shape 384,640,2 --watch")
@submission_argument
@click.option(
    "--case",
    "--shape",
    "case",
    metavar="CASE",
    help="The case that decides: the number of a test, name=value,..., or sizes such as 512,512,2. "
    "Default: the cheapest test.",
)
@watch_option
@judging_options
def check(submission: Path, case: str | None, watch: bool, **options: Any) -> None:
    """Checks SUBMISSION in seconds: parses, imports and compiles it, then tests one shape.

    A shape of the contest with its inputs decides. Full-range inputs and an awkward shape, 384 x
    640 x 2, are a second look, which only warns.
    """
    from nvfp4.cli.check import check_and_show
    from nvfp4.cli.invocation import Invocation

    invocation = Invocation.of(options)
    _end(lambda: check_and_show(submission, case, invocation), submission, watch)


@main.command(epilog="nvfp4 new cute\nnvfp4 new --from cute/split_k_warp -o mine.py")
@click.argument("kind", required=False, type=click.Choice(["torch", "cute", "cuda", "triton"]))
@click.option(
    "--from", "rung", metavar="RUNG", help="Copy a rung of the ladder, such as cute/split_k_warp."
)
@click.option(
    "-o",
    "--output",
    default="submission.py",
    show_default=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write.",
)
@click.option("--force", is_flag=True, help="Overwrite the file if there is one.")
@problem_option
def new(kind: str | None, rung: str | None, output: Path, force: bool, problem: str) -> None:
    """Writes a small commented submission that passes every test, to start from.

    KIND is torch unless given. With --problem it is that problem's own template or starter.
    """
    from nvfp4.cli.new import write_problem_template, write_rung, write_template
    from nvfp4.cli.problem import find_problem

    found = find_problem(problem)
    if not found.is_bundled:
        write_problem_template(found, output, force)
    elif rung is None:
        write_template(kind or "torch", output, force)
    elif kind is None:
        write_rung(rung, output, force)
    else:
        raise click.UsageError("KIND and --from exclude each other.")
    click.echo(f"wrote {output}; next: nvfp4 check {output}")


@main.command(
    epilog="nvfp4 explain mine.py\nnvfp4 explain mine.py --shape 7168x2048x4 --top 3 --ptx"
)
@submission_argument
@cases_option("explain", "the first of the problem's benchmarks")
@explain_options
def explain(submission: Path, cases: tuple[str, ...], **options: Any) -> None:
    """Shows what each line of SUBMISSION costs, and what to change in the costliest.

    One call of a shape is emulated, of a large grid a sample of its thread blocks; nothing is
    judged or timed. Exit code 1: the call failed; 3: it uses what is not emulated.
    """
    from nvfp4.cli.explain.command import ExplainOptions, explain_and_show

    sys.exit(explain_and_show(submission, cases, ExplainOptions(**options)))


@main.command(epilog="nvfp4 info\nnvfp4 info --device cpu --json")
@click.option("--device", default="auto", type=DeviceType(), help="Which device to describe.")
@flush_option
@json_option
def info(device: str, flush: str, as_json: bool) -> None:
    """Shows the device, its measured limits, and the floor of each benchmark."""
    from nvfp4.cli.display.console import new_console
    from nvfp4.cli.info import inspect, show_info
    from nvfp4.cli.problem import load_problem

    information = inspect(load_problem(), device, flush)
    if as_json:
        click.echo(json.dumps(information.as_json(), indent=2))
    else:
        show_info(new_console(), information)


@main.command(epilog="nvfp4 selftest --quick\nnvfp4 selftest --list")
@click.argument("names", nargs=-1)
@click.option(
    "--quick",
    is_flag=True,
    help="Judge a few that stand for the rest, without benchmarks, in a minute.",
)
@click.option("--list", "list_only", is_flag=True, help="List them, judge nothing.")
@click.option("--device", default="auto", type=DeviceType(), help="Where to judge.")
@flush_option
@json_option
def selftest(
    names: tuple[str, ...], quick: bool, list_only: bool, device: str, flush: str, as_json: bool
) -> None:
    """Judges honest submissions, which must pass, and cheats, which must be caught.

    NAMES picks some of the corpus; all of it is judged without, or a few with --quick. Exit 1 if
    the judge was fooled, or failed an honest submission.
    """
    from nvfp4.cli.display.console import new_console
    from nvfp4.cli.info import inspect
    from nvfp4.cli.problem import load_problem
    from nvfp4.cli.selftest import load_corpus, run_corpus, show_corpus, show_findings

    problem = load_problem()
    corpus = load_corpus(problem)
    unknown = set(names) - {specimen.name for specimen in corpus}
    if unknown:
        known = ", ".join(specimen.name for specimen in corpus)
        raise SetupError(f"{', '.join(sorted(unknown))} is not in the corpus", f"It has {known}.")
    chosen = [each for each in corpus if each.name in names]
    if not names:
        chosen = [each for each in corpus if each.quick or not quick]
    if list_only:
        show_corpus(new_console(), chosen)
        return
    on_cuda = inspect(problem, device).device.kind == "cuda"
    findings = run_corpus(problem, chosen, device, on_cuda, quick, flush)
    good = show_findings(new_console(), findings, as_json)
    sys.exit(exits.passed if good else exits.failed)


@main.command(epilog="nvfp4 tune mine.py --shape 7168,16384,1\nnvfp4 tune mine.py --model B200")
@submission_argument
@cases_option("tune for")
@click.option("--device", default="auto", type=DeviceType(), help="auto, cuda or cuda:N.")
@click.option(
    "--model",
    type=click.Choice(GPUS),
    help="Predict times on this GPU instead of measuring; needs none.",
)
def tune(submission: Path, cases: tuple[str, ...], device: str, model: str | None) -> None:
    """Searches the space that SUBMISSION declares for the fastest configurations on a GPU.

    SUBMISSION must have configurations(m, k, l, capability) and gemv(data, configuration). Every
    configuration is checked first, then they take turns on a cold L2 cache; with --model they are
    predicted and the best ones checked. SUBMISSION runs unconfined: tune only what you trust.
    Exit 1: no configuration of a case is right.
    """
    from nvfp4.cli.tuning import tune as run_tuner

    sys.exit(run_tuner(submission, cases, device, model))


for command in (log, show, report, compare, problems):
    main.add_command(command)
