"""What a batch has come to so far."""

from __future__ import annotations

import time
from collections import Counter

from nvfp4.cli.batch.lines import Line, failure_of, is_unclear
from nvfp4.cli.batch.options import Busy


class Tally:
    """passed, unclear, causes: how many files passed, could not be judged whole, and failed by the
    code of the cause. first: a file for each code. timed: geometric mean in microseconds, path,
    GPU, floor in microseconds. busy: what is judged now. judged: how many contents, of ``wanted``,
    since the batch began.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.passed = self.unclear = 0
        self.causes: Counter[str] = Counter()
        self.first: dict[str, str] = {}
        self.timed: list[tuple[float, str, str, float | None]] = []
        self.busy: Busy = {}
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
