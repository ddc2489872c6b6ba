"""The commands. Heavy libraries stay out, so that help answers at once."""

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import click

from nvfp4 import __version__
from nvfp4.cli import errors as exits
from nvfp4.cli import parameters
from nvfp4.cli.errors import SetupError
from nvfp4.cli.group import Commands
from nvfp4.cli.text import visible
from nvfp4.records.prediction import GPUS

most_compared = 26


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="nvfp4")
def main() -> None:
    """Judges submissions to GPU MODE's kernel contests on the GPU you have, or on none."""


def _judge(
    submission: Path,
    options: dict[str, Any],
    cases_of: Callable[[Any], dict[str, list[str]]] | None = None,
    stop_early: bool = False,
    watch: bool = False,
) -> NoReturn:
    """Judges SUBMISSION and ends. cases_of: returns the tests or the benchmarks of a problem to
    judge; without it, all of both are judged."""
    from nvfp4.cli.invocation import Invocation, judge_and_show
    from nvfp4.cli.judging.assess import Plan

    invocation = Invocation.of(options)

    def judge() -> int:
        problem = invocation.problem(submission)
        cases = {"tests": [], "benchmarks": [], **cases_of(problem)} if cases_of else {}
        plan = Plan.of(problem, stop_at="fail" if stop_early else None, **cases)
        return judge_and_show(submission, plan, invocation)

    _end(judge, submission, watch)


def _end(judge: Callable[[], int], submission: Path, watch: bool) -> NoReturn:
    """Ends with the exit code of a judgement, or of the last of several."""
    if not watch:
        sys.exit(judge())
    from nvfp4.cli.judging.watch import repeatedly

    sys.exit(repeatedly(judge, submission))


@main.command("eval", epilog="nvfp4 eval mine.py\nnvfp4 eval mine.py --json --output verdict.json")
@parameters.submission_argument
@parameters.stop_option
@parameters.watch_option
@parameters.kept_judging_options
def eval_command(submission: Path, stop_early: bool, watch: bool, **options: Any) -> None:
    """Judges SUBMISSION: the contest's tests, full-range tests, then the benchmarks.

    Exit code 0: it passed; 1: it failed; 2: nothing was judged; 3: unclear.
    """
    _judge(submission, options, stop_early=stop_early, watch=watch)


@main.command(
    epilog="nvfp4 bench mine.py\nnvfp4 bench mine.py --shape 7168,16384,1 --shape 512,4096,2"
)
@parameters.submission_argument
@parameters.cases_option("time")
@parameters.kept_judging_options
def bench(submission: Path, cases: tuple[str, ...], **options: Any) -> None:
    """Times SUBMISSION: statistics, bandwidth, percent of the floor, geometric mean.

    Every call sees new contents and every output is checked.
    """
    _judge(submission, options, lambda its: {"benchmarks": its.chosen(cases, its.benchmarks)})


@main.command(epilog="nvfp4 test mine.py\nnvfp4 test mine.py --device cpu --strict")
@parameters.submission_argument
@parameters.stop_option
@parameters.cases_option("test", "all tests of the problem", "test")
@parameters.watch_option
@parameters.kept_judging_options
def test(
    submission: Path, stop_early: bool, cases: tuple[str, ...], watch: bool, **options: Any
) -> None:
    """Tests SUBMISSION on the contest's inputs and on full-range ones; times nothing."""
    _judge(
        submission, options, lambda its: {"tests": its.chosen(cases, its.tests)}, stop_early, watch
    )


@main.command(
    epilog="nvfp4 batch kernels mine.py\nnvfp4 batch kernels --jsonl verdicts.jsonl --stop --resume"
)
@click.argument("names", nargs=-1, required=True, type=click.Path(path_type=Path))
@parameters.batch_options
@parameters.judgement_options
def batch(names: tuple[Path, ...], **options: Any) -> None:
    """Judges files and all *.py of folders, equal ones once, as `eval` does.

    A GPU times one at a time; without a GPU, as many run as cores and memory allow. Exit code
    0: all passed; 1: some failed; 130: interrupted, and what was judged is kept.
    """
    from nvfp4.cli.batch.command import batch_and_show
    from nvfp4.cli.batch.eval_process import BatchOptions

    sys.exit(batch_and_show(names, BatchOptions.of(options)))


