"""What the model needs of an emulated launch."""

from __future__ import annotations

from nvfp4.emulator import EmulatorError, Launch, LaunchReport
from nvfp4.emulator.rendering import by_ptx_line
from nvfp4.model.prediction import Counted
from nvfp4.model.traffic import Access, accesses


def counted(launch: Launch, report: LaunchReport) -> Counted:
    """A launch with what it has executed and asked of memory."""
    return Counted(
        ptx=launch.ptx,
        kernel=launch.kernel,
        grid=launch.grid,
        block=launch.block,
        shared_bytes=report.shared_bytes,
        runs=by_ptx_line(report),
        accesses=accesses_of(launch),
    )


def accesses_of(launch: Launch) -> dict[int, Access]:
    """By line of the PTX; nothing of thread blocks that cannot run without others."""
    try:
        return accesses(launch)
    except EmulatorError:
        return {}
