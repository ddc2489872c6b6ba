"""Where a block goes next: branches, exits, traps. Called from generated code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nvfp4.emulator.engine.action import Site
from nvfp4.emulator.engine.batch import Batch
from nvfp4.emulator.engine.group import Group
from nvfp4.emulator.errors import DeviceTrap, UninitialisedRegister

Array = np.ndarray[Any, Any]


@dataclass
class Parting:
    """The group's lanes go different ways: (flat mask over the group, next block)."""

    ways: list[tuple[Array, int]]


Next = int | Parting | None


def branch(batch: Batch, group: Group, guard: Array, taken: int, following: int) -> Next:
    """A guarded branch; counts the warps whose threads part."""
    if guard.size == 1:
        return taken if guard.reshape(-1)[0] else following
    if guard.all():
        return taken
    if not guard.any():
        return following
    mask = group.spread(guard)
    batch.traffic.divergent_branches += _split_warps(group, mask)
    return Parting([(mask, taken), (~mask, following)])


def _split_warps(group: Group, mask: Array) -> int:
    """Warps with lanes on both sides of a mask."""
    warp = group.warp
    first = np.flatnonzero(np.concatenate(([True], warp[1:] != warp[:-1])))
    taking = np.add.reduceat(mask.astype(np.int64), first)
    size = np.diff(np.append(first, warp.size))
    return int(np.count_nonzero((taking > 0) & (taking < size)))


def multiway(
    batch: Batch,
    group: Group,
    site: Site,
    guard: Array | None,
    selector: Array,
    targets: list[int],
    following: int,
) -> Next:
    """`brx.idx`: each lane goes to the target its selector names."""
    index = group.spread(selector)
    active = np.ones(index.size, np.bool_) if guard is None else group.spread(guard)
    wild = np.flatnonzero(active & (index >= len(targets)))
    if wild.size:
        raise site.fail(
            DeviceTrap,
            f"brx.idx with index {int(index[wild[0]])} of {len(targets)} targets",
            batch,
            int(group.lanes[wild[0]]),
        )
    ways = [(active & (index == i), target) for i, target in enumerate(targets)]
    ways.append((~active, following))
    ways = [(mask, target) for mask, target in ways if mask.any()]
    if len(ways) == 1:
        return ways[0][1]
    batch.traffic.divergent_branches += 1
    return Parting(ways)


def finish(batch: Batch, group: Group, guard: Array | None, following: int) -> Next:
    """`exit` and `ret` of the kernel."""
    if guard is not None:
        mask = group.spread(guard)
        if not mask.any():
            return following
        if not mask.all():
            batch.scheduler.exit(group.lanes[mask])
            return Parting([(~mask, following)])
    batch.scheduler.exit(group.lanes)
    return None


def trap(batch: Batch, group: Group, site: Site, guard: Array | None, following: int) -> Next:
    """`trap` ends the launch with an error."""
    mask = np.ones(1, np.bool_) if guard is None else group.spread(guard)
    if not mask.any():
        return following
    lane = int(group.lanes[np.flatnonzero(mask)[0]])
    raise site.fail(DeviceTrap, "the kernel executed trap", batch, lane)


def check_set(
    batch: Batch,
    group: Group,
    site: Site,
    flag: Array,
    guard: Array | None,
    name: str,
    origins: list[str],
) -> None:
    """Raise unless the register was set in all lanes that take part.

    origins: other registers that its value may come from and that may be unset.
    """
    if flag.all():
        return
    unset = ~group.spread(flag)
    if guard is not None:
        unset &= group.spread(guard)
    if unset.any():
        lane = int(group.lanes[np.flatnonzero(unset)[0]])
        text = f"register {name} is used before anything set it"
        if origins:
            text = f"register {name} is unset, or comes from an unset one ({', '.join(origins)})"
        raise site.fail(UninitialisedRegister, text, batch, lane)
