"""How a batch is shown: a live table on a terminal, a line for each file elsewhere, a summary."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.text import Text

from nvfp4.cli.b200 import bound_note, bound_us, predicted_note, predicted_text
from nvfp4.cli.batch.lines import Line, failure_of, is_unclear
from nvfp4.cli.batch.options import Busy
from nvfp4.cli.display.benchmark_tables import status_text
from nvfp4.cli.display.columns import Column, show_table, table_lines
from nvfp4.cli.display.console import say
from nvfp4.cli.display.progress import live_lines
from nvfp4.cli.text import microseconds, one_line, percent, seconds, several, visible

_best = 10
_figures_s = 30.0
_lines_below = 7
"""Heading, rule, three lines of figures, and two so that nothing scrolls."""


@contextmanager
def shown(console: Console, tally: Tally) -> Iterator[Callable[[Line], None]]:
    """What is to be told each new line."""
    if console.is_interactive:
        with live_lines(console, lambda: live_table(console, tally)):
            yield lambda line: None
    else:
        yield _lines(console, tally)


def _lines(console: Console, tally: Tally) -> Callable[[Line], None]:
    """Shows a line for each file, and every now and then one of figures."""
    said_s = time.monotonic()

    def show(line: Line) -> None:
        nonlocal said_s
        say(console, result_line(line))
        if time.monotonic() - said_s >= _figures_s and tally.done < tally.total:
            said_s = time.monotonic()
            say(console, next(figures(tally)), "dim")

    return show


def result_line(line: Line) -> Text:
    """A judged file as one line."""
    failure = failure_of(line)
    status = "unclear" if is_unclear(line) else "fail" if failure else "pass"
    text = Text.assemble(status_text(status), "  ")
    text.append(one_line(line["submission"]["path"]))
    if failure:
        code, message = failure
        text.append(f"  {code}: {visible(message.partition(chr(10))[0])}")
    elif line["score"]["geomean_us"] is not None:
        text.append(f"  {microseconds(line['score']['geomean_us'])} us")
    elif (predicted := _predicted(line)) is not None:
        text.append(f"  {predicted[0]:.1f} us predicted for a {predicted[1]}")
    if any(each.get("unverified") for each in line.get("benchmarks", [])):
        text.append("  unverified", style="yellow")
    if line["same_as"]:
        text.append(f"  same as {one_line(line['same_as'])}", style="dim")
    elif line["elapsed_s"] is not None:
        text.append(f"  in {seconds(line['elapsed_s'])}", style="dim")
    return text


def _predicted(line: Line) -> tuple[float, str] | None:
    """The geometric mean that a model predicts, in microseconds and on which GPU."""
    predicted = line["score"].get("predicted")
    return (predicted["us"], predicted["gpu"]) if predicted else None


def live_table(console: Console, tally: Tally) -> list[Text]:
    """What is judged where, as far as there is room, and what came of the others."""
    now = time.monotonic()
    rows = [(place, *each) for place, each in sorted(tally.busy.judging.items())]
    rows += [("building", *each) for each in sorted(tally.busy.building.items())]
    rows = rows[: max(1, console.height - _lines_below)]
    columns = [
        Column("where", [place for place, *_ in rows], 1, right=False),
        Column("file", [one_line(file) for _, file, _ in rows], right=False),
        Column("time", [f"{seconds(now - started):>8}" for *_, started in rows], 2),
    ]
    lines = table_lines(console, columns) if rows else []
    return [*lines, *figures(tally)]


def figures(tally: Tally) -> Iterator[Text]:
    """Counts, what is under way, rate and time left in a line; causes; the best so far."""
    counts = f"{tally.done} of {several(tally.total, 'file')}: "
    counts += _outcomes(tally)
    under_way = {"judging": len(tally.busy.judging), "building": len(tally.busy.building)}
    now = ", ".join(f"{count} {what}" for what, count in under_way.items() if count)
    counts += f"; {now}" if now else ""
    if tally.left_s is not None:
        rate = 60 * tally.judged / max(tally.elapsed_s, 1e-9)
        counts += f"; {rate:.1f} a minute, {seconds(tally.left_s)} left"
    yield Text(counts)
    if tally.causes:
        yield Text("failed: " + ", ".join(f"{n} {code}" for code, n in tally.causes.most_common()))
    if tally.timed:
        time_us, path, *_ = min(tally.timed)
        yield Text(f"best: {microseconds(time_us)} us, {one_line(path)}")


def _outcomes(tally: Tally) -> str:
    unclear = f", {tally.unclear} unclear" if tally.unclear else ""
    return f"{tally.passed} passed, {tally.failed} failed{unclear}"


def summarise(console: Console, tally: Tally, out: Path, stopped: bool) -> None:
    """The best files, the failed ones by cause, and what came of all in one sentence."""
    best = sorted(tally.timed)[:_best]
    if best:
        names = [name for *_, name, _ in best]
        columns = [
            Column("#", [str(number) for number in range(1, len(best) + 1)], 2),
            Column("file", [one_line(path) for _, path, *_ in best], right=False),
            Column("geomean us", [microseconds(time_us) for time_us, *_ in best]),
            Column("of floor", [percent(floor_us, time_us) for time_us, *_, floor_us in best], 1),
            Column("GPU", names if len(set(names)) > 1 else [""] * len(best), 3, right=False),
        ]
        show_table(console, "The fastest", columns)
        say(console)
    least = sorted(tally.bounded, key=lambda each: each[:2])[:_best]
    if least:
        predicted = [predicted_text(each) for *_, each in least]
        columns = [
            Column("#", [str(number) for number in range(1, len(least) + 1)], 2),
            Column("file", [one_line(path) for _, path, _ in least], right=False),
            Column("B200 >= us", [microseconds(bound) for bound, *_ in least], note=bound_note),
            Column("B200 pred. us", predicted, 1, note=predicted_note),
        ]
        show_table(console, "The least bounds", columns)
        say(console)
    if tally.causes:
        causes = tally.causes.most_common()
        columns = [
            Column("failed by", [code for code, _ in causes], right=False),
            Column("files", [str(count) for _, count in causes]),
            Column("such as", [one_line(tally.first[code]) for code, _ in causes], 1, right=False),
        ]
        show_table(console, "Failures", columns)
        say(console)
    counts = f"{_outcomes(tally)}, in {seconds(tally.elapsed_s)}"
    if stopped:
        left = several(tally.total - tally.done, "file")
        sentence = f"interrupted: {counts}; {left} left, which --resume judges"
        say(console, f"{sentence}: {one_line(str(out))}", "bold yellow")
        return
    style = "bold red" if tally.failed else "bold yellow" if tally.unclear else "bold green"
    say(console, f"{several(tally.total, 'file')}: {counts}: {one_line(str(out))}", style)


class Tally:
    """passed, unclear, causes: how many files passed, could not be judged whole, and failed by the
    code of the cause. first: a file for each code. timed: geometric mean in microseconds, path,
    GPU, floor in microseconds. bounded: what a B200 needs at least for emulated benchmarks, path,
    and the predicted time. busy: what is under way. judged: how many contents, of ``wanted``, since
    the batch began.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.passed = self.unclear = 0
        self.causes: Counter[str] = Counter()
        self.first: dict[str, str] = {}
        self.timed: list[tuple[float, str, str, float | None]] = []
        self.bounded: list[tuple[float, str, tuple[float, str] | None]] = []
        self.busy = Busy()
        self.judged = self.wanted = 0
        self.started = time.monotonic()

    def begin(self, wanted: int) -> None:
        """That so many contents are judged from now on."""
        self.wanted = wanted
        self.started = time.monotonic()

    def add(self, line: Line) -> None:
        """Counts a line."""
        failure = failure_of(line)
        path = line["submission"]["path"]
        if failure is None:
            self.passed += 1
            score, device = line["score"], line["device"]
            if device and device["kind"] == "cuda" and score["geomean_us"] is not None:
                name, floor_us = device["name"], score["floor_geomean_us"]
                self.timed.append((score["geomean_us"], path, name, floor_us))
            bound = bound_us([each.get("emulation") for each in line.get("benchmarks", [])])
            if bound is not None:
                self.bounded.append((bound, path, _predicted(line)))
        elif is_unclear(line):
            self.unclear += 1
        else:
            self.causes[failure[0]] += 1
            self.first.setdefault(failure[0], path)

    @property
    def failed(self) -> int:
        """How many files are wrong, or no files to judge."""
        return self.causes.total()

    @property
    def done(self) -> int:
        """How many files have a line."""
        return self.passed + self.unclear + self.failed

    @property
    def elapsed_s(self) -> float:
        """Since the batch began."""
        return time.monotonic() - self.started

    @property
    def left_s(self) -> float | None:
        """How long the rest should take; None as long as nothing is judged."""
        if not self.judged:
            return None
        return self.elapsed_s / self.judged * (self.wanted - self.judged)
