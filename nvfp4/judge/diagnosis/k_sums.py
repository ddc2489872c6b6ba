"""Elements along k that are left out or counted twice, solved from the exact partial sums."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from nvfp4.judge.diagnosis.causes import Cause, cause
from nvfp4.judge.diagnosis.evidence import Hypothesis, Mismatch, agrees
from nvfp4.judge.diagnosis.inputs import Array, Inputs, Operands, packed_of

_rows, _rows_at_ends = 10, 16
_good_share = 0.6
_kept = 4
_seeds = 3
_least_unknowns, _most_unknowns = 3, 160
_spare = 1.5
_clear = 0.2
_rows_a_block = 3
_most_often = 3
_coarser = (64, 128, 256)


def tried(k: int) -> int:
    """How many patterns are tried."""
    return 8 * k * k.bit_length()


def summed(inputs: Inputs, mismatch: Mismatch) -> Iterator[Hypothesis]:
    """Hypotheses by which parts of the sum are missing, or there twice."""
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
            total += count * _masked(operands, counts == count).exact()
        return total

    return Hypothesis(why, predict)


def _masked(operands: Operands, chosen: Array) -> Operands:
    mask = packed_of(np.where(chosen, 15, 0).astype(np.uint8))
    return replace(operands, a=operands.a & mask)


def _good(got: Array, predicted: Array) -> Array:
    """Which columns explain a good share of the sample, best first."""
    hits = agrees(got[:, None], predicted).sum(axis=0)
    best = np.argsort(-hits, kind="stable")
    return best[hits[best] >= _good_share * got.size]


def _roundest(places: Array) -> list[int]:
    """Of neighbouring places the one that a kernel would stop at: the roundest."""
    places = np.sort(places)
    runs = np.split(places, np.flatnonzero(np.diff(places) != 1) + 1)
    ends = [max(run.tolist(), key=lambda place: place & -place) for run in runs if run.size]
    return sorted(ends, key=lambda place: -(place & -place))[:_kept]


def _ends(got: Array, products: Array) -> Pattern:
    """The sum without its head or tail, or with one of them twice."""
    k = products.shape[1]
    heads = np.cumsum(products, axis=1)[:, :-1]  # of the elements before 1, 2, ..., k - 1
    total = products.sum(axis=1)[:, None]
    element = np.arange(k)
    for code, sums in (
        ("k.tail_dropped", heads),
        ("k.head_dropped", total - heads),
        ("k.tail_twice", 2 * total - heads),
        ("k.head_twice", total + heads),
    ):
        for first in _roundest(_good(got, sums) + 1):
            head, tail = (element < first).astype(int), (element >= first).astype(int)
            counts = {
                "k.tail_dropped": head,
                "k.head_dropped": tail,
                "k.tail_twice": head + 2 * tail,
                "k.head_twice": 2 * head + tail,
            }[code]
            arguments: dict[str, int | str] = {"first": first}
            if code == "k.tail_dropped":
                left = k - first
                arguments["what"] = f"the last {left} of k = {k} elements are missing"
            yield cause(code, **arguments), counts


def _shares(got: Array, products: Array) -> Pattern:
    """One of n shares of lanes, warps or stages alone, missing, or twice."""
    k = products.shape[1]
    total = products.sum(axis=1)[:, None]
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
            for code, predicted, others, mine in (
                ("k.share_alone", each, 0, 1),
                ("k.share_missing", total - each, 1, 0),
                ("k.share_twice", total + each, 1, 2),
            ):
                for share in _good(got, predicted)[:_kept].tolist():
                    chosen = np.arange(k) // elements % shares == share
                    why = _share_cause(code, elements, shares, share)
                    yield why, np.where(chosen, mine, others)
            shares *= 2
        elements *= 2


def _share_cause(code: str, elements: int, shares: int, share: int) -> Cause:
    arguments: dict[str, int | str] = {"elements": elements, "shares": shares, "share": share}
    if code == "k.share_alone":
        place = f"elements k with k // {elements} % {shares} == {share}"
        arguments["what"] = f"only {place} are summed"
        if shares >= 32:
            who = f"lane {share}" if shares == 32 else f"thread {share} of {shares}"
            arguments["what"] = f"only the share of {who} is summed: {place}"
    return cause(code, **arguments)


def _ranges(got: Array, products: Array) -> Pattern:
    """Blocks i to j of 16 elements missing or twice."""
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


def solved(inputs: Inputs, mismatch: Mismatch) -> Iterator[Hypothesis]:
    """How often each k block is counted, from as many wrong rows as it takes."""
    _, k, _ = inputs.shape
    most = min(_most_unknowns, int(mismatch.finite.sum() / _spare))
    finest = 16
    while -(-k // finest) > max(most, 1):
        finest *= 2
    places = mismatch.spread(_rows_a_block * -(-k // finest))
    sums = []
    for batch, rows in places:
        products = inputs.operands(batch, rows).products()
        sums.append(products.reshape(rows.size, -1, 16).sum(axis=2))
    blocks = np.concatenate(sums)
    got = np.concatenate([mismatch.got[rows, batch] for batch, rows in places])
    # Of a few large blocks more is known than of many small ones.
    for elements in sorted({finest, *_coarser}, reverse=True):
        if elements < finest:
            continue
        unknowns = -(-k // elements)
        if not _least_unknowns <= unknowns <= most:
            continue
        each = elements // 16
        padded = np.pad(blocks, ((0, 0), (0, unknowns * each - blocks.shape[1])))
        counts = _counts(padded.reshape(got.size, unknowns, each).sum(axis=2), got)
        if (counts == 1).all() or counts.min() < 0 or counts.max() > _most_often:
            continue
        by_block = np.repeat(counts, each)[: k // 16]
        yield _counted(inputs, _counts_cause(by_block), np.repeat(by_block, 16))


def _counts(sums: Array, got: Array) -> Array:
    """Whole numbers of times that each column is added up; 1 where that is not clear.

    sums: float64 [rows, unknowns]; got: float64 [rows].
    """
    # Every row counts alike, however large its result, and so does every block.
    weight = 1 / (1 + np.abs(got))
    matrix, vector = sums * weight[:, None], (got - sums.sum(axis=1)) * weight
    size = np.linalg.norm(matrix, axis=0) + 1e-30
    matrix = matrix / size
    square = matrix.T @ matrix + 1e-12 * np.eye(size.size)
    solution = np.linalg.solve(square, matrix.T @ vector) / size
    whole = np.rint(solution)
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(solution - whole) < _clear, whole, 0).astype(int) + 1


def _counts_cause(counts: Array) -> Cause:
    missing, twice = (ranges(np.flatnonzero(counts == count)) for count in (0, 2))
    if set(np.unique(counts).tolist()) == {0, 1}:
        return cause("k.dropped", blocks=missing)
    if set(np.unique(counts).tolist()) == {1, 2}:
        return cause("k.twice", blocks=twice)
    parts = [f"{ranges(np.flatnonzero(counts == n))} {n} times" for n in (0, 2, 3) if n in counts]
    return cause("k.miscounted", blocks="; ".join(parts), what=f"blocks {'; blocks '.join(parts)}")


def ranges(numbers: Array, most: int = 8) -> str:
    """``3 to 7, 12, 20 to 22``."""
    if not numbers.size:
        return ""
    parts = np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1)
    shown = [f"{p[0]} to {p[-1]}" if p.size > 1 else f"{p[0]}" for p in parts[:most]]
    more = f" and {len(parts) - most} more ranges" if len(parts) > most else ""
    return ", ".join(shown) + more
