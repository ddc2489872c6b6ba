"""What the model needs of an emulated launch."""

from nvfp4.emulator import EmulatorError, Launch, LaunchReport
from nvfp4.emulator.cost import KernelCost
from nvfp4.model.prediction import Counted
from nvfp4.model.traffic import SECTOR_BYTES, Sampled
from nvfp4.model.traffic import sampled as sampled_accesses

Samples = dict[int, Sampled] | None
"""As of `traffic.sampled`; None where thread blocks cannot run without others."""


def counted(launch: Launch, report: LaunchReport, samples: Samples) -> Counted:
    """A launch with what it has executed and asked of memory. samples: as of `accesses_of`, before
    it ran."""
    assert report.work is not None
    return Counted(
        ptx=launch.ptx,
        kernel=launch.kernel,
        grid=launch.grid,
        block=launch.block,
        shared_bytes=report.shared_bytes,
        work=report.work,
        samples=samples,
        read_bytes=SECTOR_BYTES * report.sectors_read,
    )


def sampled(cost: KernelCost, samples: Samples) -> Counted:
    """The same of a launch of which some CTAs ran for their costs. samples: see `accesses_of`."""
    assert cost.work is not None
    return Counted(
        ptx=cost.ptx,
        kernel=cost.entry,
        grid=cost.grid,
        block=cost.block,
        shared_bytes=cost.shared_bytes,
        work=cost.work,
        samples=samples,
    )


def accesses_of(launch: Launch) -> Samples:
    """By statement; None where thread blocks cannot run without others. Before the launch: a kernel
    could tell what it has left from what it finds."""
    try:
        return sampled_accesses(launch)
    except EmulatorError:
        return None
