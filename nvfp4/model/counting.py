"""What the model needs of an emulated launch."""

from __future__ import annotations

from nvfp4.emulator import EmulatorError, Launch, LaunchReport
from nvfp4.emulator.cost import KernelCost
from nvfp4.emulator.rendering import by_ptx_line
from nvfp4.model.prediction import Counted
from nvfp4.model.traffic import SECTOR_BYTES, Access, accesses


def counted(launch: Launch, report: LaunchReport, asked: dict[int, Access]) -> Counted:
    """A launch with what it has executed and asked of memory. asked: as of ``accesses_of``, before
    it ran."""
    return Counted(
        ptx=launch.ptx,
        kernel=launch.kernel,
        grid=launch.grid,
        block=launch.block,
        shared_bytes=report.shared_bytes,
        runs=by_ptx_line(report),
        accesses=asked,
        read_bytes=SECTOR_BYTES * report.sectors_read,
    )


def sampled(cost: KernelCost, asked: dict[int, Access]) -> Counted:
    """The same of a launch of which some CTAs ran for their costs. asked: see `accesses_of`."""
    return Counted(
        ptx=cost.ptx,
        kernel=cost.entry,
        grid=cost.grid,
        block=cost.block,
        shared_bytes=cost.shared_bytes,
        runs={number: count // cost.launches for number, (count, *_) in cost.ptx_lines.items()},
        accesses=asked,
    )


def accesses_of(launch: Launch, drawn: bool = False) -> dict[int, Access]:
    """By line of the PTX; nothing of thread blocks that cannot run without others. Before the
    launch: a kernel could tell what it has left from what it finds. drawn: as of ``accesses``."""
    try:
        return accesses(launch, drawn)
    except EmulatorError:
        return {}
