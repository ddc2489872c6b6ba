"""Findings, counts and predictions of calls, beside whether a call was right."""

import json
import os
from dataclasses import asdict, replace
from typing import Any

import torch

from nvfp4.judge.clock.gated_clock import GatedClock
from nvfp4.judge.emulated_counts import refuse_too_few_bytes, total_counts
from nvfp4.judge.findings import findings_of
from nvfp4.judge.fresh_process import StateChecks
from nvfp4.judge.opened_case import Open, OpenedCase
from nvfp4.judge.printed import taken
from nvfp4.judge.protocol import ResultPipe
from nvfp4.judge.submission_process import SubmissionFailed, SubmissionProcess
from nvfp4.records.failures import ADVICE, Finding
from nvfp4.records.messages import Called
from nvfp4.records.options import Options, called_by_the_command
from nvfp4.records.texts import cut, plain

_not_of_the_place = ("code", "message", "count")


class Hooks:
    """Actions at certain points of a judgement, as the device and the options require."""

    def __init__(
        self,
        process: SubmissionProcess,
        device: torch.device,
        deadline: float,
        options: Options,
        pipe: ResultPipe,
        withholds: bool = True,
    ) -> None:
        """process: that of the submission. deadline: on the monotonic clock, in seconds. pipe:
        takes what is known of the device only later. withholds: whether inputs can come late.
        """
        self._withholds = withholds
        self._process, self._device, self._deadline = process, device, deadline
        self._options = options
        self._on_cuda = device.type == "cuda"
        self._name = options.name or process.source.file
        self._retargeted = RetargetedKernels(pipe)
        self.open_test: Open = OpenedCase if self._on_cuda else StateChecks().open

    def open_clock(self) -> GatedClock | None:
        """The judge's own clock for calls on a GPU. Raises SubmissionFailed where the worker cannot
        be clocked."""
        if not self._on_cuda or not self._withholds:
            return None
        return GatedClock(self._process, self._device, self._deadline)

    def observe(self, opened: OpenedCase, called: Called, report: dict[str, str]) -> None:
        """Adds to the report of a call that was right. Raises SubmissionFailed for a finding that
        the user wants to fail it."""
        self._retargeted.note(called.launches)
        if called.launches and not self._on_cuda:
            report["emulated"] = "true"
            # Not in the way of what else is emulated now.
            torch.set_num_threads(max(1, (os.cpu_count() or 1) // 2))
        report["error_share"] = f"{opened.error_share:.6g}"
        report.update(opened.mark())
        found = findings_of(opened, called)
        if found:
            report["findings"] = json.dumps([asdict(each) for each in found])
        misuse = [each for each in found if each.code not in ADVICE]
        if misuse and self._options.strict:
            raise _strictly(misuse[0])

    def untimed(self, opened: OpenedCase, called: Called) -> dict[str, str]:
        """Return the counts of emulated kernels, which have no time; nothing where calls are timed.
        Raises SubmissionFailed where there can be no counts, and under the bot, which ranks by
        times.
        """
        if self._on_cuda or not called.launches:
            return {}
        if not called_by_the_command():
            raise SubmissionFailed(
                "setup.no_gpu", "there is no GPU here, and a kernel that is emulated has no time"
            )
        counts = total_counts(called.launches)
        if not opened.sampled:
            refuse_too_few_bytes(counts, opened.plan.least_bytes)
        report = {"emulation": json.dumps(counts), "status": "pass"}
        if opened.predicted:
            report["predicted"] = json.dumps(opened.predicted)
        return report

    def end_case(self, report: dict[str, str]) -> None:
        """Add what the case has printed to its report, and show it."""
        worker = self._process.submission
        printed = taken(self._process.stdout)
        if not report:
            return
        if printed:
            report["output"] = plain(printed, worker, self._name)
        if "error" in report:
            report["error"] = cut(plain(report["error"], worker, self._name))


def _strictly(finding: Finding) -> SubmissionFailed:
    """Return the failure that a finding amounts to, with its place."""
    message = f"{finding.message} (--strict)"
    failed = SubmissionFailed("finding.strict", message, finding=finding.code)
    place = {name: each for name, each in vars(finding).items() if name not in _not_of_the_place}
    failed.failure = replace(failed.failure, **place)
    return failed


longest_bytes = 3000
"""Limit on the list, as JSON: the bot's pipe is small."""

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
        found = [kernel for kernel in map(_entry, launches) if kernel is not None]
        while len(json.dumps(found)) > longest_bytes:
            found.pop()
        text = json.dumps(found)
        if found and text != self._written:
            self._written = text
            self._pipe.write("device.retargeted", text, longest_bytes=longest_bytes + 100)


def _entry(report: Any) -> dict[str, Any] | None:
    """Return the known fields, each of its type; None if this is no report of a rewritten
    kernel."""
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
