"""Outputs that follow from right values in wrong places, or from what c held before."""

from collections.abc import Callable, Iterator

import numpy as np

from nvfp4.problems.nvfp4_gemv.diagnosis.evidence import (
    Hypothesis,
    Mismatch,
    Predict,
    agrees,
    cause,
    signed,
)
from nvfp4.problems.nvfp4_gemv.diagnosis.inputs import Array, Inputs

RowMap = Callable[[Array], Array]


def _table(predicted: Array) -> Predict:
    return lambda batch, rows: predicted[rows, batch]


def from_values(inputs: Inputs, mismatch: Mismatch, kept: bool) -> Iterator[Hypothesis]:
    """Hypotheses on whole outputs. kept: whether ``inputs.c`` is what c held before."""
    before, want = inputs.c, mismatch.want
    if kept:
        elements = int((mismatch.finite & (mismatch.got == before)).sum())
        yield Hypothesis(cause("output.unwritten", elements=elements), _table(before), True)
        with np.errstate(invalid="ignore"):
            yield Hypothesis(cause("output.added"), _table(want + before))
    if want.shape[1] > 1:
        yield Hypothesis(cause("output.carried_batches"), _carried_batches(inputs))


def _carried_batches(inputs: Inputs) -> Predict:
    """Predict sums that are carried on from batch to batch, exactly: rounded ones may cancel."""

    def predict(batch: int, rows: Array) -> Array:
        return sum(inputs.operands(each, rows).exact() for each in range(batch + 1))

    return predict


def from_places(mismatch: Mismatch) -> Iterator[Hypothesis]:
    """Hypotheses by which c[i, 0, b] holds what belongs to another row or batch."""
    want = mismatch.want
    if want.shape[1] > 1:
        yield from _batches(mismatch)
    for name, rows_of in _maps(len(want)):
        yield Hypothesis(cause("places.rows", source=name), _moved(want, rows_of))


def _moved(want: Array, rows_of: RowMap) -> Predict:
    def predict(batch: int, rows: Array) -> Array:
        places = rows_of(rows)
        inside = places < len(want)
        return np.where(inside, want[np.where(inside, places, 0), batch], np.nan)

    return predict


def _batches(mismatch: Mismatch) -> Iterator[Hypothesis]:
    """Hypotheses: each batch holds the results of some batch."""
    got, want = mismatch.got, mismatch.want
    m, l = want.shape
    rows = np.unique(np.linspace(0, m - 1, min(m, 64)).astype(int))
    source = []
    for batch in range(l):
        shares = [float(agrees(got[rows, batch], want[rows, b]).mean()) for b in range(l)]
        source.append(max(range(l), key=lambda other: (shares[other], other == batch)))
    moves = [f"{batch} holds {other}" for batch, other in enumerate(source) if batch != other]
    if moves:
        yield Hypothesis(
            cause("places.batches", moves=f"batch {', '.join(moves)}", sources=source),
            lambda batch, rows: want[rows, source[batch]],
        )


def _maps(m: int) -> Iterator[tuple[str, RowMap]]:
    """Yield which row's value each row may hold."""
    size = 1
    while size < m:
        for flipped in {size, 2 * size - 1}:
            yield f"row i ^ {flipped}", lambda i, flipped=flipped: i ^ flipped  # type: ignore[misc]
        for offset in (size, -size):
            yield f"row ({signed('i', offset)}) % {m}", lambda i, n=offset: (i + n) % m  # type: ignore[misc]
        yield f"row i % {size}", lambda i, n=size: i % n  # type: ignore[misc]
        yield from _transposed(size, m)
        size *= 2
    yield from _transposed(m, m)


def _transposed(size: int, m: int) -> Iterator[tuple[str, RowMap]]:
    """Yield how rows move when a tile of `size` rows, seen as [p, q], is written as [q, p]."""
    p = 2
    while p < size and size % p == 0:
        q = size // p

        def rows_of(i: Array, p: int = p, q: int = q, n: int = size) -> Array:
            return i - i % n + (i % n % q) * p + i % n // q

        tile = f"row i % {q} * {p} + i // {q}"
        if size < m:
            tile += f" of its tile of {size} rows (i counts in the tile)"
        yield tile, rows_of
        p *= 2
