"""Search a submission's declared space on the present GPU, by the judge's timer.

    nvfp4 tune                                             the contest's three shapes
    python scripts/kernel_tune.py --shape 4096,4096,1 --calls 100
    python scripts/kernel_tune.py --state tune.json        goes on where an earlier run stopped
    python scripts/kernel_tune.py --write                  puts the fastest into the submission

A submission declares its space by `configurations(m, k, l, capability)`, a list of dataclass
instances, runs one of them by `gemv(data, configuration)` and keeps the tuned ones in `tables`,
{least capability: {(m, k, l): configuration}}. Candidates take turns on a cold L2 cache; those that
are surely slower are dropped early; a wrong one is never ranked. Nothing is written without
--write. Exit 0: ranked. 1: no configuration is right. 2: the search could not begin.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from nvfp4.tuner.errors import Shape, TuneError
from nvfp4.tuner.search import Estimate, Search
from nvfp4.tuner.state import State, write_whole
from nvfp4.tuner.table import fingerprint, with_entry

contest_shapes: list[Shape] = [(7168, 16384, 1), (4096, 7168, 8), (7168, 2048, 4)]
required = ("configurations", "gemv", "tables")


class Bench(Protocol):
    """Where candidates are tried: a GPU, see ``nvfp4.tuner.bench``."""

    name: str
    capability: int

    def load(self, submission: pathlib.Path) -> Any:
        """The submission as a module."""

    def open(self, submission: Any, shape: Shape) -> None:
        """Makes inputs for the calls that follow."""

    def refusal(self, configuration: Any) -> str | None:
        """Why a configuration is not in the ranking; None if its result is right."""

    def time_us(self, configuration: Any) -> float:
        """One timed call."""


def name_of(configuration: Any) -> str:
    """The fields of a configuration in order, as the ranking and the state show them."""
    return "/".join(map(str, dataclasses.astuple(configuration)))


def right_ones(bench: Bench, shape: Shape, space: list[Any], say: Callable[..., None]) -> list[Any]:
    """The configurations that compile and give the right product."""
    found = []
    for number, configuration in enumerate(space, 1):
        say(f"{shape} compiling and checking {number} of {len(space)}", passing=True)
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
    state: State,
    calls: int,
    say: Callable[..., None],
) -> tuple[list[Estimate], dict[str, Any]]:
    """The ranking of one shape's space, empty if nothing of it is right, and what its names mean.

    The state is saved after each round, and when the search is interrupted.
    """
    space = list(submission.configurations(*shape, bench.capability))
    bench.open(submission, shape)
    by_name = {name_of(each): each for each in right_ones(bench, shape, space, say)}
    if not by_name:
        return [], {}

    def progress(done: int, alive: list[str], times: Mapping[str, list[float]]) -> None:
        say(f"{shape} {done} calls each, {len(alive)} of {len(by_name)} left")
        state.save()

    times = state.times(shape)
    search = Search(lambda name: bench.time_us(by_name[name]), calls=calls, times=times)
    try:
        ranking = search.run(by_name, progress)
    finally:
        state.save()
    return [each for each in ranking if each.candidate in by_name], by_name


def lines_of(ranking: list[Estimate], top: int) -> list[str]:
    """The ranking as a table: times in microseconds, the relation to the best last."""
    if not ranking:
        return []
    best = ranking[0]
    width = max(len("configuration"), *(len(each.candidate) for each in ranking[:top]))
    heads = ("mean", "median", "95 % of the median", "calls", "to the best")
    lines = [
        f"  {'configuration':{width}}  {heads[0]:>9}  {heads[1]:>9}  {heads[2]:>22}  "
        f"{heads[3]:>5}  {heads[4]}"
    ]
    for each in ranking[:top]:
        interval = f"[{each.low_us:.2f}, {each.high_us:.2f}]"
        tied = " not told apart" if each is not best and each.low_us <= best.high_us else ""
        lines.append(
            f"  {each.candidate:{width}}  {each.mean_us:9.2f}  {each.median_us:9.2f}  "
            f"{interval:>22}  {each.calls:5}  x {each.median_us / best.median_us:.3f}{tied}"
        )
    return lines


def speaker() -> Callable[..., None]:
    """Prints lines; passing ones replace each other on a terminal and are rare elsewhere."""
    live = sys.stdout.isatty()
    state = {"open": False, "passed": 0}

    def say(text: str, passing: bool = False) -> None:
        if passing and live:
            print(f"\r{text}\033[K", end="", flush=True)
            state["open"] = True
            return
        state["passed"] = state["passed"] + 1 if passing else 0
        if passing and state["passed"] % 25 != 1:
            return
        print("\n" + text if state["open"] else text, flush=True)
        state["open"] = False

    return say


def table_for(submission: Any, path: pathlib.Path, capability: int) -> int:
    """The key of the table that a device of this capability uses. Raises TuneError."""
    missing = [name for name in required if not hasattr(submission, name)]
    if missing:
        raise TuneError(
            f"{path} declares no search space: it has no {', '.join(f'`{m}`' for m in missing)}",
            "Define configurations(m, k, l, capability), gemv(data, configuration) and tables.",
        )
    keys = [key for key in submission.tables if key <= capability]
    if not keys:
        raise TuneError(
            f"the tables of {path} have none for sm_{capability}", "Add one, even if it is empty."
        )
    return max(keys)


def search_all(arguments: argparse.Namespace, bench: Bench) -> int:
    """The exit code after every shape. Raises TuneError."""
    path: pathlib.Path = arguments.submission
    submission = bench.load(path)
    table = table_for(submission, path, bench.capability)
    source = path.read_text(encoding="utf-8")
    if arguments.write:
        _check_writable(path, source, table, arguments.shape)
    state = State(arguments.state, bench.name, fingerprint(source))
    say = speaker()
    wrong = []
    for shape in arguments.shape:
        ranking, by_name = tune(bench, submission, shape, state, arguments.calls, say)
        if not ranking:
            say(f"{shape}: no configuration is right")
            wrong.append(shape)
            continue
        say(f"{shape} on {bench.name}, times in us")
        for line in lines_of(ranking, arguments.top):
            say(line)
        if arguments.write:
            best = by_name[ranking[0].candidate]
            changed = with_entry(path.read_text(encoding="utf-8"), table, shape, best)
            write_whole(path, changed)
            say(f"  {ranking[0].candidate} written to {path}")
    return 1 if wrong else 0


def _check_writable(path: pathlib.Path, source: str, table: int, shapes: list[Shape]) -> None:
    """Finds out before the search that the table cannot be written."""
    try:
        for shape in shapes:
            with_entry(source, table, shape, None)
        path.open("a").close()
    except (ValueError, OSError) as error:
        raise TuneError(f"{path} cannot be written to: {error}", "Tune without --write.") from None


def shape_of(text: str) -> Shape:
    """M,K,L as three numbers. Raises ValueError."""
    m, k, l = (int(part) for part in text.split(","))
    if m < 1 or l < 1 or k < 64 or k % 64:
        raise ValueError
    return m, k, l


def main(arguments: list[str] | None = None, bench: Bench | None = None) -> int:
    """Runs the search; bench: where, by default on the present GPU."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("submission", nargs="?", type=pathlib.Path, default=root / "submission.py")
    parser.add_argument("--shape", action="append", type=shape_of, help="m,k,l; the contest's")
    parser.add_argument("--calls", type=int, default=50, help="timed calls of a contender")
    parser.add_argument("--state", type=pathlib.Path, help="JSON file to keep timings in")
    parser.add_argument("--write", action="store_true", help="change the submission's table")
    parser.add_argument("--top", type=int, default=8, help="lines printed a shape")
    parsed = parser.parse_args(arguments)
    parsed.shape = list(dict.fromkeys(parsed.shape or contest_shapes))
    try:
        if not parsed.submission.is_file():
            raise TuneError(f"there is no file {parsed.submission}", "Name the submission to tune.")
        if bench is None:
            from nvfp4.tuner.bench import present_gpu

            bench = present_gpu()
        return search_all(parsed, bench)
    except TuneError as error:
        print(f"error: {error}\nhint: {error.hint}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        kept = f"; --state {parsed.state} goes on from here" if parsed.state else ""
        print(f"\nstopped{kept}", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
