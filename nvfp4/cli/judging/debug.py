"""One element of an output: its sum by k block, and who wrote it."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from nvfp4.cli import errors as exits
from nvfp4.cli.display.columns import Column, table
from nvfp4.cli.display.console import columns_of, new_console, rule_of, say
from nvfp4.cli.errors import SetupError
from nvfp4.cli.judging.assess import read_submission
from nvfp4.cli.judging.invocation import Invocation
from nvfp4.cli.judging.unclear_policy import is_ours
from nvfp4.cli.problem import case_line
from nvfp4.cli.text import first_lines, visible_json
from nvfp4.cli.verdict import full_range_suffix, unescape

block_elements = 16
most_blocks = 24
"""Rows of the table, unless all are asked for."""

_float16_step = 2.0**-10


@dataclass(frozen=True)
class Element:
    """Which element of which case. full: on full-range inputs."""

    m: int
    k: int
    l: int
    row: int
    batch: int
    full: bool
    seed: int

    @property
    def case(self) -> str:
        """The line of a case file."""
        line = case_line({"m": self.m, "k": self.k, "l": self.l, "seed": self.seed})
        return line + full_range_suffix * self.full


def debug_and_show(path: Path, element: Element, invocation: Invocation, every_block: bool) -> int:
    """Runs the case, shows the element, returns the exit code: 0 if it is right, 3 if that
    cannot be said here, else 1. Raises SetupError."""
    if not (0 <= element.row < element.m and 0 <= element.batch < element.l):
        raise SetupError(
            f"c[{element.row}, 0, {element.batch}] is outside of c, which is "
            f"[{element.m}, 1, {element.l}]",
            "--row and --batch count from 0.",
        )
    _, content = read_submission(path)
    ended = invocation.bot(content).run_debug(element.case, element.row, element.batch)
    failure = ended.values.get("debug.error")
    if failure is None and "debug" not in ended.values:
        last = ended.stderr.splitlines()[-1:] or ["it was stopped at the time limit"]
        raise SetupError(
            f"the case could not be judged: {last[0]}", "nvfp4 info shows what is here."
        )
    found = _read(ended.values.get("debug"))
    if invocation.as_json:
        click.echo(json.dumps({"error": failure and unescape(failure), **found}, indent=2))
    elif failure is not None:
        click.echo("\n".join(first_lines(unescape(failure))))
    else:
        _show(new_console(), element, found, every_block)
    if failure is not None:
        return exits.unclear if is_ours(ended.values.get("debug.code")) else exits.failed
    return exits.failed if found["wrong"] else exits.passed


def _read(text: str | None) -> dict[str, Any]:
    """What the judge wrote, with what follows from the sums."""
    if text is None:
        return {}
    found: dict[str, Any] = visible_json(text)
    found["notes"] = notes(found["blocks"], float(found["got"]), found["allowed"])
    return found


def notes(blocks: list[float], got: float, allowed: float) -> dict[int, str]:
    """What an output says of the blocks of its sum: block number to a remark.

    Nobody sees what a kernel adds up in between. What can be known: at which block the sum so far
    is the output, which block makes up the difference, and after which one no choice among the
    blocks left can lead to the output, if a kernel adds in this order.
    """
    total = math.fsum(blocks)
    if abs(got - total) <= allowed or not math.isfinite(got):
        return {}
    close = allowed + _float16_step * abs(got)
    found: dict[int, list[str]] = {}
    running, left = 0.0, math.fsum(map(abs, blocks))
    lost = False
    for number, part in enumerate(blocks):
        running += part
        left -= abs(part)
        if abs(running - got) <= close and part:
            found.setdefault(number, []).append("the sum so far is the output")
        if abs(total - part - got) <= close and part:
            found.setdefault(number, []).append("missing, it would explain the output")
        if abs(total + part - got) <= close and part:
            found.setdefault(number, []).append("twice, it would explain the output")
        if not lost and abs(running - got) > left + close:
            lost = True
            found.setdefault(number, []).append("from here on the sum can no longer be the output")
    return {number: "; ".join(remarks) for number, remarks in found.items()}


def _show(console: Console, element: Element, found: dict[str, Any], every_block: bool) -> None:
    got, want = float(found["got"]), float(found["expected"])
    inputs = "full-range" if element.full else "contest"
    place = f"c[{element.row}, 0, {element.batch}]"
    size = abs(got - want) / found["allowed"]
    verdict = "right" if not found["wrong"] else f"wrong: {size:.3g} times the allowed error"
    console.print(
        f"{place} of {element.m} x {element.k} x {element.l}, {inputs} inputs: got {got:g}, "
        f"expected {want:g} (exactly {found['exact']}), {verdict}"
    )
    for line in writer_lines(found["writers"], place):
        console.print(line, markup=False)
    if found["diagnosis"]:
        console.print("the whole output:", markup=False)
        for line in first_lines(found["diagnosis"]):
            console.print(f"  {line}", markup=False)
    _show_blocks(console, found, every_block)


def writer_lines(writers: list[dict[str, Any]] | None, place: str) -> list[str]:
    """Who wrote the element, the last one first."""
    if writers is None:
        return ["who wrote it is known where kernels are emulated: --device emulate"]
    if not writers:
        return [f"no emulated kernel wrote {place}: torch did, or nobody"]
    lines = []
    for verb, writer in zip(
        ["written by", *["before that by"] * len(writers)], reversed(writers), strict=False
    ):
        at = f"{writer['file']}:{writer['line']}" if writer["file"] else "PTX"
        lines.append(
            f"{verb} kernel {writer['kernel']}, CTA {_triple(writer['cta'])} of "
            f"{_triple(writer['grid'])}, thread {_triple(writer['thread'])} of "
            f"{_triple(writer['block'])}, {at}: {writer['text']}"
        )
    return lines


def _triple(extents: list[int]) -> str:
    return f"({', '.join(map(str, extents))})"


def _show_blocks(console: Console, found: dict[str, Any], every_block: bool) -> None:
    blocks, remarks = found["blocks"], found["notes"]
    shown = set(range(len(blocks)))
    if not every_block and len(blocks) > most_blocks:
        shown = {0, 1, 2, len(blocks) - 2, len(blocks) - 1}
        for number in sorted(remarks)[: most_blocks // 3]:
            shown |= {number - 1, number, number + 1} & set(range(len(blocks)))
    rows: list[tuple[str, str, str, str, str]] = []
    running, left_out = 0.0, False
    for number, part in enumerate(blocks):
        running += part
        if number in shown:
            first = number * block_elements
            span = f"{first}-{first + block_elements - 1}"
            remark = remarks.get(number, "")
            rows.append((str(number), span, f"{part:.8g}", f"{running:.8g}", remark))
        elif not left_out:
            rows.append(("...", "", "", "", ""))
        left_out = number not in shown
    headings = ("block", "elements", "its sum", "sum so far", "remark")
    columns = [
        Column(heading, [row[index] for row in rows], right=heading != "remark")
        for index, heading in enumerate(headings)
    ]
    say(console, "Exact sums by k block", "bold")
    for line in table(columns, columns_of(console), rule_of(console)):
        say(console, line)
    if len(shown) < len(blocks):
        say(console, f"{len(shown)} of {len(blocks)} blocks; --all-blocks shows every one")
