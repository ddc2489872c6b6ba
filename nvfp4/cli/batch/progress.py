"""How a batch is shown: a line for each file, figures below or between them, and a summary."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.text import Text

from nvfp4.cli.b200 import bound_note, bound_us, predicted_note, predicted_text
from nvfp4.cli.batch.lines import Line, failure_of, is_unclear
from nvfp4.cli.display.benchmark_tables import status_text
from nvfp4.cli.display.console import Column, say, show_table
from nvfp4.cli.display.progress import live_lines
from nvfp4.cli.problem import leaderboard
from nvfp4.cli.text import microseconds, one_line, percent, seconds, several, visible
from nvfp4.cli.verdict import by_what, ranked

_best = 10


class Tally:
    """Counts of the lines so far."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.passed = self.unclear = 0
        self.causes: Counter[str] = Counter()
        """Failed files by the code of the cause."""
        self.first: dict[str, str] = {}
        """The first file with each code."""
        self.timed: list[tuple[float, Line]] = []
        """The times that the leaderboard ranks by, in microseconds."""
        self.bounded: list[tuple[float, Line]] = []
        """The least times on a B200 of emulated benchmarks."""
        self.judged = self.wanted = 0
        """Number of contents judged since the batch began."""
        self.gpus: str | None = None
        """A sentence on how the GPUs spent the time."""
        self.started = time.monotonic()

    def begin(self, wanted: int) -> None:
        """Start the count and the clock for ``wanted`` contents."""
        self.wanted = wanted
        self.started = time.monotonic()

    def add(self, line: Line) -> None:
        """Count a line."""
        failure = failure_of(line)
        if failure is None:
            self.passed += 1
            device, ranked_us = line["device"], line["score"]["ranked_us"]
            if device and device["kind"] == "cuda" and ranked_us is not None:
                self.timed.append((ranked_us, line))
            bounds = [bound_us([each.get("emulation")]) for each in line.get("benchmarks", [])]
            bound = ranked(bounds, line["score"]["ranking_by"])
            if bound is not None:
                self.bounded.append((bound, line))
        elif is_unclear(line):
            self.unclear += 1
        else:
            self.causes[failure[0]] += 1
            self.first.setdefault(failure[0], _path(line))

    @property
    def failed(self) -> int:
        """The number of files that are wrong or cannot be judged at all."""
        return self.causes.total()

    @property
    def done(self) -> int:
        """How many files have a line."""
        return self.passed + self.unclear + self.failed

    @property
    def elapsed_s(self) -> float:
        """Since the batch began."""
        return time.monotonic() - self.started


@contextmanager
def shown(console: Console, tally: Tally) -> Iterator[Callable[[Line], None]]:
    """Yield a function that shows each new line. On a terminal, the batch's figures stay below the
    lines."""
    with live_lines(console, lambda: list(figures(tally))):
        yield lambda line: say(console, result_line(line))


def result_line(line: Line) -> Text:
    """Return a judged file as one line."""
    failure = failure_of(line)
    status = "unclear" if is_unclear(line) else "fail" if failure else "pass"
    text = Text.assemble(status_text(status), "  ")
    text.append(one_line(_path(line)))
    if failure:
        code, message = failure
        text.append(f"  {code}: {visible(message.partition(chr(10))[0])}")
    elif line["score"]["ranked_us"] is not None:
        text.append(f"  {microseconds(line['score']['ranked_us'])} us{_by_what(line)}")
    elif (us := _predicted(line)[0]) is not None:
        text.append(f"  {us:.1f} us predicted for a {_predicted(line)[1]}{_by_what(line)}")
    if line.get("problem", leaderboard) != leaderboard:
        text.append(f"  by {one_line(line['problem'])}")
    if _is_unverified(line):
        text.append("  unverified", style="yellow")
    if any(each["code"] == "full_range" for each in line.get("warnings", [])):
        text.append("  not right on full-range inputs", style="yellow")
    if line["same_as"]:
        text.append(f"  same as {one_line(line['same_as'])}", style="dim")
    elif line["elapsed_s"] is not None:
        text.append(f"  in {seconds(line['elapsed_s'])}", style="dim")
    return text


def _is_unverified(line: Line) -> bool:
    cases = [*line.get("tests", []), *line.get("benchmarks", [])]
    return any(each.get("unverified") for each in cases)


def _path(line: Line) -> str:
    return str(line["submission"]["path"])


def _predicted(line: Line) -> tuple[float | None, str | None]:
    """Return the predicted time that the leaderboard ranks by, in microseconds, and its GPU."""
    predicted = line["score"].get("predicted") or {}
    return predicted.get("us"), predicted.get("gpu")


