"""Searches a submission's space of configurations for the fastest on this GPU.

    nvfp4 tune submission.py --shape 4096,4096,1 --calls 100
    nvfp4 tune submission.py --write                  writes the fastest into the submission
    nvfp4 tune submission.py --model B200             predicts, without a GPU

`nvfp4 tune` runs this file as a process. A submission declares its space by
`configurations(m, k, l, capability)`, a list of dataclass instances, runs one of them by
`gemv(data, configuration)`, and keeps the tuned ones in `tables`. Its keys are the least
capability, or that and the least GB/s of memory for each multiprocessor; its values map (m, k, l)
to a configuration. Candidates take turns on a cold L2 cache; those that are clearly slower are
dropped early, and a wrong one is never ranked. With --model none is timed, and only the best ones
are checked; see `nvfp4.tuner.predicted`. Exit codes: 0, ranked; 1, no configuration of some shape
is right; 2, the search could not start.
"""

import argparse
import pathlib
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from nvfp4.records.files import write_whole
from nvfp4.tuner.search import Estimate, Search
from nvfp4.tuner.space import Key, Shape, TuneError, load_submission, name_of, shape_of, table_for
from nvfp4.tuner.table import Choice, with_entry

Say = Callable[..., None]

_shown = 8
"""Lines of the ranking that are printed."""


class Place(Protocol):
    """A GPU that is tuned for, or what a model knows of one. memory_gbps: of its memory for each
    multiprocessor."""

    name: str
    capability: int
    memory_gbps: float


class Bench(Place, Protocol):
    """Where candidates run: a GPU, see ``nvfp4.tuner.search``."""

    def open(self, submission: Any, shape: Shape) -> None:
        """Makes inputs for the calls that follow."""

    def refusal(self, configuration: Any) -> str | None:
        """Why a configuration cannot be ranked; None if its output is right."""

    def time_us(self, configuration: Any) -> float:
        """One timed call."""


def right_ones(bench: Bench, shape: Shape, space: list[Any], say: Say) -> list[Any]:
    """The configurations that compile and give the right output."""
    found = []
    for number, configuration in enumerate(space, 1):
        say(f"{shape} compiling and checking {number} of {len(space)}", transient=True)
        why = bench.refusal(configuration)
        if why is None:
            found.append(configuration)
        else:
            say(f"{name_of(configuration)} left out: {why}")
    return found


def tune(
    bench: Bench,
    submission: Any,
    shape: Shape,
    calls: int,
    say: Say,
) -> tuple[list[Estimate], dict[str, Any]]:
    """The ranking of one shape's configurations, empty if none is right, and the configurations
    by name.
    """
    space = list(submission.configurations(*shape, bench.capability))
    bench.open(submission, shape)
    by_name = {name_of(each): each for each in right_ones(bench, shape, space, say)}
    if not by_name:
        return [], {}

    def progress(done: int, alive: list[str], times: Mapping[str, list[float]]) -> None:
        say(f"{shape} {done} calls each, {len(alive)} of {len(by_name)} left")

    search = Search(lambda name: bench.time_us(by_name[name]), calls=calls)
    return search.run(by_name, progress), by_name


def lines_of(ranking: list[Estimate]) -> list[str]:
    """The head of the ranking as a table: times in microseconds, last the ratio to the best."""
    best, shown = ranking[0], ranking[:_shown]
    width = max(len("configuration"), *(len(each.candidate) for each in shown))
    lines = [
        f"  {'configuration':{width}}  {'mean':>9}  {'median':>9}  {'95 % of the median':>22}  "
        f"{'calls':>5}  to the best"
    ]
    for each in shown:
        interval = f"[{each.low_us:.2f}, {each.high_us:.2f}]"
        tied = " not told apart" if each is not best and each.low_us <= best.high_us else ""
        lines.append(
            f"  {each.candidate:{width}}  {each.mean_us:9.2f}  {each.median_us:9.2f}  "
            f"{interval:>22}  {each.calls:5}  x {each.median_us / best.median_us:.3f}{tied}"
        )
    return lines


def timed(
    bench: Bench, calls: int, submission: Any, table: Key, shape: Shape, say: Say
) -> Choice | None:
    """What the calls of one shape say. None if no configuration is right."""
    ranking, by_name = tune(bench, submission, shape, calls, say)
    if not ranking:
        return None
    best = ranking[0].candidate
    return Choice(lines_of(ranking), best, by_name[best])


def speaker() -> Say:
    """A function that prints lines. Transient ones replace each other on a terminal; elsewhere one
    in 25 is printed.
    """
    live = sys.stdout.isatty()
    open_line, transient_lines = False, 0

    def say(text: str, transient: bool = False) -> None:
        nonlocal open_line, transient_lines
        if transient and live:
            print(f"\r{text}\033[K", end="", flush=True)
            open_line = True
            return
        transient_lines = transient_lines + 1 if transient else 0
        if transient and transient_lines % 25 != 1:
            return
        print("\n" + text if open_line else text, flush=True)
        open_line = False

    return say


def search_all(
    arguments: argparse.Namespace,
    place: Place,
    choose: Callable[[Any, Key, Shape, Say], Choice | None],
) -> int:
    """Tune for every shape; the exit code. choose: by submission, table, shape and who prints.

    Raises TuneError."""
    path: pathlib.Path = arguments.submission
    submission = load_submission(path)
    table = table_for(submission, path, place.capability, place.memory_gbps)
    source = path.read_text(encoding="utf-8")
    if arguments.write:
        _check_writable(path, source, table, arguments.shape)
    say = speaker()
    all_ranked = True
    for shape in dict.fromkeys(arguments.shape):
        choice = choose(submission, table, shape, say)
        if choice is None:
            say(f"{shape}: no configuration is right")
            all_ranked = False
            continue
        say(f"{shape} on {place.name}, times in us")
        for line in choice.lines:
            say(line)
        if arguments.write and choice.better:
            text = path.read_text(encoding="utf-8")
            write_whole(path, with_entry(text, table, shape, choice.configuration))
            say(f"  {choice.name} written to {path}")
    return 0 if all_ranked else 1


def _check_writable(path: pathlib.Path, source: str, table: Key, shapes: list[Shape]) -> None:
    """Raises TuneError before the search if its result could not be written."""
    try:
        for shape in shapes:
            with_entry(source, table, shape, None)
        path.open("a").close()
    except (ValueError, OSError) as error:
        raise TuneError(f"{path} cannot be written to: {error}", "Tune without --write.") from None


def main(arguments: list[str] | None = None, bench: Bench | None = None) -> int:
    """Runs the search and returns the exit code; bench: where, by default on the GPU."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("submission", type=pathlib.Path)
    parser.add_argument("--shape", action="append", required=True, type=shape_of, help="m,k,l")
    parser.add_argument("--calls", type=int, default=50, help="timed calls of a contender")
    parser.add_argument("--write", action="store_true", help="change the submission's table")
    parser.add_argument("--model", help="the GPU to predict for, without one")
    parsed = parser.parse_args(arguments)
    try:
        if parsed.model:
            from nvfp4.tuner import predicted

            with predicted.ModelBench(parsed.model, parsed.submission) as model:
                return search_all(parsed, model, partial(predicted.choose, model))
        if bench is None:
            from nvfp4.tuner.search import Gpu

            bench = Gpu()
        return search_all(parsed, bench, partial(timed, bench, parsed.calls))
    except TuneError as error:
        print(f"error: {error}\nhint: {error.hint}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
