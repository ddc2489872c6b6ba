"""The command. Heavy libraries stay out, so that help answers at once."""

from __future__ import annotations

import sys
from typing import Any

import click

from nvfp4.cli.group import Command
from nvfp4.cli.parameters import (
    DeviceType,
    SecondsType,
    flush_option,
    json_option,
    model_option,
    timeout_option,
)


class PercentType(click.ParamType):
    """A number with a percent sign, as a share: 0.5% is 0.005."""

    name = "percent"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):
            return value
        try:
            share = float(value.removesuffix("%")) / 100
        except ValueError:
            share = 0.0
        if not value.endswith("%") or not 0 < share <= 0.5:
            self.fail(f"{value!r} is no percentage up to 50%, such as 0.5%", param, ctx)
        return share


@click.command(
    cls=Command,
    epilog="nvfp4 compare old.py new.py\nnvfp4 compare 12 mine.py --threshold 1% --limit-s 300",
)
@click.argument("named", metavar="ID|FILE ID|FILE ...", nargs=-1)
@click.option(
    "--threshold",
    default="0.5%",
    show_default=True,
    type=PercentType(),
    metavar="P%",
    help="A smaller change is none.",
)
@click.option(
    "--limit-s",
    default=90.0,
    show_default=True,
    metavar="S",
    type=SecondsType(1, 86_400),
    help="Seconds for all of it: nothing begins that would end later. Three rounds at least.",
)
@click.option(
    "--rounds",
    metavar="N",
    type=click.IntRange(3, 10_000),
    help="Exactly so many rounds, however long they take. Default: until the verdict is clear.",
)
@click.option(
    "--seed",
    metavar="N",
    type=click.IntRange(0, 2**62),
    help="Draws the order of the calls. Default: another one every time.",
)
@click.option("--device", default="auto", type=DeviceType(), help="Where to judge.")
@flush_option
@model_option
@timeout_option("Seconds for the tests of a file, and for the rounds that are timed side by side.")
@json_option
def compare(named: tuple[str, ...], **options: Any) -> None:
    """Says whether other submissions are faster than the first. Needs scipy on a GPU.

    Each is a FILE or the ID of a judgement of nvfp4 log. All are tested first, then processes of
    each take turns with the GPU. Without one their counts are shown side by side, and the times
    that a model predicts, which decide nothing. Exit code 0: none is slower; 1: one is slower, or
    wrong; 3: unclear.
    """
    from nvfp4.cli.compare.results import most_files

    if not 2 <= len(named) <= most_files:
        raise click.UsageError(f"Name two files or judgements, or up to {most_files}.")
    from nvfp4.cli.compare.comparing import CompareOptions, compare_and_show

    sys.exit(compare_and_show(named, CompareOptions(**options)))
