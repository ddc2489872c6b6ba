"""Scales that are read at an offset.

All offsets are tried at once on a sample: for each wrong element the sum is a correlation of
weights with the operand's storage.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from nvfp4.problems.nvfp4_gemv.diagnosis.causes import cause, signed
from nvfp4.problems.nvfp4_gemv.diagnosis.evidence import Hypothesis, Mismatch, agrees
from nvfp4.problems.nvfp4_gemv.diagnosis.inputs import (
    Array,
    Inputs,
    Operands,
    e4m3_values,
)
from nvfp4.problems.nvfp4_gemv.diagnosis.misreadings import Misreading, Read
from nvfp4.problems.nvfp4_gemv.task import n_padded

_rows_of_scales = 6
_good_share = 0.6
_kept = 3
_names = {"sfa": "the scales of a", "sfb": "the scales of b"}

Edge = str
"""What is read past the ends of a row: "next row", "wraps" or "zero"."""

_edges: tuple[Edge, ...] = ("next row", "wraps", "zero")


def tried(k: int) -> int:
    """How many offsets are tried."""
    return 12 * k


def shifted(inputs: Inputs, mismatch: Mismatch) -> Iterator[Hypothesis]:
    """Hypotheses by which scales are read at an offset."""
    quick = mismatch.quick(_rows_of_scales)
    for names in (("sfa",), ("sfb",), ("sfa", "sfb")):
        for edge in _edges:
            yield from _shifted_scales(inputs, mismatch, quick, names, edge)


def _best(hits: Array, offsets: Array, wanted: float) -> list[int]:
    """Offsets but 0 that explain a good share. hits: how many elements each explains."""
    hits = np.where(offsets == 0, -1, hits)
    best = np.argsort(-hits, kind="stable")[:_kept]
    return [int(offsets[i]) for i in best if hits[i] >= wanted]


def _correlation(weights: Array, values: Array) -> Array:
    """``sum_j weights[r, j] * values[r, j + s]`` for each s >= 0 that stays inside."""
    size = weights.shape[1] + values.shape[1]
    n = 1 << (size - 1).bit_length()
    product = np.conj(np.fft.rfft(weights, n)) * np.fft.rfft(values, n)
    count = values.shape[1] - weights.shape[1] + 1
    return np.fft.irfft(product, n)[:, :count]


def _reach(length: int, edge: Edge) -> int:
    """How far is tried. What wraps is as far ahead as it is behind."""
    return {"next row": 2 * length, "wraps": length // 2, "zero": length - 1}[edge]


def _window(storage: Array, first: int, length: int, reach: int, edge: Edge) -> Array:
    """A row of codes with what a kernel reads before and after it: [length + 2 * reach]."""
    if edge == "next row":
        return read_at(storage, np.arange(first - reach, first + length + reach))
    row = storage[first : first + length]
    if edge == "wraps":
        return row[np.arange(-reach, length + reach) % length]
    return np.pad(row, reach)


def read_at(storage: Array, places: Array) -> Array:
    """Codes at places of a flat storage; 0 outside of it."""
    inside = (places >= 0) & (places < storage.size)
    return np.where(inside, storage[np.where(inside, places, 0)], 0).astype(np.uint8)


def _shifted_row(storage: Array, firsts: Array, length: int, offset: int, edge: Edge) -> Array:
    """Rows that begin at ``firsts``, read at an offset: uint8 [rows, length]."""
    j = np.arange(length) + offset
    if edge == "next row":
        return read_at(storage, firsts[:, None] + j[None, :])
    rows = storage[firsts[:, None] + (j % length)[None, :]]
    return rows if edge == "wraps" else np.where((j >= 0) & (j < length), rows, 0).astype(np.uint8)


def _firsts(inputs: Inputs, name: str, batch: int, rows: Array, length: int) -> Array:
    """Where the rows of an operand begin in its storage, counted in its elements."""
    m, _, _ = inputs.shape
    if name in ("a", "sfa"):
        return (batch * m + rows) * length
    return np.full(rows.size, batch * n_padded * length)


def _shifted_scales(
    inputs: Inputs,
    mismatch: Mismatch,
    places: list[tuple[int, Array]],
    names: tuple[str, ...],
    edge: Edge,
) -> Iterator[Hypothesis]:
    k_blocks = inputs.sfa.shape[2]
    reach = _reach(k_blocks, edge)
    hits, total = np.zeros(2 * reach + 1), 0
    for batch, rows in places:
        operands = inputs.operands(batch, rows)
        weights = operands.unscaled()
        values = np.ones((rows.size, k_blocks + 2 * reach))
        for name in ("sfa", "sfb"):
            if name not in names:
                weights = weights * e4m3_values[getattr(operands, name)]
                continue
            flat = getattr(inputs, name).reshape(-1)
            windows = [
                _window(flat, int(first), k_blocks, reach, edge)
                for first in _firsts(inputs, name, batch, rows, k_blocks)
            ]
            values = values * e4m3_values[np.stack(windows)]
        sums = _correlation(weights, values)
        hits += agrees(mismatch.got[rows, batch][:, None], sums).sum(axis=0)
        total += rows.size
    for offset in _best(hits, np.arange(-reach, reach + 1), _good_share * total):
        operand = " and ".join(names)
        what = " and ".join(_names[name] for name in names) if len(names) == 1 else "all scales"
        way = "early" if offset > 0 else "late"
        count = "one block" if abs(offset) == 1 else f"{abs(offset)} blocks"
        why = cause(
            "scales.shift",
            operand=operand,
            blocks=offset,
            what=f"{what} are read {count} {way}, block j takes that of block "
            f"{signed('j', offset)}",
        )
        yield Misreading(why, _read_scales(names, offset, edge)).hypothesis(inputs)


def _read_scales(names: tuple[str, ...], offset: int, edge: Edge) -> Read:
    def read(inputs: Inputs, batch: int, rows: Array) -> Operands:
        k_blocks = inputs.sfa.shape[2]
        changed = {}
        for name in names:
            flat = getattr(inputs, name).reshape(-1)
            firsts = _firsts(inputs, name, batch, rows, k_blocks)
            read = _shifted_row(flat, firsts, k_blocks, offset, edge)
            changed[name] = read if name == "sfa" else read[0]
        return replace(inputs.operands(batch, rows), **changed)

    return read
