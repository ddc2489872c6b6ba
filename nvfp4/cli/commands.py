"""The commands of comparisons and of the history. Heavy libraries stay out of them."""

import sys
from pathlib import Path
from typing import Any

import click

from nvfp4.cli.group import Command
from nvfp4.cli.parameters import (
    DeviceType,
    flush_option,
    json_option,
    log_option,
    model_option,
    problem_option,
    timeout_option,
)

most_files = 26


@click.command(
    cls=Command, epilog="nvfp4 compare old.py new.py\nnvfp4 compare a.py b.py c.py --rounds 20"
)
@click.argument(
    "files", metavar="FILE FILE ...", nargs=-1, type=click.Path(dir_okay=False, path_type=Path)
)
@click.option(
    "--rounds",
    default=8,
    show_default=True,
    metavar="N",
    type=click.IntRange(3, 10_000),
    help="In each a fresh process of every file is timed. More rounds tell less apart.",
)
@problem_option
@click.option("--device", default="auto", type=DeviceType(), help="Where to judge.")
@flush_option
@model_option
@timeout_option("Seconds for the tests of a file, and for a round.")
@json_option
def compare(files: tuple[Path, ...], rounds: int, **options: Any) -> None:
    """Says whether other submissions are faster than the first. Needs scipy on a GPU.

    All are tested first, then processes of each take turns with the GPU. Without one their counts
    are shown side by side, and the times that a model predicts, which decide nothing. Exit code 0:
    none is slower; 1: one is slower, or wrong; 3: unclear.
    """
    if not 2 <= len(files) <= most_files:
        raise click.UsageError(f"Name two files, or up to {most_files}.")
    from nvfp4.cli.compare.comparing import compare_and_show
    from nvfp4.cli.invocation import Invocation

    sys.exit(compare_and_show(files, rounds, Invocation.of(options)))


@click.command(cls=Command, epilog="nvfp4 log\nnvfp4 log -n 5 --file mine.py")
@click.option(
    "-n",
    "--number",
    "most",
    default=20,
    show_default=True,
    metavar="N",
    type=click.IntRange(1),
    help="How many to show.",
)
@click.option("--file", metavar="NAME", help="Only judgements of a file of this name or path.")
@json_option
def log(most: int, file: str | None, as_json: bool) -> None:
    """Lists what eval, test and bench have judged, the newest first.

    They keep each verdict with the submission's text, unless they have --no-log or NVFP4_NO_LOG=1
    is set.
    """
    from nvfp4.cli.history.database import History
    from nvfp4.cli.history.judgements import show_log

    show_log(History(), most, file, as_json)


@click.command(cls=Command, epilog="nvfp4 problems\nnvfp4 problems add ~/reference-kernels")
@click.argument("action", metavar="[add", type=click.Choice(["add"]), required=False)
@click.argument("folder", metavar="FOLDER]", type=click.Path(path_type=Path), required=False)
@json_option
def problems(action: str | None, folder: Path | None, as_json: bool) -> None:
    """Lists the problems that are known, or adds every one below FOLDER.

    From then on a file that says #!POPCORN leaderboard NAME is judged by that problem.
    """
    from nvfp4.cli.problems import add_and_show, show_problems

    if action is None:
        show_problems(as_json)
    elif folder is None:
        raise click.UsageError("Name the folder to add, such as a checkout of reference-kernels.")
    else:
        add_and_show(folder)


@click.command(cls=Command, epilog="nvfp4 show\nnvfp4 show 12 --source > mine.py")
@click.argument("number", metavar="[ID]", required=False, type=click.IntRange(0))
@click.option("--source", is_flag=True, help="Print the submission's text, byte for byte.")
@click.option("--json", "as_json", is_flag=True, help="Print the verdict's JSON object.")
def show(number: int | None, source: bool, as_json: bool) -> None:
    """Shows a judgement again, the newest unless ID names another; nvfp4 log lists them."""
    if source and as_json:
        raise click.UsageError("--source and --json exclude each other.")
    import json

    from nvfp4.cli.history.database import History
    from nvfp4.cli.history.judgements import chosen_record, show_record, show_source

    record = chosen_record(History(), number)
    if source:
        show_source(record)
    elif as_json:
        click.echo(json.dumps(record.verdict_object, indent=2))
    else:
        show_record(record)


@click.command(cls=Command, epilog="nvfp4 report mine.py\nnvfp4 report 12 15 other.py -o both.html")
@click.argument("named", metavar="[ID|FILE]...", nargs=-1)
@click.option(
    "-o",
    "--output",
    default="report.html",
    show_default=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write.",
)
@click.option("--device", default="auto", type=DeviceType(), help="Where to judge a FILE.")
@flush_option
@click.option(
    "--cost/--no-cost",
    default=True,
    help="Emulate a call of each submission that passed, for what its lines cost.",
)
@log_option
def report(
    named: tuple[str, ...], output: Path, device: str, flush: str, cost: bool, kept: bool
) -> None:
    """Writes judgements as one HTML file that opens without a network; its plots need matplotlib.

    ID names a judgement of nvfp4 log, the newest without. A FILE is judged first, as by eval,
    unless its contents have been. Several are compared at the top.
    """
    from nvfp4.cli.invocation import Invocation
    from nvfp4.cli.report.page import write_report
    from nvfp4.cli.text import visible
    from nvfp4.records.options import Options

    chosen = Options(device=device, flush=flush)
    size = write_report(named, Invocation(chosen, output=output, kept=kept), cost)
    shown = f"{size / 1e6:.1f} MB" if size > 1e6 else f"{size / 1e3:.0f} kB"
    click.echo(visible(f"wrote {output}, {shown}"))
