"""What `nvfp4 batch` shows: the live table, a line for each file, the summary."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from batches import no_options, verdict_of
from rich.console import Console
from rich.text import Text

from nvfp4.cli.batch import progress
from nvfp4.cli.batch.lines import line_of
from nvfp4.cli.batch.progress import Tally, live_table, result_line, summarise


def tally_of(*judged: tuple[str, str]) -> Tally:
    """Of files and their texts for the fake judge, on a GPU; as many again are to come."""
    tally = Tally(2 * len(judged))
    tally.begin(2 * len(judged))
    for path, text in judged:
        verdict = verdict_of(text.encode(), "cuda")
        tally.judged += 1
        tally.add(line_of(verdict, Path(path), "0", None, no_options))
    return tally


judged = [
    ("a.py", "31.5"),
    ("b.py", "25.25"),
    ("c.py", "wrong"),
    ("d.py", "mistaken"),
    ("e.py", "wrong"),
]


def shown(show: Callable[[Console], None], width: int = 80) -> str:
    """What a terminal shows."""
    console = Console(width=width, height=12, force_terminal=True, color_system=None)
    with console.capture() as capture:
        show(console)
    return capture.get()


def test_the_live_table_says_what_runs_and_what_came_of_the_rest() -> None:
    tally = tally_of(*judged)
    for number in range(8):
        tally.busy.judging[f"cuda:{number}"] = (f"kernels/\x1b{number}.py", time.monotonic() - 61)
    text = shown(lambda console: console.print(Text("\n").join(live_table(console, tally))))
    rows = [line.rstrip() for line in text.splitlines()]
    assert rows[2] == r"cuda:0  kernels/\x1b0.py    61.0 s"
    assert len(rows) <= 11
    assert rows[-3].startswith("5 of 10 files: 2 passed, 3 failed; 8 judging; ")
    assert rows[-3].endswith(" left")
    assert rows[-2:] == ["failed: 2 output.mismatch, 1 mistake.syntax", "best: 25.250 us, b.py"]


def test_what_is_built_ahead_is_shown_behind_what_is_judged() -> None:
    tally = tally_of(*judged)
    tally.busy.judging["cuda:0"] = ("a.py", time.monotonic())
    tally.busy.building |= {"c.py": time.monotonic(), "b.py": time.monotonic() - 9}
    text = shown(lambda console: console.print(Text("\n").join(live_table(console, tally))), 120)
    rows = [line.split() for line in text.splitlines()]
    assert [row[:2] for row in rows[2:5]] == [
        ["cuda:0", "a.py"],
        ["building", "b.py"],
        ["building", "c.py"],
    ]
    assert " 1 judging, 2 building; " in " ".join(rows[5])


def test_figures_come_now_and_then_where_nobody_watches_a_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tally = tally_of(*judged)
    tally.busy.building["f.py"] = 0.0
    (console := Console(width=80)).begin_capture()
    with progress.shown(console, tally) as show:
        line = line_of(verdict_of(b"mistaken"), Path("d.py"), "0", None, no_options)
        show(line)
        monkeypatch.setattr(progress, "_figures_s", 0.0)
        show(line)
    first, second, figures = console.end_capture().splitlines()
    assert first == second == "fail  d.py  mistake.syntax: invalid syntax"
    assert figures.startswith("5 of 10 files: 2 passed, 3 failed; 1 building; ")


def test_without_a_gpu_the_summary_ranks_by_the_bound() -> None:
    tally = Tally(2)
    for name, memory_us, issue_us in (("a.py", 9.0, 25.0), ("b.py", 16.0, 4.0)):
        verdict = verdict_of(b"passes")
        for each in verdict["benchmarks"]:
            each["emulation"] = {"b200_memory_us": memory_us, "b200_issue_us": issue_us}
        tally.add(line_of(verdict, Path(name), "0", None, no_options))
    text = shown(lambda console: summarise(console, tally, Path("out.jsonl"), False))
    rows = [line.split() for line in text.splitlines()]
    assert rows.index(["1", "b.py", "16.000"]) < rows.index(["2", "a.py", "25.000"])


def test_without_a_gpu_predicted_times_are_shown() -> None:
    tally = Tally(2)
    for name, gpu in (("a.py", "B200"), ("b.py", "H100")):
        verdict = verdict_of(b"passes")
        verdict["score"]["predicted"] = {"gpu": gpu, "us": 28.91}
        for each in verdict["benchmarks"]:
            each["emulation"] = {"b200_memory_us": 9.0, "b200_issue_us": 25.0}
        line = line_of(verdict, Path(name), "0", None, no_options)
        tally.add(line)
    text = shown(lambda console: summarise(console, tally, Path("out.jsonl"), False))
    rows = [line.split() for line in text.splitlines()]
    assert ["1", "a.py", "25.000", "28.9"] in rows
    assert ["2", "b.py", "25.000", "28.9", "(H100)"] in rows
    assert "28.9 us predicted for a H100" in result_line(line).plain


def test_the_summary_has_the_fastest_and_the_failures_by_cause() -> None:
    tally = tally_of(*judged, *((f"slow{n}.py", "40") for n in range(12)))
    text = shown(lambda console: summarise(console, tally, Path("out.jsonl"), False))
    rows = [line.split() for line in text.splitlines()]
    assert ["1", "b.py", "25.250", "79.2%"] in rows
    assert ["2", "a.py", "31.500", "63.5%"] in rows
    assert rows[12][:2] == ["10", "slow5.py"]
    assert rows[13] == []
    assert ["output.mismatch", "2", "c.py"] in rows
    assert ["mistake.syntax", "1", "d.py"] in rows


def test_times_of_a_cpu_are_no_ranking() -> None:
    tally = Tally(1)
    verdict = verdict_of(b"30", "cuda")
    verdict["device"]["kind"] = "cpu"
    tally.add(line_of(verdict, Path("a.py"), "0", None, no_options))
    assert tally.passed == 1
    assert tally.timed == []


def test_a_name_shows_no_control_characters() -> None:
    line = line_of(verdict_of(b"mistaken"), Path("\x1b[2J.py"), "0", None, no_options)
    assert result_line(line).plain == r"fail  \x1b[2J.py  mistake.syntax: invalid syntax"
