"""Arguments and options of the commands."""

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from nvfp4.records.prediction import GPUS

F = TypeVar("F", bound=Callable[..., Any])


class SecondsType(click.FloatRange):
    """A number of seconds between two bounds; not nan or inf."""

    name = "seconds"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        seconds = float(super().convert(value, param, ctx))
        if not math.isfinite(seconds):
            self.fail(f"{value} is not a number of seconds", param, ctx)
        return seconds


class DeviceType(click.ParamType):
    """auto, cpu, emulate, cuda or cuda:N."""

    name = "auto|cpu|emulate|cuda|cuda:N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not re.fullmatch(r"auto|cpu|emulate|cuda(:\d{1,4})?", value):
            self.fail(f"{value!r} is not auto, cpu, emulate, cuda or cuda:N", param, ctx)
        return value


def _all(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Several decorators as one, in the order in which --help lists them."""

    def decorated(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorated


def flag(meaning: str, *names: str) -> Callable[[F], F]:
    """An option without a value."""
    return click.option(*names, is_flag=True, help=meaning)


def setting(meaning: str, default: Any, kind: Any, *names: str, **more: Any) -> Callable[[F], F]:
    """An option with a value, whose default --help shows if there is one."""
    return click.option(*names, default=default, show_default=True, type=kind, help=meaning, **more)


def device_option(meaning: str = "Where to judge.") -> Callable[[F], F]:
    """--device, a GPU or none."""
    return click.option("--device", default="auto", type=DeviceType(), help=meaning)


def output_option(meaning: str, default: str | None = None) -> Callable[[F], F]:
    """-o, --output, the file to write."""
    kind: Any = click.Path(dir_okay=False, path_type=Path)
    return setting(meaning, default, kind, "-o", "--output")


def timeout_option(meaning: str) -> Callable[[F], F]:
    """--timeout, in seconds."""
    return setting(meaning, 170.0, SecondsType(1, 3600), "--timeout", "timeout_s")


def _choice(name: str, values: Sequence[str], meaning: str) -> Callable[[F], F]:
    """Return an option that takes one of some values, by default the first."""
    return setting(meaning, values[0], click.Choice(values), name)


def arch_option(meaning: str) -> Callable[[F], F]:
    """--arch, what a kernel is compiled for and emulated as."""
    return _choice("--arch", ["sm_100a", "sm_90a"], meaning)


json_option = flag("Print a JSON object, nothing else.", "--json", "as_json")
"""--json."""

submission_argument = click.argument(
    "submission", default="submission.py", type=click.Path(path_type=Path)
)
"""SUBMISSION, submission.py unless named."""

watch_option = flag("Judge again whenever SUBMISSION changes, until Ctrl-C.", "--watch")
"""--watch."""


def cases_option(
    purpose: str, default: str = "the problem's benchmarks", kind: str = "benchmark"
) -> Callable[[F], F]:
    """--case, which may be repeated; --shape is another name. default: the cases that are taken
    without the option. kind: test or benchmark, the list that a number counts in."""
    return click.option(
        "--case",
        "--shape",
        "cases",
        multiple=True,
        metavar="CASE",
        help=f"A case to {purpose}, may be repeated: the number of a {kind} from 0, "
        f"name=value,..., or sizes such as 7168,16384,1. Default: {default}.",
    )


problem_option = click.option(
    "--problem",
    default="",
    metavar="PROBLEM",
    help="A folder with a task.yml, or a leaderboard that nvfp4 problems lists. Default: the "
    "current folder's, the one that SUBMISSION names, or nvfp4_gemv.",
)
"""--problem, a folder or a leaderboard."""

flush_option = _choice(
    "--flush",
    ["contest", "clean"],
    "What empties the L2 cache of a GPU before a timed call. contest: as on the "
    "leaderboard, with lines that the call must write back. clean: without such lines.",
)
"""--flush contest or clean."""

model_option = _choice("--model", GPUS, "The GPU that times are predicted for where there is none.")
"""--model, the GPU that a time is predicted for."""

stop_option = flag("Stop at the first failure.", "-x", "--stop", "stop_early")
"""-x, --stop."""


judgement_options = _all(
    problem_option,
    device_option(),
    click.option(
        "--seed",
        type=click.IntRange(0, 2**62),
        help="A secret seed, combined with the seed of each case as the leaderboard does.",
    ),
    timeout_option("Seconds for the tests and for the benchmarks, each."),
    arch_option(
        "What kernels are emulated as where there is no GPU, and compiled for "
        "before they are rewritten."
    ),
    _choice(
        "--retarget",
        ["auto", "never"],
        "Rewrite kernels of --arch for the GPU that is here. auto: where they do not run "
        "on it as they are.",
    ),
    flush_option,
    click.option(
        "--check/--no-check",
        default=True,
        help="Look for findings while emulating: races, unset values, missing warp syncs.",
    ),
    flag("Let findings fail the submission.", "--strict"),
    model_option,
)
"""The options that a verdict depends on."""


judging_options = _all(
    judgement_options,
    json_option,
    output_option("Write the verdict to a file too: the JSON object, or the tables to a .txt."),
)
"""The options of every command that judges one submission."""

log_option = click.option(
    "--no-log",
    "kept",
    is_flag=True,
    callback=lambda context, parameter, given: not given,
    help="Do not keep the verdict in the history; see nvfp4 log.",
)
"""--no-log; passed on as whether the verdict is kept."""

kept_judging_options = _all(log_option, judging_options)


batch_options = _all(
    click.option(
        "--jsonl",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="OUT",
        help="Append a JSON object for each file to OUT, a line each. Default: the history keeps "
        "the verdicts.",
    ),
    flag("Go on from the lines of OUT: judge files that have none.", "--resume"),
    stop_option,
    click.option("--limit-s", type=SecondsType(1, 86400), help="Seconds for each file."),
    click.option(
        "--jobs",
        type=click.IntRange(1, 4096),
        metavar="N",
        help="Judge N files at once where there is no GPU. Default: as cores and memory allow.",
    ),
    click.option("--ray", metavar="ADDRESS", help="Judge on a Ray cluster: auto, or its address."),
)
"""The options of `batch`, but for those that a verdict depends on."""


explain_options = _all(
    problem_option,
    arch_option("What kernels are emulated as."),
    model_option,
    setting("How many lines get a sentence.", 5, click.IntRange(1, 100), "--top"),
    flag("Show the PTX of each line, with counts.", "--ptx"),
    flag("Show the machine code of each line.", "--sass"),
    timeout_option("Seconds for all shapes."),
    json_option,
)
"""The options of `explain`, but for shapes."""
