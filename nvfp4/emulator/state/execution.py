"""One instruction as a group of threads executes it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.batch import Batch
from nvfp4.emulator.state.group import Group


class Execution(NamedTuple):
    """guard: a predicate register of the group, or None if all of its lanes take part."""

    batch: Batch
    group: Group
    guard: Array | None

    def mask(self) -> Array:
        """Whether each lane of the group takes part: bool[lanes]."""
        if self.guard is None:
            return np.ones(self.group.lanes.size, np.bool_)
        return self.group.spread(self.guard)

    def positions(self) -> Array:
        """Positions in the group of the lanes that take part."""
        if self.guard is None:
            return np.arange(self.group.lanes.size)
        return np.flatnonzero(self.group.spread(self.guard))

    def some_positions(self) -> Array | None:
        """As `positions`, but None if all lanes take part."""
        if self.guard is None:
            return None
        mask = self.group.spread(self.guard)
        return None if mask.all() else np.flatnonzero(mask)

    def lanes(self) -> Array:
        """Numbers in the batch of the lanes that take part."""
        chosen = self.some_positions()
        return self.group.lanes if chosen is None else self.group.lanes[chosen]
