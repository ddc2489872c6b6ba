"""A comparison as tables for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from nvfp4.cli.compare.decision import Comparison, Judged, confidence
from nvfp4.cli.compare.results import CountChange, Counted, File, Timed, names
from nvfp4.cli.display.columns import Column, show_table
from nvfp4.cli.display.console import say
from nvfp4.cli.problem import shape_of
from nvfp4.cli.text import microseconds, seconds, several

_styles = {"faster": "green", "slower": "bold red", "same": "", "unclear": "yellow"}
_bounds = (
    "memory >= us, issue >= us: bounds, not times: no B200 moves these bytes, or issues these "
    "instructions, in less"
)
_ends = {
    "clear": "",
    "limit": "; --limit-s S allows more rounds",
    "rounds": "",
    "interrupted": "; interrupted",
}


def show_result(
    console: Console, files: Sequence[File], result: Timed | Counted, elapsed_s: float
) -> None:
    """A table for each file but the first, or for each shape where nothing was timed."""
    if isinstance(result, Counted):
        _show_counts(console, files, result)
        for line in _predictions(files, result):
            say(console, line)
        say(console, f"all are right{_in(elapsed_s)}; without a GPU there is no verdict about time")
        return
    for file, found in zip(files[1:], result.comparisons, strict=True):
        say(console)
        show_table(
            console,
            f"{file.label} against {files[0].label}, means over {len(result.rounds)} rounds in us",
            _time_columns(files[0], file, result.specs, found),
        )
    say(console)
    for file, found in zip(files[1:], result.comparisons, strict=True):
        say(console, _sentence(files[0], file, found.total, result.threshold))
    unclear = _ends[result.end] if result.word == "unclear" or result.end == "interrupted" else ""
    say(console, f"{several(len(result.rounds), 'round')}{_in(elapsed_s)}{unclear}", "dim")


_predicted_words = {
    "faster": "faster than {0}",
    "slower": "slower than {0}",
    "unclear": "the intervals of {0} and this one overlap",
}


def _predictions(files: Sequence[File], result: Counted) -> Iterator[str]:
    """What a model says of the geometric means."""
    first = result.predicted[0]
    if first is None:
        return
    yield f"{first.gpu}, predicted by a model, not measured (docs/model.md)"
    for number, file in enumerate(files):
        said, word = result.predicted[number], result.predicted_word(number) if number else None
        text = "no prediction" if said is None else said.text
        text += f": {_predicted_words[word].format(files[0].label)}" if word else ""
        yield f"  {file.label}  {text}"


def _in(elapsed_s: float) -> str:
    return f", in {seconds(elapsed_s)}"


def _time_columns(
    baseline: File, file: File, specs: Sequence[str], found: Comparison
) -> list[Column]:
    rows = [*found.shapes, found.total]
    return [
        Column("m x k x l", [*(str(shape_of(each)) for each in specs), "geometric mean"], 0, False),
        Column(baseline.label, [microseconds(each.baseline_us) for each in rows]),
        Column(file.label, [microseconds(each.file_us) for each in rows]),
        Column("change", [_signed(each.change.shares[0]) for each in rows]),
        Column(
            "interval",
            [_interval(each) for each in rows],
            note=f"of the change, at {confidence:.0%} confidence",
        ),
        Column("verdict", [Text(each.word, style=_styles[each.word]) for each in rows], 0, False),
    ]


def _interval(judged: Judged) -> str:
    _, low, high = judged.change.shares
    return f"{_signed(low)} to {_signed(high)}"


def _signed(share: float) -> str:
    return f"{share:+.2%}"


def _sentence(baseline: File, file: File, total: Judged, threshold: float) -> Text:
    """The verdict by the geometric mean."""
    change, one, other = total.change.shares[0], file.label, baseline.label
    said = {
        "faster": f"{one} takes {-change:.2%} less time than {other}",
        "slower": f"{one} takes {change:.2%} more time than {other}",
        "same": f"{one} takes as long as {other}, within {threshold:.2%}",
        "unclear": f"the change from {other} to {one} lies from {_interval(total)}",
    }
    return Text.assemble((f"{total.word}: ", _styles[total.word] or "bold"), said[total.word])


def _show_counts(console: Console, files: Sequence[File], result: Counted) -> None:
    for index, spec in enumerate(result.specs):
        say(console)
        if any(counts[index] is None for counts in result.counts):
            without = [
                file.label
                for file, counts in zip(files, result.counts, strict=True)
                if counts[index] is None
            ]
            say(console, f"{shape_of(spec)}: no counts, {', '.join(without)} ran no kernel", "bold")
            continue
        show_table(console, str(shape_of(spec)), _count_columns(files, result, index))
    say(console)
    say(console, _bounds, "dim")
    if any(map(any, result.unverified)):
        say(console, "unverified: counts that the file's own process says", "yellow")


def _count_columns(files: Sequence[File], result: Counted, index: int) -> list[Column]:
    """A row for each count: every file's, and each file's against the first's."""
    changes = [result.changes(number, index) for number in range(len(files))]
    known = [name for name in names if name in changes[0]]
    columns = [Column("", [names[name] for name in known], right=False)]
    for number, file in enumerate(files):
        cells = [_count(name, changes[number][name].file) for name in known]
        mark = "\n(unverified)" if result.unverified[number][index] else ""
        columns.append(Column(f"{file.label}{mark}", cells))
        if number:
            compared = [_change(name, changes[number][name]) for name in known]
            columns.append(Column(f"{file.label} to {files[0].label}", compared))
    return columns


def _count(name: str, value: float) -> str:
    if name.endswith("_us"):
        return microseconds(value)
    if name.endswith("_bytes"):
        return f"{value / 1e6:,.3f}"
    return f"{value:,.0f}"


def _change(name: str, found: CountChange) -> Text:
    """What got more, and what less: all of it is a cost."""
    if found.change is None:
        return Text("more, from 0", style="red")
    if not found.change:
        return Text("same", style="dim")
    word, style = ("more", "red") if found.change > 0 else ("less", "green")
    share = abs(found.change)
    return Text(f"{share:.1%} {word}" if share >= 0.0005 else f"<0.1% {word}", style=style)