@main.command(epilog="nvfp4 check mine.py\nnvfp4 check mine.py --shape 384,640,2 --watch")
@parameters.submission_argument
@click.option(
    "--case",
    "--shape",
    "case",
    metavar="CASE",
    help="The case that decides: the number of a test from 0, name=value,..., or sizes such as "
    "512,512,2. Default: the cheapest test.",
)
@parameters.watch_option
@parameters.judging_options
def check(submission: Path, case: str | None, watch: bool, **options: Any) -> None:
    """Checks SUBMISSION in seconds: parses, imports and compiles it, then tests one shape.

    A shape of the contest with its inputs decides. Full-range inputs and, unless a case is named,
    an awkward shape, 384 x 640 x 2, are a second look, which only warns.
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
@parameters.output_option("The file to write.", "submission.py")
@parameters.flag("Overwrite the file if there is one.", "--force")
@parameters.problem_option
def new(kind: str | None, rung: str | None, output: Path, force: bool, problem: str) -> None:
    """Writes a small commented submission that passes every test, to start from.

    KIND is torch unless given. With --problem it is that problem's own template or starter.
    """
    from nvfp4.cli.new import problem_text, rung_text, template_text, write
    from nvfp4.cli.problem import find_problem

    found = find_problem(problem)
    if not found.is_bundled:
        if kind or rung:
            raise click.UsageError(f"KIND and --from do not go with the problem {found.name}.")
        text = problem_text(found)
    elif rung is None:
        text = template_text(kind or "torch")
    elif kind is None:
        text = rung_text(rung)
    else:
        raise click.UsageError("KIND and --from exclude each other.")
    write(text, output, force)
    click.echo(visible(f"wrote {output}; next: nvfp4 check {shlex.quote(str(output))}"))


@main.command(
    epilog="nvfp4 explain mine.py\nnvfp4 explain mine.py --shape 7168x2048x4 --top 3 --ptx"
)
@parameters.submission_argument
@parameters.cases_option("explain", "the first of the problem's benchmarks")
@parameters.explain_options
def explain(submission: Path, cases: tuple[str, ...], **options: Any) -> None:
    """Shows what each line of SUBMISSION costs, and what to change in the costliest.

    One call of a shape is emulated, of a large grid a sample of its thread blocks; nothing is
    judged or timed. Exit code 1: the call failed; 3: it uses what is not emulated.
    """
    from nvfp4.cli.explain.command import explain_and_show
    from nvfp4.cli.explain.listing import Shown
    from nvfp4.records.options import Options

    as_json = options.pop("as_json")
    shown = Shown(**{name: options.pop(name) for name in ("top", "ptx", "sass")})
    sys.exit(explain_and_show(submission, cases, Options(**options), shown, as_json))


@main.command(epilog="nvfp4 info\nnvfp4 info --device cpu --json")
@parameters.device_option("Which device to describe.")
@parameters.flush_option
@parameters.json_option
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
@parameters.flag("Judge a few that stand for the rest, without benchmarks, in a minute.", "--quick")
@parameters.flag("List them, judge nothing.", "--list", "list_only")
@parameters.device_option()
@parameters.flush_option
@parameters.json_option
def selftest(
    names: tuple[str, ...], quick: bool, list_only: bool, device: str, flush: str, as_json: bool
) -> None:
    """Judges honest submissions, which must pass, and cheats, which must be caught.

    NAMES picks submissions of the corpus. Without names all of it is judged, or a few with --quick.
    Exit 1 if the judge was fooled, or failed an honest submission.
    """
    if list_only and as_json:
        raise click.UsageError("--list and --json exclude each other.")
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
    sys.exit(exits.passed if show_findings(new_console(), findings, as_json) else exits.failed)


@main.command(epilog="nvfp4 tune mine.py --shape 7168,16384,1\nnvfp4 tune mine.py --model B200")
@parameters.submission_argument
@parameters.cases_option("tune for")
@parameters.device_option("auto, cuda or cuda:N.")
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


@main.command(epilog="nvfp4 compare old.py new.py\nnvfp4 compare a.py b.py c.py --rounds 20")
@click.argument(
    "files", metavar="FILE FILE ...", nargs=-1, type=click.Path(dir_okay=False, path_type=Path)
)
@parameters.setting(
    "In each, a fresh process of every file is timed. More rounds show smaller differences.",
    8,
    click.IntRange(3, 10_000),
    "--rounds",
    metavar="N",
)
@parameters.problem_option
@parameters.device_option()
@parameters.flush_option
@parameters.model_option
@parameters.timeout_option("Seconds for the tests of a file, and for a round.")
@parameters.json_option
def compare(files: tuple[Path, ...], rounds: int, **options: Any) -> None:
    """Says whether other submissions are faster than the first. Needs scipy on a GPU.

    All are tested first, then processes of each take turns with the GPU. Without one their counts
    are shown side by side, and the times that a model predicts, which decide nothing. Exit code 0:
    none is slower; 1: one is slower, or wrong; 3: unclear.
    """
    if not 2 <= len(files) <= most_compared:
        raise click.UsageError(f"Name two files, or up to {most_compared}.")
    from nvfp4.cli.compare.comparing import compare_and_show
    from nvfp4.cli.invocation import Invocation

    sys.exit(compare_and_show(files, rounds, Invocation.of(options)))


@main.command(epilog="nvfp4 log\nnvfp4 log -n 5 --json")
@parameters.setting(
    "How many to show.", 20, click.IntRange(1, 2**31), "-n", "--number", "most", metavar="N"
)
@parameters.json_option
def log(most: int, as_json: bool) -> None:
    """Lists what eval, test and bench have judged, the newest first.

    They keep each verdict with the submission's text, unless they have --no-log or NVFP4_NO_LOG=1
    is set.
    """
    from nvfp4.cli.history.database import History
    from nvfp4.cli.history.judgements import show_log

    show_log(History(), most, as_json)


@main.command(epilog="nvfp4 problems\nnvfp4 problems add ~/reference-kernels")
@click.argument("action", metavar="[add]", type=click.Choice(["add"]), required=False)
@click.argument("folder", metavar="[FOLDER]", required=False)
@parameters.json_option
def problems(action: str | None, folder: str | None, as_json: bool) -> None:
    """Lists the problems that are known, or adds every one below FOLDER.

    From then on a file that says #!POPCORN leaderboard NAME is judged by that problem.
    """
    from nvfp4.cli.problems import add_and_show, show_problems

    if action is None:
        show_problems(as_json)
    elif not folder:
        raise click.UsageError("Name the folder to add, such as a checkout of reference-kernels.")
    else:
        add_and_show(Path(folder))


@main.command(epilog="nvfp4 show\nnvfp4 show 12 --source > mine.py")
@click.argument("number", metavar="[ID]", required=False, type=click.IntRange(0))
@parameters.flag("Print the submission's text, byte for byte.", "--source")
@parameters.flag("Print the verdict's JSON object.", "--json", "as_json")
def show(number: int | None, source: bool, as_json: bool) -> None:
    """Shows a judgement again, the newest unless ID names another; nvfp4 log lists them."""
    if source and as_json:
        raise click.UsageError("--source and --json exclude each other.")
    from nvfp4.cli.history.database import History
    from nvfp4.cli.history.judgements import show_record, show_source

    record = History().newest() if number is None else History().find(number)
    if source:
        show_source(record)
    elif as_json:
        click.echo(json.dumps(record.verdict_object, indent=2))
    else:
        show_record(record)


@main.command(epilog="nvfp4 report mine.py\nnvfp4 report 12 15 other.py -o both.html")
@click.argument("named", metavar="[ID|FILE]...", nargs=-1)
@parameters.output_option("The file to write.", "report.html")
@parameters.problem_option
@parameters.device_option("Where to judge a FILE.")
@parameters.flush_option
@click.option(
    "--cost/--no-cost",
    default=True,
    help="Emulate a call of each submission that passed, to show what its lines cost.",
)
@parameters.log_option
def report(named: tuple[str, ...], output: Path, cost: bool, kept: bool, **options: Any) -> None:
    """Writes judgements as one HTML file that opens without a network.

    ID names a judgement of nvfp4 log, the newest without. A FILE is judged first, as by eval,
    unless its contents have been. Several are compared at the top.
    """
    from nvfp4.cli.invocation import Invocation
    from nvfp4.cli.report.page import write_report
    from nvfp4.records.options import Options

    size = write_report(named, Invocation(Options(**options), output=output, kept=kept), cost)
    shown = f"{size / 1e6:.1f} MB" if size > 1e6 else f"{size / 1e3:.0f} kB"
    click.echo(visible(f"wrote {output}, {shown}"))
