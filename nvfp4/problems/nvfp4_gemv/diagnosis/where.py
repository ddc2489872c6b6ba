"""Where an output is wrong, in a few words."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from nvfp4.problems.nvfp4_gemv.diagnosis.inputs import Array

_dense, _half = 0.9, 0.4
_few = 4
_least_left = 32


Part = tuple[Array, str, dict[str, Any]]
"""Rows as bool [m], in words, and in numbers."""


@dataclass(frozen=True)
class Region:
    """rows, batches: in words. wrong: how many of its ``elements`` are wrong; it holds them all.

    exact: the region in numbers, for programs.
    """

    rows: str
    batches: str
    wrong: int
    elements: int
    exact: dict[str, Any]

    @property
    def text(self) -> str:
        """One sentence part."""
        place = self.rows + (f" of {self.batches}" if self.batches else "")
        if self.wrong == self.elements:
            return place
        return f"{place} ({self.wrong} of {self.elements} elements there are wrong)"


def region(wrong: Array) -> Region:
    """The plainest region that holds all wrong elements and few others. wrong: bool [m, l]."""
    _, l = wrong.shape
    batches = np.flatnonzero(wrong.any(axis=0))
    rows = wrong[:, batches].any(axis=1)
    chosen, words, exact = _rows(rows, wrong[:, batches])
    which = "" if l == 1 else "every batch" if batches.size == l else _batches(batches)
    exact["batches"] = batches.tolist()
    elements = int(chosen.sum()) * batches.size
    flat = _flat(wrong)
    if flat is not None and flat.elements < elements:
        return flat
    return Region(words, which, int(wrong.sum()), elements, exact)


def _flat(wrong: Array) -> Region | None:
    """All of c before or behind an element, across batches."""
    m, l = wrong.shape
    where = np.flatnonzero(wrong.T.reshape(-1))
    first, end = int(where[0]), int(where[-1]) + 1
    if l == 1 or where.size < _dense * (end - first) or where.size == wrong.size:
        return None
    if first % m == 0 and end % m == 0:
        return None
    if end == wrong.size and first >= _least_left:
        words = f"all but the first {first} elements of c"
    elif first == 0 and min(end, wrong.size - end) >= _least_left:
        words = f"the first {end} elements of c"
    else:
        return None
    exact = {"first_element": first, "end_element": end}
    return Region(f"{words}, batch after batch", "", where.size, end - first, exact)


def _batches(batches: Array) -> str:
    if batches.size == 1:
        return f"batch {batches[0]}"
    if batches[-1] - batches[0] + 1 == batches.size:
        return f"batches {batches[0]} to {batches[-1]}"
    if batches.size <= _few:
        return f"batches {', '.join(map(str, batches))}"
    odd = {int(each) % 2 for each in batches}
    if len(odd) == 1:
        return "odd batches" if odd == {1} else "even batches"
    return f"{batches.size} batches"


def _rows(rows: Array, wrong: Array) -> Part:
    """The rows in a plain pattern that holds all wrong ones, in words and in numbers."""
    m = rows.size
    numbers = np.flatnonzero(rows)
    first, end = int(numbers[0]), int(numbers[-1]) + 1
    everything = np.ones(m, bool), "every row", {"rows": [0, m]}
    if wrong.mean() >= _dense:
        return everything
    interval = np.zeros(m, bool)
    interval[first:end] = True
    part = interval, _interval(first, end, m), {"rows": [first, end]}
    for density in (_dense, _half):
        if density == _half and wrong.mean() >= _half:
            return everything
        if wrong[interval].mean() >= density:
            return part
        if numbers.size > 2:
            periodic = _periodic(rows, wrong, density)
            if periodic is not None:
                return periodic
        if numbers.size <= _few:
            words = "row " if numbers.size == 1 else "rows "
            return rows, words + ", ".join(map(str, numbers)), {"listed_rows": numbers.tolist()}
    return rows, f"{numbers.size} scattered rows from {first} to {end - 1}", {"rows": [first, end]}


def _interval(first: int, end: int, m: int) -> str:
    if first + 1 == end:
        return f"row {first}"
    if end == m and first <= m // 4 and first > 1:
        return f"all but the first {first} rows"
    if first == 0 and m - end <= m // 4 and m - end > 1:
        return f"all but the last {m - end} rows"
    return f"rows {first} to {end - 1}"


def _periodic(
    rows: Array, wrong: Array, density: float
) -> tuple[Array, str, dict[str, Any]] | None:
    """An interval of each tile of so many rows."""
    m = rows.size
    period = 2
    while period <= m // 2:
        number = np.arange(m)
        rest = np.unique(number[rows] % period)
        first, end = int(rest[0]), int(rest[-1]) + 1
        inside = (number % period >= first) & (number % period < end)
        if (first, end) != (0, period) and wrong[inside].mean() >= density:
            exact = {"period": period, "rows_of_period": [first, end]}
            return inside, _of_period(first, end, period), exact
        period *= 2
    return None


def _of_period(first: int, end: int, period: int) -> str:
    if period == 2:
        return "odd rows" if first else "even rows"
    if end == first + 1:
        return f"rows with row % {period} == {first}"
    if end == period:
        return f"rows with row % {period} >= {first}"
    if first == 0:
        return f"rows with row % {period} < {end}"
    return f"rows with {first} <= row % {period} < {end}"
