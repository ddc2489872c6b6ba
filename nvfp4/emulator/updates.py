"""How often a launch updates each word of global memory by atomics, which take turns in the L2."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import field

import numpy as np

from nvfp4.emulator.arrays import Array, begin_of_runs, halves_of, pairs_of
from nvfp4.records.base import Record

_WARP = 32
_SECTOR, _PIECE = np.uint64(5), np.uint64(9)
"""Shifts from an address to its sector and to its piece of 512 bytes."""
_MOST_PLACES = 1 << 19


class Updates(Record):
    """How often atomics update each place, which is a word or a piece of 512 bytes. Each array has
    one element for each place."""

    place: Array
    """Addresses, or numbers of pieces, ascending."""
    times: Array
    """Updates of lanes, or requests of a piece's sectors."""
    of_warps: Array
    """The same, where the lanes of a warp that update a word at once count once."""
    of_whole_warps: Array
    """The same, where they do if they are all 32."""
    last: Array
    """The largest number of a CTA that updates it."""
    first: Array
    """The smallest one, negated."""


class UpdateCounter(Record, frozen=False):
    """Collects the updates of a launch."""

    requests: int = 0
    """Requests of sectors."""
    _words: dict[int, list[Updates]] = field(default_factory=lambda: defaultdict(list))
    _pieces: list[Updates] = field(default_factory=list)

    def note(self, start: int, address: Array, warp: Array, cta: Array) -> None:
        """Record the word that each lane updates. start: the statement's position in the PTX text.
        warp: of the batch. cta: of the grid."""
        if not address.size:
            return
        pairs, at, lanes = np.unique(pairs_of(warp, address), return_index=True, return_counts=True)
        whole = np.where(lanes == _WARP, 1, lanes)
        _add(self._words[start], address[at], [lanes, np.ones_like(lanes), whole], cta[at])
        _, of_pair = np.unique(pairs >> _SECTOR, return_index=True)
        ones = np.ones(of_pair.size, np.int64)
        _add(self._pieces, halves_of(pairs[of_pair])[1] >> _PIECE, [ones] * 3, cta[at[of_pair]])
        self.requests += of_pair.size

    def found(self) -> tuple[dict[int, Updates], Updates | None]:
        """Return the words that each statement updates, by its position, and the pieces."""
        words = {start: _joined(parts) for start, parts in self._words.items()}
        return words, _joined(self._pieces) if self._pieces else None


def _add(parts: list[Updates], place: Array, times: list[Array], cta: Array) -> None:
    """Add updates; if these are too many places, keep those with the most."""
    parts.append(_joined([Updates(*[place, *times, cta, -cta])]))
    if sum(each.place.size for each in parts) > 2 * _MOST_PLACES:
        whole = _joined(parts)
        kept = np.sort(np.argsort(whole.times)[-_MOST_PLACES:])
        parts[:] = [Updates(*(each[kept] for each in vars(whole).values()))]


def _joined(parts: Sequence[Updates]) -> Updates:
    columns = zip(*(vars(each).values() for each in parts), strict=True)
    place, *others = (np.concatenate(each) for each in columns)
    order = np.argsort(place, kind="stable")
    place = place[order]
    begin = np.flatnonzero(begin_of_runs(place))
    ways = (np.add,) * 3 + (np.maximum,) * 2
    found = (w.reduceat(each[order], begin) for w, each in zip(ways, others, strict=True))
    return Updates(place[begin], *found)