def _floor_us(line: Line) -> float | None:
    """Return the floor of the time that the leaderboard ranks by, in microseconds."""
    return ranked([each["floor_us"] for each in line["benchmarks"]], line["score"]["ranking_by"])


def _by_what(*lines: Line) -> str:
    return by_what(*(line["score"]["ranking_by"] for line in lines))


def figures(tally: Tally) -> Iterator[Text]:
    """Counts, rate and time left in a line; causes; the best so far."""
    counts = f"{tally.done} of {several(tally.total, 'file')}: {_outcomes(tally)}"
    if tally.judged:
        rate_s = tally.elapsed_s / tally.judged
        left_s = rate_s * (tally.wanted - tally.judged)
        counts += f"; {60 / max(rate_s, 1e-9):.1f} a minute, {seconds(left_s)} left"
    yield Text(counts)
    if tally.causes:
        yield Text("failed: " + ", ".join(f"{n} {code}" for code, n in tally.causes.most_common()))
    if tally.timed:
        time_us, line = min(tally.timed, key=lambda each: each[0])
        yield Text(f"best{_by_what(line)}: {microseconds(time_us)} us, {one_line(_path(line))}")


def _outcomes(tally: Tally) -> str:
    unclear = f", {tally.unclear} unclear" if tally.unclear else ""
    return f"{tally.passed} passed, {tally.failed} failed{unclear}"


def summarise(console: Console, tally: Tally, out: Path | None, stopped: bool) -> None:
    """Show the best files, the failed files by cause, and a closing sentence."""
    best = _least(tally.timed)
    if best:
        floors = [percent(_floor_us(line), us) for us, line in best]
        how = _by_what(*(line for _, line in best))
        names = [line["device"]["name"] for _, line in best]
        columns = [
            *_ranked(best),
            Column("us" if how else "geomean us", [microseconds(us) for us, _ in best]),
            Column("of floor", floors, 1),
            Column("GPU", names if len(set(names)) > 1 else [""] * len(best), 3, right=False),
        ]
        _show(console, f"The fastest{how}", columns)
    least = sorted(tally.bounded, key=_by_prediction)[:_best]
    if least:
        predicted = [predicted_text(*_predicted(line)) for _, line in least]
        columns = [
            *_ranked(least),
            Column("B200 pred. us", predicted, note=predicted_note),
            Column("B200 >= us", [microseconds(us) for us, _ in least], 1, note=bound_note),
        ]
        how = _by_what(*(line for _, line in least))
        _show(console, f"The least predicted times{how}", columns)
    if tally.causes:
        causes = tally.causes.most_common()
        columns = [
            Column("failed by", [code for code, _ in causes], right=False),
            Column("files", [str(count) for _, count in causes]),
            Column("such as", [one_line(tally.first[code]) for code, _ in causes], 1, right=False),
        ]
        _show(console, "Failures", columns)
    if tally.gpus:
        say(console, tally.gpus, "dim")
    counts = f"{_outcomes(tally)}, in {seconds(tally.elapsed_s)}"
    named = f": {one_line(str(out))}" if out else ""
    if stopped:
        left = several(tally.total - tally.done, "file") + " left"
        left += f", which --resume judges{named}" if out else ""
        say(console, f"interrupted: {counts}; {left}", "bold yellow")
        return
    style = "bold red" if tally.failed else "bold yellow" if tally.unclear else "bold green"
    say(console, f"{several(tally.total, 'file')}: {counts}{named}", style)


def _least(lines: list[tuple[float, Line]]) -> list[tuple[float, Line]]:
    return sorted(lines, key=lambda each: (each[0], _path(each[1])))[:_best]


def _by_prediction(bounded: tuple[float, Line]) -> tuple[float, float, str]:
    """Order by predicted times, then by bounds, which most right files share."""
    least_us, line = bounded
    return _predicted(line)[0] or math.inf, least_us, _path(line)


def _ranked(lines: list[tuple[float, Line]]) -> list[Column]:
    mixed = len({line.get("problem") for _, line in lines}) > 1
    names = [
        one_line(_path(line))
        + f" ({one_line(str(line.get('problem')))})" * mixed
        + " (unverified)" * _is_unverified(line)
        for _, line in lines
    ]
    return [
        Column("#", [str(number) for number in range(1, len(lines) + 1)], 2),
        Column("file", names, right=False),
    ]


def _show(console: Console, heading: str, columns: list[Column]) -> None:
    show_table(console, heading, columns)
    say(console)
