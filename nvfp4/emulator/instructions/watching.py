"""Notes who writes watched bytes."""

from __future__ import annotations

import numpy as np

from nvfp4.emulator.instructions.site import LaneSite
from nvfp4.emulator.names import short_name
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.source import shown
from nvfp4.emulator.state.order import Order
from nvfp4.emulator.state.watch import Watch, Writer


def note_writer(watch: Watch, at: LaneSite, address: Array, nbytes: int) -> None:
    """A lane is about to write ``nbytes`` at an address. Only what a launch does in the first
    order counts; other orders are tried and undone."""
    launch = at.batch.launch
    if launch.order != Order() or not watch.covers(address, nbytes).any():
        return
    place = at.site.location()
    cta, thread = at.batch.coordinates(at.lane)
    user = place.source.users() if place.source else None
    watch.note(
        Writer(
            short_name(launch.kernel),
            launch.grid,
            launch.block,
            cta,
            thread,
            shown(user.file) if user else None,
            user.line if user else None,
            user.text if user else at.site.instruction.text,
        )
    )


def last_lane(watch: Watch, address: Array, nbytes: int) -> int | None:
    """The position of the last of several accesses that touches the bytes."""
    found = np.flatnonzero(watch.covers(address, nbytes))
    return int(found[-1]) if found.size else None
