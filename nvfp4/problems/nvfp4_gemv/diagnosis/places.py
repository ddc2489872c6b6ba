"""Right values in wrong places."""

from collections.abc import Callable, Iterator

import numpy as np

from nvfp4.problems.nvfp4_gemv.diagnosis.causes import cause, signed
from nvfp4.problems.nvfp4_gemv.diagnosis.evidence import Hypothesis, Mismatch, agrees
from nvfp4.problems.nvfp4_gemv.diagnosis.inputs import Array

_sampled = 24
_good_share = 0.5

RowMap = Callable[[Array], Array]


def from_places(mismatch: Mismatch) -> Iterator[Hypothesis]:
    """Hypotheses by which c[i, 0, b] holds what belongs to another row or batch."""
    if mismatch.want.shape[1] > 1:
        yield from _batches(mismatch)
    for name, rows_of in _promising(mismatch):
        yield _moved(mismatch.want, rows_of, name)


def tried(m: int, l: int) -> int:
    """How many maps are tried."""
    return (3 * m + 200) * (l + 1)


def _moved(want: Array, rows_of: RowMap, name: str) -> Hypothesis:
    m, _ = want.shape

    def predict(batch: int, rows: Array) -> Array:
        places = rows_of(rows)
        inside = (places >= 0) & (places < m)
        return np.where(inside, want[np.where(inside, places, 0), batch], np.nan)

    return Hypothesis(cause("places.rows", source=name), predict)


def _batches(mismatch: Mismatch) -> Iterator[Hypothesis]:
    """Each batch holds the results of one."""
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


def _promising(mismatch: Mismatch) -> Iterator[tuple[str, RowMap]]:
    """Maps of rows that explain a sample of wrong elements."""
    m, _ = mismatch.want.shape
    places = [(batch, row) for batch, rows in mismatch.quick(_sampled) for row in rows.tolist()]
    batches, rows = (np.array(each) for each in zip(*places, strict=True))
    # Where among all rows each value could come from: bool [rows of c, elements].
    fits = agrees(mismatch.got[rows, batches][None, :], mismatch.want[:, batches])
    if fits.any(axis=0).mean() < _good_share:
        return
    number = np.arange(rows.size)
    for name, rows_of in _maps(m, rows, fits):
        source = rows_of(rows)
        inside = (source >= 0) & (source < m)
        hit = fits[np.where(inside, source, 0), number] & inside
        if hit.mean() >= _good_share:
            yield name, rows_of


def _maps(m: int, rows: Array, fits: Array) -> Iterator[tuple[str, RowMap]]:
    yield from _offsets(m, rows, fits)
    bit = 1
    while bit < m:
        for flipped in {bit, 2 * bit - 1, 3 * bit}:
            if flipped < m:
                yield f"row i ^ {flipped}", _flipped(flipped)
        bit *= 2
    sizes = [2**n for n in range(1, m.bit_length()) if 2**n <= m] + ([m] if m & (m - 1) else [])
    for size in sizes:
        if size < m:
            yield from _of_groups(size, m)
        if size & (size - 1):  # of a power of two it is i ^ (size - 1)
            yield f"row {m - 1} - i", _reversed(size)
        yield from _transposed(size, m)


def _flipped(bits: int) -> RowMap:
    return lambda i: i ^ bits


def _reversed(size: int) -> RowMap:
    return lambda i: size - 1 - i


def _shifted(offset: int, wrap: int = 0) -> RowMap:
    return lambda i: (i + offset) % wrap if wrap else i + offset


def _of_groups(size: int, m: int) -> Iterator[tuple[str, RowMap]]:
    """Rows by their number in a group of so many, or by the group's."""
    yield f"row i % {size}", lambda i: i % size
    yield f"row i - i % {size}", lambda i: i - i % size
    yield f"row i // {size}", lambda i: i // size
    yield f"row i * {size}", lambda i: i * size
    yield f"row i * {size} % {m}", lambda i: i * size % m


def _transposed(size: int, m: int) -> Iterator[tuple[str, RowMap]]:
    """Tiles of so many rows seen as [p, q] and written as [q, p]."""
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


def _offsets(m: int, rows: Array, fits: Array) -> Iterator[tuple[str, RowMap]]:
    """Offsets that explain most of the sample, by counting them all."""
    source, element = np.nonzero(fits)
    offsets = source - rows[element]
    counts = np.bincount(offsets + m, minlength=2 * m)
    wrapped = np.bincount(offsets % m, minlength=m)
    best = np.argsort(-counts, kind="stable")[:4]
    for offset in (best - m).tolist():
        if offset:
            yield f"row {signed('i', offset)}", _shifted(offset)
    for offset in np.argsort(-wrapped, kind="stable")[:2].tolist():
        if offset and wrapped[offset] > max(counts[offset + m], counts[offset]):
            yield f"row (i + {offset}) % {m}", _shifted(offset, m)
