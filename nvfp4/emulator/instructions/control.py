"""Where a block goes next: branches, exits, traps. Called from generated code."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from nvfp4.emulator.errors import DeviceTrap
from nvfp4.emulator.instructions import peers
from nvfp4.emulator.instructions.action import Site
from nvfp4.emulator.loops import loop
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.batch import Execution
from nvfp4.emulator.state.group import Group


@dataclass
class Divergence:
    """The group's lanes go different ways: (flat mask over the group, next block).

    guard: of a branch, which is taken where it holds. warps: with lanes on the way of a branch that
    is taken, and on the other.
    """

    ways: list[tuple[Array, int]]
    guard: Array | None = None
    warps: tuple[int, int] = (0, 0)


# A block for the whole group, or None if no lane of it goes on now.
Next: TypeAlias = int | Divergence | None


def branch(ex: Execution, taken: int, following: int) -> Next:
    """`bra` under a guard."""
    assert ex.guard is not None
    if ex.guard.size == 1:
        return taken if ex.guard.reshape(-1)[0] else following
    if ex.guard.all():
        return taken
    if not ex.guard.any():
        return following
    mask = ex.mask()
    on_one, on_other, on_both = _warps(mask, ex.group.warp)
    ex.batch.traffic.divergent_branches += on_both
    return Divergence([(mask, taken), (~mask, following)], ex.guard, (on_one, on_other))


def multiway(
    ex: Execution, site: Site, selector: Array, targets: list[int], following: int
) -> Next:
    """`brx.idx`: each lane goes to the target that its selector names."""
    index = ex.group.spread(selector)
    active = ex.mask()
    wild = np.flatnonzero(active & (index >= len(targets)))
    if wild.size:
        site.lane(ex.batch, ex.group.lanes[wild[0]]).fault(
            DeviceTrap, f"brx.idx with index {int(index[wild[0]])} of {len(targets)} targets"
        )
    ways = [(active & (index == i), target) for i, target in enumerate(targets)]
    ways.append((~active, following))
    ways = [(mask, target) for mask, target in ways if mask.any()]
    if len(ways) == 1:
        return ways[0][1]
    ex.batch.traffic.divergent_branches += _divided_warps(ex.group, ways)
    return Divergence(ways)


@loop
def _warps(mask, warp):  # type: ignore[no-untyped-def]
    """Warps with a lane where mask holds, with one where it does not, and with both. Lanes of a
    warp stand next to each other."""
    one = other = both = 0
    i = 0
    while i < mask.size:
        number = warp[i]
        some = every = mask[i]
        while i < mask.size and warp[i] == number:
            some |= mask[i]
            every &= mask[i]
            i += 1
        one += some
        other += not every
        both += some and not every
    return one, other, both


def _divided_warps(group: Group, ways: list[tuple[Array, int]]) -> int:
    """Warps with lanes on more than one way. Each lane of the group is on exactly one."""
    warp = group.warp
    first = np.flatnonzero(np.concatenate(([True], warp[1:] != warp[:-1])))
    used = [np.logical_or.reduceat(mask, first) for mask, _ in ways]
    return int(np.count_nonzero(np.sum(used, axis=0) > 1))


def finish(ex: Execution, following: int) -> Next:
    """`exit`, and `ret` of the kernel."""
    lanes = ex.lanes()
    if lanes.size == 0:
        return following
    ex.batch.exit(lanes)
    peers.leave(ex.batch, lanes)
    if lanes.size == ex.group.lanes.size:
        return None
    return Divergence([(~ex.mask(), following)])


def trap(ex: Execution, site: Site, following: int) -> Next:
    """`trap` ends the launch with an error."""
    lanes = ex.lanes()
    if lanes.size:
        site.lane(ex.batch, lanes[0]).fault(DeviceTrap, "the kernel executed trap")
    return following
