"""What the judge notes of a call besides whether it was right."""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from nvfp4.judge.case_log import tell_more
from nvfp4.judge.cases import Case
from nvfp4.judge.clock.device_limits import DeviceLimits
from nvfp4.judge.clock.gated_clock import GatedClock
from nvfp4.judge.clock.stats import TimedCalls
from nvfp4.judge.diagnosis import diagnose
from nvfp4.judge.emulated_counts import refuse_too_few_bytes, total_counts
from nvfp4.judge.findings import findings_of
from nvfp4.judge.hooks import Hooks
from nvfp4.judge.opened_case import CaseSetup, OpenedCase
from nvfp4.judge.protocol import ResultPipe
from nvfp4.judge.recorded_case import RecordedCase, Recording
from nvfp4.judge.repeat import Repetition
from nvfp4.judge.state_checks import StateChecks
from nvfp4.judge.submission_process import SubmissionFailed, SubmissionProcess
from nvfp4.records.failures import Finding
from nvfp4.records.messages import Called
from nvfp4.records.options import Options, called_by_the_command
from nvfp4.worker.listings import take_listings
from nvfp4.worker.timing import Flush, flushes

_not_of_the_place = ("code", "message", "count")


def judge_hooks(
    process: SubmissionProcess,
    device: torch.device,
    deadline: float,
    options: Options,
    pipe: ResultPipe,
) -> Hooks:
    """process: that of the submission. deadline: on the monotonic clock, in seconds. pipe: takes
    what is known of the device only later.
    """
    on_cuda = device.type == "cuda"
    keep, flush = options.keep, options.flush
    retargeted = RetargetedKernels(pipe)
    name = options.name or process.source.file
    recording = Recording(process, name)
    records = not on_cuda and sys.platform == "linux"
    timed_calls = TimedCalls()

    def end_case(report: dict[str, str]) -> None:
        if keep:
            take_listings(process.scratch / "kept", Path(keep))
            if recording.executor.listings:
                take_listings(recording.executor.listings, Path(keep))
        timed_calls.add_to(report)
        tell_more(report, process, name)

    def observe(opened: OpenedCase, called: Called, report: dict[str, str]) -> None:
        retargeted.note(called.launches)
        timed_calls.of(opened)
        if called.launches and not on_cuda:
            report["emulated"] = "true"
            # Not in the way of what else is emulated now.
            torch.set_num_threads(max(1, (os.cpu_count() or 1) // 2))
        report["error_share"] = f"{opened.error_share:.6g}"
        if isinstance(opened, RecordedCase):
            report["prints"] = opened.prints
        elif not on_cuda and not records:
            opened.unverified = "launches can be run elsewhere on Linux only"
        report.update(opened.mark())
        found = findings_of(opened, called)
        if found:
            report["findings"] = json.dumps([asdict(each) for each in found])
        if found and options.strict:
            raise _strictly(found[0])

    return Hooks(
        explain=diagnose,
        open_test=OpenedCase if on_cuda else StateChecks().open,
        open_benchmark=recording.open if records else OpenedCase,
        open_clock=partial(GatedClock, process, device, deadline) if on_cuda else None,
        untimed=_timed if on_cuda else _counted,
        flush=flushes[flush],
        **({"floors_ns": partial(_floors_ns, device, flushes[flush])} if on_cuda else {}),
        observe=observe,
        end_case=end_case,
        repeat=_repetition(device, deadline) if options.repeat else None,
    )


def _repetition(device: torch.device, deadline: float) -> Callable[[SubmissionProcess], Repetition]:
    return lambda fresh: Repetition(CaseSetup(fresh, device, deadline))


def _strictly(finding: Finding) -> SubmissionFailed:
    """The failure that a finding is, with its place."""
    message = f"{finding.message} (--strict)"
    failed = SubmissionFailed("finding.strict", message, finding=finding.code)
    place = {name: each for name, each in vars(finding).items() if name not in _not_of_the_place}
    failed.failure = replace(failed.failure, **place)
    return failed


def _floors_ns(
    device: torch.device, flush: Flush, cases: list[Case], limits: DeviceLimits
) -> list[float]:
    """Of kernels on a GPU, the fastest reads."""
    from nvfp4.judge.clock.reads import fastest_reads_ns  # which needs a driver

    return fastest_reads_ns(device, flush, [each.bytes for each in cases])


def _timed(opened: OpenedCase, called: Called) -> dict[str, str]:
    """Nothing: kernels on a GPU have a time."""
    return {}


def _counted(opened: OpenedCase, called: Called) -> dict[str, str]:
    """What emulated kernels did, which have no time. Raises SubmissionFailed where there can be no
    counts, and under the bot, which ranks by times.
    """
    if not called.launches:
        return {}
    if not called_by_the_command():
        raise SubmissionFailed(
            "setup.no_gpu", "there is no GPU here, and a kernel that is emulated has no time"
        )
    counts = total_counts(called.launches)
    refuse_too_few_bytes(counts, opened.case.bytes)
    report = {"emulation": json.dumps(counts), "status": "pass"}
    if isinstance(opened, RecordedCase) and opened.predicted:
        report["predicted"] = json.dumps(opened.predicted)
    return report


longest_bytes = 3000
"""Of the list, as JSON: the bot's pipe is small."""

_longest_name = 60
_most_opcodes = 12
_largest = 2**31


class RetargetedKernels:
    """Writes `device.retargeted` whenever there is more to tell."""

    def __init__(self, pipe: ResultPipe) -> None:
        self._pipe = pipe
        self._written = ""

    def note(self, launches: list[Any]) -> None:
        """launches: what the submission's process says of its kernels, which it may make up."""
        found = [kernel for kernel in map(_plain, launches) if kernel is not None]
        while len(json.dumps(found)) > longest_bytes:
            found.pop()
        text = json.dumps(found)
        if found and text != self._written:
            self._written = text
            self._pipe.write("device.retargeted", text, longest_bytes=longest_bytes + 100)


def _plain(report: Any) -> dict[str, Any] | None:
    """The known fields, each of its type; None for what is no report of a rewritten kernel."""
    if not isinstance(report, dict) or not isinstance(report.get("rewritten"), dict):
        return None
    plain: dict[str, Any] = {
        name: str(report.get(name))[:_longest_name] for name in ("kernel", "source", "target")
    }
    for name in ("instructions", "added"):
        plain[name] = _count(report.get(name))
    opcodes = list(report["rewritten"].items())[:_most_opcodes]
    plain["rewritten"] = {str(name)[:_longest_name]: _count(count) for name, count in opcodes}
    return plain


def _count(value: Any) -> int:
    return value if type(value) is int and abs(value) < _largest else 0
