"""Operands and scales that are read at an offset, or from another row of b.

All offsets are tried at once on a sample: for each wrong element the sum is a correlation of
weights with the operand's storage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from nvfp4.contract.task import n_padded
from nvfp4.judge.diagnosis.causes import Cause, cause, signed
from nvfp4.judge.diagnosis.evidence import Hypothesis, Mismatch, agrees
from nvfp4.judge.diagnosis.inputs import (
    Array,
    Inputs,
    Operands,
    codes_of,
    e4m3_values,
    packed_of,
    unpacked,
)
from nvfp4.judge.diagnosis.misreadings import Misreading, Read, other_row, permuted_place

_rows_of_scales, _rows_of_elements = 6, 3
_good_share = 0.6
_kept = 3
_permuted_reach = 4096
_names = {"sfa": "the scales of a", "sfb": "the scales of b"}

Edge = str
"""What is read past the ends of a row: "next row", "wraps" or "zero"."""

_edges: tuple[Edge, ...] = ("next row", "wraps", "zero")


def tried(k: int) -> int:
    """How many offsets are tried."""
    return 12 * k


def shifted(inputs: Inputs, mismatch: Mismatch) -> Iterator[Hypothesis]:
    """Hypotheses by which an operand is read at an offset."""
    quick = mismatch.quick(_rows_of_scales)
    for names in (("sfa",), ("sfb",), ("sfa", "sfb")):
        for edge in _edges:
            yield from _shifted_scales(inputs, mismatch, quick, names, edge)
    for name in ("sfa", "sfb"):
        yield from _shifted_permuted(inputs, mismatch, quick, name)
    few = mismatch.quick(_rows_of_elements)
    for name in ("a", "b"):
        for edge in _edges:
            yield from _shifted_elements(inputs, mismatch, few, name, edge)
    yield from _other_rows(inputs, mismatch, few)


def _hypothesis(inputs: Inputs, why: Cause, read: Read) -> Hypothesis:
    return Misreading(why, read).hypothesis(inputs)


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
        yield _hypothesis(inputs, why, _read_scales(names, offset, edge))


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


def _shifted_permuted(
    inputs: Inputs, mismatch: Mismatch, places: list[tuple[int, Array]], name: str
) -> Iterator[Hypothesis]:
    """Offsets in bytes of the permuted storage: all small ones, then whole rows and tiles."""
    near = np.arange(-64, 65)
    rows_of_tile = np.arange(-512, 513, 16)
    tiles = np.arange(-_permuted_reach, _permuted_reach + 1, 512)
    offsets = np.unique(np.concatenate([near, rows_of_tile, tiles]))
    storage = getattr(inputs, f"{name}_permuted")
    hits, total = np.zeros(offsets.size), 0
    for batch, rows in places:
        operands = inputs.operands(batch, rows)
        other = operands.sfb if name == "sfa" else operands.sfa
        weights = operands.unscaled() * e4m3_values[other]
        at = _permuted_places(inputs, name, batch, rows)
        for row in range(rows.size):
            base = at[row if name == "sfa" else 0]
            values = e4m3_values[read_at(storage, base[None, :] + offsets[:, None])]
            sums = values @ weights[row]
            hits += agrees(mismatch.got[rows[row], batch], sums)
            total += 1
    for offset in _best(hits, offsets, _good_share * total):
        way = "past" if offset > 0 else "before"
        why = cause(
            "scales.shift",
            operand=f"{name}_permuted",
            bytes=offset,
            what=f"{name}_permuted is read {abs(offset)} bytes {way} its place",
        )

        def read(inputs: Inputs, batch: int, rows: Array, offset: int = offset) -> Operands:
            at = _permuted_places(inputs, name, batch, rows)
            scales = read_at(getattr(inputs, f"{name}_permuted"), at + offset)
            right = inputs.operands(batch, rows)
            return replace(right, **{name: scales if name == "sfa" else scales[0]})

        yield _hypothesis(inputs, why, read)


def _permuted_places(inputs: Inputs, name: str, batch: int, rows: Array) -> Array:
    if name == "sfa":
        return permuted_place(inputs, batch, rows, -(-inputs.shape[0] // 128))
    return permuted_place(inputs, batch, np.zeros(1, np.int64), 1)


def _shifted_elements(
    inputs: Inputs, mismatch: Mismatch, places: list[tuple[int, Array]], name: str, edge: Edge
) -> Iterator[Hypothesis]:
    _, k, _ = inputs.shape
    reach = min(k, _reach(k, edge))
    hits, total = np.zeros(2 * reach + 1), 0
    for batch, rows in places:
        operands = inputs.operands(batch, rows)
        scale = np.repeat(e4m3_values[operands.sfa] * e4m3_values[operands.sfb], 16, axis=1)
        other = operands.b if name == "a" else operands.a
        weights = scale * unpacked(other)
        windows = []
        for first in _firsts(inputs, name, batch, rows, k).tolist():
            low = (first - reach) // 2 - 1  # in bytes: a few rows of a large storage
            nbytes = np.arange(low, low + k // 2 + reach + 2)
            near = codes_of(read_at(getattr(inputs, name).reshape(-1), nbytes))
            windows.append(_window(near, first - 2 * low, k, reach, edge))
        values = unpacked_codes(np.stack(windows))
        sums = _correlation(weights, values)
        hits += agrees(mismatch.got[rows, batch][:, None], sums).sum(axis=0)
        total += rows.size
    for offset in _best(hits, np.arange(-reach, reach + 1), _good_share * total):
        why = cause("operands.shift", operand=name, elements=offset, place=signed("k", offset))
        yield _hypothesis(inputs, why, _read_elements(name, offset, edge))


def unpacked_codes(codes: Array) -> Array:
    """Values of E2M1 codes."""
    return unpacked(np.arange(16, dtype=np.uint8))[::2][codes]


def _read_elements(name: str, offset: int, edge: Edge) -> Read:
    def read(inputs: Inputs, batch: int, rows: Array) -> Operands:
        _, k, _ = inputs.shape
        flat = getattr(inputs, name).reshape(-1)
        firsts = _firsts(inputs, name, batch, rows if name == "a" else rows[:1], k)
        place = np.arange(k) + offset
        if edge != "next row":
            inside = (place >= 0) & (place < k)
            place = place % k
        at = firsts[:, None] + place[None, :]
        codes = (read_at(flat, at // 2) >> (4 * (at % 2)).astype(np.uint8)) & 15
        if edge == "zero":
            codes = np.where(inside, codes, 0).astype(np.uint8)
        packed = packed_of(codes)
        return replace(inputs.operands(batch, rows), **{name: packed if name == "a" else packed[0]})

    return read


def _other_rows(
    inputs: Inputs, mismatch: Mismatch, places: list[tuple[int, Array]]
) -> Iterator[Hypothesis]:
    """b, sfb or both of another row than 0."""
    kinds: dict[tuple[str, ...], Callable[[Operands, Array, Array], Array]] = {
        ("b",): _sums_of_b,
        ("sfb",): _sums_of_sfb,
        ("b", "sfb"): _sums_of_both,
    }
    places = places[-1:]
    for names, sums_of in kinds.items():
        hits, total = np.zeros(n_padded), 0
        for batch, rows in places:
            operands = inputs.operands(batch, rows[:2])
            sums = sums_of(operands, inputs.b[batch], inputs.sfb[batch])
            hits += agrees(mismatch.got[rows[:2], batch][:, None], sums).sum(axis=0)
            total += rows[:2].size
        for row in _best(hits, np.arange(n_padded), _good_share * total):
            why = cause("rows.other", operand=" and ".join(names), row=row)
            yield _hypothesis(inputs, why, other_row(row, *names))


def _sums_of_b(operands: Operands, b: Array, sfb: Array) -> Array:
    scale = e4m3_values[operands.sfa] * e4m3_values[operands.sfb]
    weights = unpacked(operands.a) * np.repeat(scale, 16, axis=1)
    return _times(weights, unpacked(b))


def _sums_of_sfb(operands: Operands, b: Array, sfb: Array) -> Array:
    return _times(operands.unscaled() * e4m3_values[operands.sfa], e4m3_values[sfb])


def _sums_of_both(operands: Operands, b: Array, sfb: Array) -> Array:
    scaled = unpacked(operands.a) * np.repeat(e4m3_values[operands.sfa], 16, axis=1)
    return _times(scaled, unpacked(b) * np.repeat(e4m3_values[sfb], 16, axis=1))


def _times(rows: Array, others: Array) -> Array:
    """All scalar products. Too small for the threads of a matrix product to be worth while."""
    return np.einsum("rk,nk->rn", rows, others)
