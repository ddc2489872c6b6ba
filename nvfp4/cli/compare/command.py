"""The command. Heavy libraries stay out, so that help answers at once."""

import sys
from pathlib import Path
from typing import Any

import click

from nvfp4.cli.group import Command
from nvfp4.cli.parameters import (
    DeviceType,
    flush_option,
    json_option,
    model_option,
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
