"""Tensor memory: 512 columns of 128 lanes of 32 bits for each CTA, allocated by columns.

An address is lane << 16 | column. Arrays are [column, lane], so that columns lie side by side.
Source: PTX ISA, Tensor Memory.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future

import numpy as np

from nvfp4.emulator.errors import UninitialisedRegister
from nvfp4.emulator.loops import background, loop
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.batch import Batch, Origin

LANES, COLUMNS = 128, 512
LEAST_COLUMNS = 32
_LANE_SHIFT = 16
_SHARED_OF_TWO = 114 << 10
"""Bytes of shared memory of a CTA above which a multiprocessor holds only one."""
_LEAST_LATER, _MOST_LATER = 4, 64
"""Least number of CTAs whose words are changed in the background, and limit on waiting changes."""


def split_address(address: int) -> tuple[int, int]:
    """Return (lane, column) of an address."""
    return address >> _LANE_SHIFT & 0xFFFF, address & 0xFFFF


def in_words(address: int) -> str:
    """Return an address for messages."""
    lane, column = split_address(address)
    return f"lane {lane}, column {column}"


@loop
def _fill(words, ctas, first, columns):  # type: ignore[no-untyped-def]
    """Set columns of these CTAs' words, from the first on."""
    for i in range(ctas.shape[0]):
        words[ctas[i], first : first + columns.shape[0]] = columns


class CtaTensorMemory:
    """The tensor memory of one CTA.

    defined, owners: its part of the batch's. allocated: columns by first column. permitted: whether
    the CTA may still allocate. origins: by column, where undefined values come from that were put
    there; the place is a clause.
    """

    def __init__(self, whole: "TensorMemory", row: int) -> None:
        self._whole, self._row = whole, row
        self.defined, self.owners = whole.defined[row], whole.owners[row]
        self.allocated: dict[int, int] = {}
        self.permitted = True
        self.origins: dict[int, Origin] = {}

    @property
    def words(self) -> Array:
        """Its part of the batch's words."""
        return self._whole.words()[self._row]

    def allocate(self, first: int, count: int) -> bool:
        """Give these columns to the CTA; `TensorMemory.fill` comes next. Returns whether it had any
        of them before."""
        self.allocated[first] = count
        columns = slice(first, first + count)
        again = bool((self.owners[columns] == -2).any())
        self.owners[columns] = first
        self.defined[columns] = self._whole.whole[self._row, columns] = False
        return again

    def free(self, first: int) -> None:
        """Free the allocation that starts at a column."""
        count = self.allocated.pop(first)
        self.owners[first : first + count] = -2

    def put_undefined(
        self, columns: Iterable[int], line: int, origin: Origin | None = None
    ) -> None:
        """Record that a PTX line writes undefined values to columns. origin: where they come from,
        unless from a register or shared memory."""
        text = f"where PTX line {line} has written undefined values"
        origin = origin or Origin(UninitialisedRegister, text)
        self.origins.update(dict.fromkeys(columns, origin))
        self._whole.whole[self._row, list(columns)] = False

    def trouble(self, column: int, count: int) -> str | None:
        """Describe why `count` columns from `column` on cannot be accessed; None if they can."""
        if not 0 <= column <= COLUMNS - count:
            return f"columns {column} to {column + count - 1} of {COLUMNS}"
        owners = self.owners[column : column + count]
        bad = np.flatnonzero(owners < 0)
        if not bad.size:
            return None
        first = column + int(bad[0])
        if owners[bad[0]] == -2:
            return f"column {first}, which has been freed"
        held = ", ".join(f"{a} to {a + n - 1}" for a, n in sorted(self.allocated.items()))
        others = f" (columns {held} are)" if held else ""
        return f"column {first}, which is not allocated{others}"


class TensorMemory:
    """The tensor memory of a batch's CTAs.

    rows: that of each CTA of the batch. defined: whether something meaningful was written to a
    word, bool[CTA, column, lane]. whole: columns all of whose words are known to be defined,
    bool[CTA, column]. owners: int32[CTA, column], the first column of the allocation that a column
    belongs to, -1 where it was never allocated, -2 where it was freed.
    """

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        ctas = batch.grid.ctas
        cells = (ctas, COLUMNS, LANES)
        self._words = batch.launch.lend("tensor words", cells, np.uint32)[:ctas]
        self._later: deque[tuple[slice, Future[None]]] = deque()
        self.defined = batch.launch.lend("tensor flags", cells, np.bool_)
        self.whole = np.zeros((ctas, COLUMNS), np.bool_)
        self.owners = np.full((ctas, COLUMNS), -1, np.int32)
        self.rows = [CtaTensorMemory(self, row) for row in range(ctas)]
        self.noise = batch.launch.order.bytes(4 * LANES * COLUMNS, salt=4).view(np.uint32)

    def words(self, columns: slice = slice(COLUMNS)) -> Array:
        """Return the words, uint32[CTA, column, lane], once these columns have all changes that
        were made with ``change_later``."""
        first = columns.start or 0
        if any(each.start < columns.stop and first < each.stop for each, _ in self._later):
            while self._later:
                self._later.popleft()[1].result()
        return self._words

    def change_later(
        self, rows: Array, columns: slice, change: Callable[[Array, slice], None]
    ) -> None:
        """Call `change(words, positions in rows)` for these CTAs, which are sorted, in the
        background, after all changes of the same CTAs before. It changes only these columns and
        reads no others."""
        if rows.size < _LEAST_LATER:
            change(self.words(columns), slice(rows.size))
            return
        while self._later and (len(self._later) >= _MOST_LATER or self._later[0][1].done()):
            self._later.popleft()[1].result()
        half = int(np.searchsorted(2 * rows, len(self._words)))
        for thread, part in zip(background, (slice(half), slice(half, rows.size)), strict=True):
            if rows[part].size:
                self._later.append((columns, thread.submit(change, self._words, part)))

    def fill(self, rows: Array, first: int, count: int) -> None:
        """Fill columns of these CTAs, which were just allocated, with noise."""
        noise = self.noise[: count * LANES].reshape(count, LANES)

        def change(words: Array, which: slice) -> None:
            _fill(words, rows[which], first, noise)

        self.change_later(rows, slice(first, first + count), change)

    def room_for(self, rows: Sequence[int], count: int) -> int | None:
        """The first of `count` adjacent columns that are free in these CTAs, one or a pair; None
        while there are none."""
        free = np.logical_and.reduce([self.rows[row].owners < 0 for row in rows])
        starts = range(0, COLUMNS - count + 1, LEAST_COLUMNS)
        shares = self.batch.shared.size < _SHARED_OF_TWO
        # As if another CTA of the multiprocessor held the first columns.
        from_above = shares and self.batch.numbers[rows[0]] // len(rows) & 1
        ordered = reversed(starts) if from_above else starts
        return next((first for first in ordered if free[first : first + count].all()), None)
