"""Inputs of the model: an emulated launch, the launch that a compiler's flag would give, and
predicted times of lines of source."""

import math
import re
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nvfp4.emulator import Launch, LaunchReport, cost_of
from nvfp4.emulator.cost import KernelCost
from nvfp4.emulator.errors import NoArrivals
from nvfp4.emulator.software import CODE, software_lines
from nvfp4.emulator.work import SECTOR_BYTES
from nvfp4.model.assembly import Lines, assembled
from nvfp4.model.gpu import Gpu, NoPrediction
from nvfp4.model.prediction import GPUS, Counted, Host, kernel_time, no_prediction, predict
from nvfp4.model.tools import target_of

_MOST_INSTRUCTIONS = 200_000
_LONGEST_S = 10.0
_MOST_LEFT_OUT = 8
_NOTICEABLE = 0.01
_READS = re.compile(r"ld|cp\..*\.shared\S*\.global")
"""The opcodes of loads, and of copies into shared memory."""

Place = tuple[str | None, int | None]


def counted(launch: Launch, report: LaunchReport) -> Counted:
    """Return a launch with its executed instructions and memory requests."""
    assert report.work is not None
    return Counted(
        ptx=launch.ptx,
        kernel=launch.kernel,
        grid=(len(report.work.of_cta), 1, 1),  # without those that others have cancelled
        block=launch.block,
        shared_bytes=report.shared_bytes,
        work=report.work,
        read_bytes=round(SECTOR_BYTES * report.sectors_read * report.work.spread),
        tensor_cycles=report.tensor_cycles,
        waited=launch.waited,
        alongside=launch.alongside,
        undefined=next((e.message for e in report.findings if e.code == NoArrivals.code), ""),
    )


def sampled(cost: KernelCost) -> Counted:
    """Return a launch of which only some CTAs ran, for their costs."""
    assert cost.work is not None
    read = (n.fresh for at, n in cost.work.asked.items() if _READS.match(cost.work.opcodes[at]))
    return Counted(
        ptx=cost.ptx,
        kernel=cost.entry,
        grid=cost.grid,
        block=cost.block,
        shared_bytes=cost.shared_bytes,
        work=cost.work,
        tensor_cycles=cost.report().tensor_cycles,
        read_bytes=SECTOR_BYTES * sum(read),
    )


def counted_with_suffix(
    launch: Launch, admit: Callable[[Launch], object] = lambda launch: None
) -> Counted | None:
    """Return a launch of the code for the GPU's own architecture, of which some thread blocks run;
    memory is restored.

    None if the code is the same or cannot be run. admit: raises EmulatorError for code that must
    not run.
    """
    if not launch.with_suffix or not software_lines(launch.ptx):
        return None
    latest = min(launch.deadline or math.inf, time.monotonic() + _LONGEST_S)
    other = replace(launch, ptx=launch.with_suffix, with_suffix="", deadline=latest)
    try:
        admit(other)
        return sampled(cost_of(other, _MOST_INSTRUCTIONS, tries=True))
    except Exception:  # it is advice: whatever is wrong with it, the launch itself is judged
        return None


def advise(
    reports: Sequence[Mapping[str, Any]],
    whole_us: float | None,
    launches: Sequence[Counted],
    model: str,
    clean: bool,
    host: Host | None = None,
) -> None:
    """Add to findings of software conversions the time that a call would take with the flag.

    reports: reports of launches as plain values. whole_us: predicted time of the call as it is;
    None if there is none. launches: launches with the flag.
    """
    if whole_us is None:
        return
    try:
        other_us = predict(GPUS[model], list(launches), clean, host).us
    except Exception:  # the prediction of the call as it is stays
        return
    times = f": {other_us:.1f} us instead of {whole_us:.1f}, predicted on a {model}"
    for report in reports:
        for finding in report["findings"]:
            if finding["code"] == CODE:
                finding["hint"] += times


def add_times(plain: dict[str, Any], cost: KernelCost, gpu: Gpu, clean: bool, host: Host) -> None:
    """Add `predicted` (see `records.prediction`) to a kernel's cost as plain values, and `us`, the
    time due to a line, to its lines. host: what the call adds to each launch.

    The costliest lines also get `without_us`: the time of the call if the line cost nothing.
    """
    asked = sampled(cost)
    try:
        whole = predict(gpu, [asked], clean, host)
    except NoPrediction as error:
        plain["predicted"] = no_prediction(gpu.name, str(error))
        return
    plain["predicted"] = whole.to_dict()
    numbers: dict[Place, set[int]] = defaultdict(set)
    for number, (_, file, line) in cost.ptx_lines.items():
        numbers[file, line].add(number)
    spent = whole.kernels[0].lines
    times = {place: sum(spent.get(n, 0.0) for n in mine) for place, mine in numbers.items()}
    left_out = sorted(times, key=lambda each: -times[each])[:_MOST_LEFT_OUT]
    for line in plain["lines"]:
        place = line["file"], line["line"]
        line["us"] = times.get(place)
        if place in left_out and times[place] >= _NOTICEABLE * whole.us:
            less = kernel_time(gpu, asked, clean, without=frozenset(numbers[place]))
            line["without_us"] = whole.us - whole.kernels[0].us + less.us


def machine_code_of(cost: KernelCost) -> tuple[list[dict[str, Any]], str | None]:
    """Return the machine instructions of a kernel with their lines of source, as `records.costs`
    has them, or a sentence on why there are none."""
    target = target_of(cost.ptx)
    if target is None:
        return [], "no SASS: the PTX names no architecture"
    try:
        code = assembled(cost.ptx, cost.entry, target)
    except NoPrediction as why:
        return [], f"no SASS: {why}"
    numbers, found = Lines(cost.ptx), []
    for each in code.instructions:
        _, file, line = cost.ptx_lines.get(numbers.of(each.statement), (0, None, None))
        found.append({"file": file, "line": line, "text": each.text})
    return found, None
