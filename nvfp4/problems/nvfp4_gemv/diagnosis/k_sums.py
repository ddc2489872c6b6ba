"""Elements along k that are left out or counted twice, solved from the exact partial sums."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from nvfp4.problems.nvfp4_gemv.diagnosis.evidence import Cause, Hypothesis, Mismatch, agrees, cause
from nvfp4.problems.nvfp4_gemv.diagnosis.inputs import Array, Inputs, packed_of

_rows, _rows_at_ends = 10, 16
_good_share = 0.6
_kept = 4
_seeds = 3


def tried(k: int) -> int:
    """How many patterns are tried."""
    return 8 * k * k.bit_length()


def summed(inputs: Inputs, mismatch: Mismatch) -> Iterator[Hypothesis]:
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
"""Causes, and how often each element is added up: whole numbers [k]."""


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
    """Return, of each run of neighbouring places, the roundest: a kernel would stop there."""
    places = np.sort(places)
    runs = np.split(places, np.flatnonzero(np.diff(places) != 1) + 1)
    ends = [max(run.tolist(), key=lambda place: place & -place) for run in runs if run.size]
    return sorted(ends, key=lambda place: -(place & -place))[:_kept]


def _ends(got: Array, products: Array) -> Pattern:
    """Hypotheses: the sum without its tail."""
    k = products.shape[1]
    heads = np.cumsum(products, axis=1)[:, :-1]  # of the elements before 1, 2, ..., k - 1
    for first in _roundest(_good(got, heads) + 1):
        what = f"the last {k - first} of k = {k} elements are missing"
        why = cause("k.tail_dropped", first=first, what=what)
        yield why, (np.arange(k) < first).astype(int)


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
    """Hypotheses: blocks i to j, of 16 elements each, are missing or added twice."""
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
