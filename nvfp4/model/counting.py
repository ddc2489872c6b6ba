"""Inputs of the model from an emulated launch, and from one that a compiler's flag would give."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nvfp4 import emulator
from nvfp4.emulator import Launch, LaunchReport
from nvfp4.emulator.cost import KernelCost
from nvfp4.emulator.errors import NoArrivals
from nvfp4.emulator.software import CODE, software_lines
from nvfp4.emulator.work import SECTOR_BYTES
from nvfp4.model.prediction import GPUS, Counted, predict

_MOST_INSTRUCTIONS = 200_000
_LONGEST_S = 10.0


def counted(launch: Launch, report: LaunchReport) -> Counted:
    """Return a launch with its executed instructions and memory requests."""
    assert report.work is not None
    return Counted(
        ptx=launch.ptx,
        kernel=launch.kernel,
        grid=launch.grid,
        block=launch.block,
        shared_bytes=report.shared_bytes,
        work=report.work,
        read_bytes=SECTOR_BYTES * report.sectors_read,
        undefined=next((e.message for e in report.findings if e.code == NoArrivals.code), ""),
    )


def sampled(cost: KernelCost) -> Counted:
    """Return a launch of which only some CTAs ran, for their costs."""
    assert cost.work is not None
    return Counted(
        ptx=cost.ptx,
        kernel=cost.entry,
        grid=cost.grid,
        block=cost.block,
        shared_bytes=cost.shared_bytes,
        work=cost.work,
    )


def counted_with_suffix(
    launch: Launch, admit: Callable[[Launch], object] = lambda launch: None
) -> Counted | None:
    """A launch of the code for the own architecture, of which some thread blocks run, and memory
    stays as it was; None where it would be no other, or cannot be run. admit: raises EmulatorError
    for what shall not run."""
    if not launch.with_suffix or not software_lines(launch.ptx):
        return None
    latest = min(launch.deadline or math.inf, time.monotonic() + _LONGEST_S)
    other = replace(launch, ptx=launch.with_suffix, with_suffix="", deadline=latest)
    try:
        admit(other)
        return sampled(emulator.cost_of(other, _MOST_INSTRUCTIONS, tries=True))
    except Exception:  # it is advice: whatever is wrong with it, the launch itself is judged
        return None


def advise(
    reports: Sequence[Mapping[str, Any]],
    whole_us: float | None,
    launches: Sequence[Counted],
    model: str,
    clean: bool,
    copied: Sequence[int] = (),
) -> None:
    """Add to findings of software conversions what a call would take with the flag. reports: of
    launches, as plain values; whole_us: predicted of the call as it is, None for no prediction.
    launches: those with the flag. copied: as of `predict`."""
    if whole_us is None:
        return
    try:
        other_us = predict(GPUS[model], list(launches), clean, copied).us
    except Exception:  # the prediction of the call as it is stays
        return
    times = f": {other_us:.1f} us instead of {whole_us:.1f}, predicted on a {model}"
    for report in reports:
        for finding in report["findings"]:
            if finding["code"] == CODE:
                finding["hint"] += times
