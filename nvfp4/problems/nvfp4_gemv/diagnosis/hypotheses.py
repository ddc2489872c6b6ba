"""Hypotheses on mistakes other than misreadings: values and places of c, the sum, rounding."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from nvfp4.problems.nvfp4_gemv.diagnosis.evidence import (
    Cause,
    Explanation,
    Hypothesis,
    Mismatch,
    Predict,
    agrees,
    cause,
    signed,
)
from nvfp4.problems.nvfp4_gemv.diagnosis.inputs import Array, Inputs, packed_of

RowMap = Callable[[Array], Array]


def _table(predicted: Array) -> Predict:
    return lambda batch, rows: predicted[rows, batch]


def from_values(inputs: Inputs, mismatch: Mismatch, kept: bool) -> Iterator[Hypothesis]:
    """Yield hypotheses on whole outputs. kept: whether ``inputs.c`` holds what c held before the
    call."""
    before, want = inputs.c, mismatch.want
    if kept:
        elements = int((mismatch.finite & (mismatch.got == before)).sum())
        yield Hypothesis(cause("output.unwritten", elements=elements), _table(before), True)
        with np.errstate(invalid="ignore"):
            yield Hypothesis(cause("output.added"), _table(want + before))
    if want.shape[1] > 1:
        # Sums are carried on from batch to batch. They are exact here, as rounded ones may cancel.
        yield Hypothesis(
            cause("output.carried_batches"),
            lambda batch, rows: sum(inputs.operands(b, rows).exact() for b in range(batch + 1)),
        )


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
    """Yield maps from each row to the row whose value it may hold."""
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


# Elements along k that are left out or counted twice, solved from the exact partial sums.

_rows, _rows_at_ends = 10, 16
_good_share = 0.6
_kept = 4
_seeds = 3


def from_sums(inputs: Inputs, mismatch: Mismatch) -> Iterator[Hypothesis]:
    """Return hypotheses by which parts of the sum are missing or added twice."""
    places = mismatch.quick(_rows_at_ends)
    got = np.concatenate([mismatch.got[rows, batch] for batch, rows in places])
    products = np.concatenate([inputs.operands(batch, rows).products() for batch, rows in places])
    few = np.arange(0, got.size, -(-got.size // _rows))
    seen: set[bytes] = set()
    for pattern, chosen in ((_ends, slice(None)), (_ranges, few), (_shares, few)):
        for why, counts in pattern(got[chosen], products[chosen]):
            # The same elements in other words: the first ones are the plainest.
            if counts.tobytes() not in seen:
                seen.add(counts.tobytes())
                yield _counted(inputs, why, counts)


Pattern = Iterator[tuple[Cause, Array]]
"""Causes, each with how often every one of the k elements is added up: whole numbers [k]."""


def _counted(inputs: Inputs, why: Cause, counts: Array) -> Hypothesis:

    def predict(batch: int, rows: Array) -> Array:
        operands = inputs.operands(batch, rows)
        total = np.zeros(rows.size)
        for count in np.unique(counts[counts != 0]).tolist():
            mask = packed_of(np.where(counts == count, 15, 0).astype(np.uint8))
            total += count * replace(operands, a=operands.a & mask).exact()
        return total

    return Hypothesis(why, predict)


def _good(got: Array, predicted: Array) -> Array:
    """Return the columns that explain a good share of the sample, best first."""
    hits = agrees(got[:, None], predicted).sum(axis=0)
    best = np.argsort(-hits, kind="stable")
    return best[hits[best] >= _good_share * got.size]


def _roundest(places: Array) -> list[int]:
    """Return the roundest number of each run of neighbouring places, where a kernel would most
    likely stop."""
    places = np.sort(places)
    runs = np.split(places, np.flatnonzero(np.diff(places) != 1) + 1)
    ends = [max(run.tolist(), key=lambda place: place & -place) for run in runs if run.size]
    return sorted(ends, key=lambda place: -(place & -place))[:_kept]


def _ends(got: Array, products: Array) -> Pattern:
    """Yield hypotheses of sums without their tail."""
    k = products.shape[1]
    heads = np.cumsum(products, axis=1)[:, :-1]  # of the elements before 1, 2, ..., k - 1
    for first in _roundest(_good(got, heads) + 1):
        what = f"the last {k - first} of k = {k} elements are missing"
        yield cause("k.tail_dropped", first=first, what=what), (np.arange(k) < first).astype(int)


def _shares(got: Array, products: Array) -> Pattern:
    """Hypotheses: only one of n shares, as of lanes, warps or stages."""
    k = products.shape[1]
    elements = 1
    while elements < k:
        parts = -(-k // elements)
        padded = np.pad(products, ((0, 0), (0, parts * elements - k)))
        sums = padded.reshape(got.size, parts, elements).sum(axis=2)
        shares = 2
        while shares <= min(1024, parts):
            turns = -(-parts // shares)
            each = np.pad(sums, ((0, 0), (0, turns * shares - parts)))
            each = each.reshape(got.size, turns, shares).sum(axis=1)
            for share in _good(got, each)[:_kept].tolist():
                chosen = np.arange(k) // elements % shares == share
                yield _share_cause(elements, shares, share), chosen.astype(int)
            shares *= 2
        elements *= 2


def _share_cause(elements: int, shares: int, share: int) -> Cause:
    place = f"elements k with k // {elements} % {shares} == {share}"
    what = f"only {place} are summed"
    if shares >= 32:
        who = f"lane {share}" if shares == 32 else f"thread {share} of {shares}"
        what = f"only the share of {who} is summed: {place}"
    return cause("k.share_alone", elements=elements, shares=shares, share=share, what=what)


def _ranges(got: Array, products: Array) -> Pattern:
    """Yield hypotheses that blocks i to j, of 16 elements each, are missing or added twice."""
    k = products.shape[1]
    blocks = products.reshape(got.size, -1, 16).sum(axis=2)
    before = np.concatenate([np.zeros((got.size, 1)), np.cumsum(blocks, axis=1)], axis=1)
    total = before[:, -1]
    for code, sign in (("k.dropped", -1), ("k.twice", 1)):
        found: dict[tuple[int, int], int] = {}
        for seed in range(min(_seeds, got.size)):
            inner = before[seed][None, :] - before[seed][:, None]
            i, j = np.nonzero(np.triu(agrees(got[seed], total[seed] + sign * inner), 1))
            inner = before[:, j] - before[:, i]
            hits = agrees(got[:, None], total[:, None] + sign * inner).sum(axis=0)
            for at in np.flatnonzero(hits >= _good_share * got.size).tolist():
                found[int(i[at]), int(j[at])] = int(hits[at])
        inner_spans = [span for span in found if span[0] and span[1] * 16 < k]
        # Blocks of zeros beside them may be missing too, or not.
        inner_spans.sort(key=lambda span: (-found[span], span[1] - span[0]))
        for first, end in inner_spans[:1]:
            inside = np.arange(k) // 16
            chosen = (inside >= first) & (inside < end)
            why = cause(code, blocks=f"{first} to {end - 1}" if end > first + 1 else f"{first}")
            yield why, np.where(chosen, 1 + sign, 1)


# Sums in float16, recognised by how large their errors are.

_rounded_rows = 48
_least_wrong = 8
_tail = 8.0
_alike = 1.5
_alike_share = 0.2


def from_rounding(inputs: Inputs, mismatch: Mismatch) -> list[Explanation]:
    """Return the cause if the errors in all rows are as large as those of sums in float16."""
    m, k, _ = inputs.shape
    if mismatch.count < _least_wrong or not np.isfinite(mismatch.got).all():
        return []
    generator = np.random.default_rng(0)
    batch = mismatch.sampled[0][0]
    rows = np.sort(generator.permutation(m)[:_rounded_rows])
    products = inputs.operands(batch, rows).products()
    exact = products.sum(axis=1)
    errors = mismatch.got[rows, batch] - exact
    step = np.spacing(np.abs(exact).astype(np.float16)).astype(np.float64)
    # In the units of a result's last place all rows count alike.
    mine = np.abs(errors) / step
    theirs = np.abs(_serial(products) - exact) / step
    if not np.isfinite(step).all() or not _as_large(mine, theirs):
        return []
    own, serial = _rms(mine), _rms(theirs)
    what = f"the errors are as large as those of sums in float16: {own:.1f} steps of float16 (root "
    what += f"mean square) where adding the {k} products in float16, one after the other, gives "
    what += f"{serial:.1f}; add in float32"
    steps = {"rms_steps": round(own, 1), "rms_steps_of_float16": round(serial, 1)}
    why = cause("precision.float16", order="one after the other", k=k, **steps, what=what)
    return [Explanation(mismatch.count, Hypothesis(why, _table(mismatch.got)))]


def _rms(values: Array) -> float:
    return float(np.sqrt(np.mean(values**2)))


def _as_large(mine: Array, theirs: Array) -> bool:
    """Return whether errors have the same distribution: their size, the number of zeros, and the
    largest."""
    own, other = _rms(mine), _rms(theirs)
    if not (np.isfinite(own) and np.isfinite(other)) or other < 1 or own < 1:
        return False
    alike = 1 / _alike < own / other < _alike
    none = abs(float((mine < 1).mean()) - float((theirs < 1).mean()))
    return alike and none < _alike_share and float(mine.max()) < _tail * float(theirs.max())


def _serial(products: Array) -> Array:
    """Return sums in float16, one product after the other: float64 [rows]."""
    with np.errstate(over="ignore", invalid="ignore"):
        halves: Array = products.astype(np.float16)
        total = np.zeros(halves.shape[0], np.float16)
        for column in np.ascontiguousarray(halves.T):
            total = total + column
        return total.astype(np.float64)
