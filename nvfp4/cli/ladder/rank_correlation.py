"""Spearman's rank correlation."""

from __future__ import annotations

import math
from collections.abc import Sequence


def spearman(xs: Sequence[float], ys: Sequence[float]) -> float | None:
    """Pearson's correlation of the ranks, from -1 to 1; equal values share the mean of their ranks.

    None for fewer than three pairs, and where all values of a side are equal.
    """
    pairs = list(zip(_ranks(xs), _ranks(ys), strict=True))
    if len(pairs) < 3:
        return None
    mean = (len(pairs) + 1) / 2
    products = math.fsum((x - mean) * (y - mean) for x, y in pairs)
    squares = [math.fsum((pair[side] - mean) ** 2 for pair in pairs) for side in (0, 1)]
    return products / math.sqrt(squares[0] * squares[1]) if all(squares) else None


def _ranks(values: Sequence[float]) -> list[float]:
    """1 for the least."""
    return [
        sum(other < value for other in values) + (values.count(value) + 1) / 2 for value in values
    ]
