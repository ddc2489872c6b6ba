"""What the model needs of an emulated launch."""

from __future__ import annotations

from nvfp4.emulator import EmulatorError, Launch, LaunchReport
from nvfp4.emulator.rendering import by_ptx_line
from nvfp4.model.prediction import Counted
from nvfp4.model.traffic import accesses


def counted(launch: Launch, report: LaunchReport) -> Counted:
    """A launch with what it has executed and asked of memory."""
    try:
        asked = accesses(launch)
    except EmulatorError:  # thread blocks that wait for others cannot run alone
        asked = {}
    return Counted(
        ptx=launch.ptx,
        kernel=launch.kernel,
        grid=launch.grid,
        block=launch.block,
        shared_bytes=report.shared_bytes,
        runs=by_ptx_line(report),
        accesses=asked,
    )
