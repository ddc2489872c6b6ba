"""Where an output is wrong, in a few words."""

import numpy as np

from nvfp4.problems.nvfp4_gemv.diagnosis.inputs import Array

_dense, _half = 0.9, 0.4
_few = 4


def region(wrong: Array) -> str:
    """Return the plainest region with all wrong elements and few others, as part of a sentence.
    wrong: bool [m, l]."""
    _, l = wrong.shape
    batches = np.flatnonzero(wrong.any(axis=0))
    chosen, text = _rows(wrong[:, batches].any(axis=1), wrong[:, batches])
    if l > 1:
        text += f" of {'every batch' if batches.size == l else _batches(batches)}"
    count, elements = int(wrong.sum()), int(chosen.sum()) * batches.size
    if count < elements:
        text += f" ({count} of {elements} elements there are wrong)"
    return text


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


def _rows(rows: Array, wrong: Array) -> tuple[Array, str]:
    """Return the rows in a plain pattern that holds all wrong ones, as bool [m] and in words."""
    m = rows.size
    numbers = np.flatnonzero(rows)
    first, end = int(numbers[0]), int(numbers[-1]) + 1
    interval = np.zeros(m, bool)
    interval[first:end] = True
    for density in (_dense, _half):
        if wrong.mean() >= density:
            return np.ones(m, bool), "every row"
        if wrong[interval].mean() >= density:
            return interval, _interval(first, end, m)
        if numbers.size > 2:
            periodic = _periodic(rows, wrong, density)
            if periodic is not None:
                return periodic
        if numbers.size <= _few:
            words = "row " if numbers.size == 1 else "rows "
            return rows, words + ", ".join(map(str, numbers))
    return rows, f"{numbers.size} scattered rows from {first} to {end - 1}"


def _interval(first: int, end: int, m: int) -> str:
    if first + 1 == end:
        return f"row {first}"
    if end == m and first <= m // 4 and first > 1:
        return f"all but the first {first} rows"
    if first == 0 and m - end <= m // 4 and m - end > 1:
        return f"all but the last {m - end} rows"
    return f"rows {first} to {end - 1}"


def _periodic(rows: Array, wrong: Array, density: float) -> tuple[Array, str] | None:
    """Return rows that form the same interval in every tile of a power of two of rows, and their
    description."""
    number, period = np.arange(rows.size), 2
    while period <= rows.size // 2:
        rest = np.unique(number[rows] % period)
        first, end = int(rest[0]), int(rest[-1]) + 1
        inside = (number % period >= first) & (number % period < end)
        if (first, end) != (0, period) and wrong[inside].mean() >= density:
            return inside, _of_period(first, end, period)
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
