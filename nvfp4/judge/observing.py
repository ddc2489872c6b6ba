"""Findings, counts and predictions of calls, beside whether a call was right."""

import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import InitVar, asdict, dataclass, replace
from typing import Any

import torch

from nvfp4.judge.clock.gated_clock import GatedClock
from nvfp4.judge.opened_case import OpenedCase
from nvfp4.judge.printed import taken
from nvfp4.judge.protocol import Exit, ResultPipe
from nvfp4.judge.submission_process import SubmissionFailed, SubmissionProcess
from nvfp4.records.failures import ADVICE, BY_SUBMISSION, Finding, read_findings
from nvfp4.records.messages import Called
from nvfp4.records.options import Options, called_by_the_command
from nvfp4.records.texts import cut, plain

_not_of_the_place = ("code", "message", "count")


@dataclass
class Hooks:
    """Actions at certain points of a judgement, as the device and the options require."""

    _process: SubmissionProcess
    """The process of the submission."""
    _device: torch.device
    _deadline: float
    """On the monotonic clock, in seconds."""
    _options: Options
    pipe: InitVar[ResultPipe]
    """Takes facts about the device that are known only later."""
    _withholds: bool = True
    """Whether inputs can come late."""

    def __post_init__(self, pipe: ResultPipe) -> None:
        self._on_cuda = self._device.type == "cuda"
        self._name = self._options.name or self._process.source.file
        self._retargeted = RetargetedKernels(pipe)

    def open_clock(self) -> GatedClock | None:
        """Return the judge's own clock for calls on a GPU. Raises SubmissionFailed where the worker
        cannot be clocked."""
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
        if opened.error_share is not None:
            report["error_share"] = f"{opened.error_share:.6g}"
        report.update(opened.mark())
        found = findings_of(opened, called)
        if found:
            report["findings"] = json.dumps([asdict(each) for each in found])
        misuse = [each for each in found if each.code not in ADVICE]
        if misuse and self._options.strict:
            raise _strictly(misuse[0])

    def untimed(self, opened: OpenedCase, called: Called) -> dict[str, str]:
        """Return the counts of emulated kernels, which have no time; an empty dictionary if calls
        are timed.

        Raises SubmissionFailed if there can be no counts, and under the contest's bot, which ranks
        by times.
        """
        if self._on_cuda or not called.launches:
            return {}
        if not called_by_the_command():
            raise SubmissionFailed(
                "setup.no_gpu", "there is no GPU here, and a kernel that is emulated has no time"
            )
        counts = total_counts(called.launches)
        if not opened.sampled:
            distinct_bytes = _sector_bytes * counts["sectors_distinct"]
            least_bytes = opened.plan.least_bytes
            if distinct_bytes < least_bytes:
                message = f"the kernels touched {distinct_bytes} distinct bytes of memory, and any "
                message += f"kernel has to move {least_bytes}: they cannot have done the work"
                code = "emulation.too_few_bytes"
                counted = {"distinct_bytes": distinct_bytes, "least_bytes": least_bytes}
                raise SubmissionFailed(code, message, Exit.CHECK_FAILED, **counted)
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


longest_findings_bytes = 2600
"""Limit on the findings of a case, as JSON: the bot's pipe is small."""


def findings_of(opened: OpenedCase, called: Called) -> list[Finding]:
    """Return the findings of a judged call: those of its launches, and what only our own check
    refuses."""
    ended = opened.ended
    notes, alone = (ended.notes, ended.alone) if ended is not None else ([], [])
    found = [*_of_output(opened), *_of_launches([*called.launches, {"findings": alone}], notes)]
    while len(json.dumps([asdict(each) for each in found])) > longest_findings_bytes:
        found.pop()
    return found


def _of_output(opened: OpenedCase) -> Iterator[Finding]:
    """Yield the findings about an output and about changed inputs."""
    expected = opened.plan.expected.leaves
    for got, wanted in zip(opened.returned().tree.leaves, expected, strict=False):
        # Another problem's reference may compute in a dtype of its own.
        if got.dtype != wanted.dtype and opened.plan.strict_inputs:
            taken = f"which the contest takes for {wanted.dtype}"
            hint = f"return {wanted.path if wanted.path.isidentifier() else wanted.dtype}"
            yield _finding("output_dtype", f"custom_kernel returned {got.dtype}, {taken}", hint)
            break
    if opened.error_share is not None and opened.error_share > 1:
        yield _finding(
            "tolerance",
            f"the largest error is {opened.error_share:.3f} times the allowed one; the "
            "contest's check rounds to float16 and takes it",
            "add in float32: other inputs will be over the limit",
        )
    if opened.changed:
        allowed = "which the contest allows"
        allowed += " if the next call on it is right: it is used again" * opened.reuses_inputs
        yield _finding(
            "input_changed",
            f"custom_kernel wrote to its input {opened.changed[0]}, {allowed}",
            "write to the output alone: inputs may be used again",
        )


def _finding(code: str, message: str, hint: str) -> Finding:
    return Finding(code, message, hint=hint, count=1)


def _of_launches(launches: list[Any], notes: list[list[str]]) -> list[Finding]:
    """Return the findings about the launches of a call. notes: code and message of each finding
    that the submission's process has reported about its host code."""
    reports = [report for report in launches if isinstance(report, dict)]
    listed = [each for report in reports for each in read_findings(report.get("findings"))]
    return [
        replace(each, told_by=BY_SUBMISSION) if [each.code, each.message] in notes else each
        for each in listed
    ]


_sector_bytes = 32

_scaled = (
    "ctas_run",
    "ctas_total",
    "warp_instructions_total",
    "tensor_instructions",
    "tensor_cycles",
)
"""Counts that are known even if only some thread blocks ran."""


def total_counts(reports: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the sums of the counts of launches; each report is ``emulator.LaunchReport.to_dict``.

    They have ``launches``, ``kernels`` (names, cut) and ``warp_instructions`` by kind, too. If only
    some thread blocks ran, only the counts that scale are returned.
    """
    kinds: Counter[str] = Counter()
    sums: Counter[str] = Counter()
    for report in reports:
        kinds.update(report.get("warp_instructions", {}))
        numbers = {name: each for name, each in report.items() if isinstance(each, int | float)}
        sums.update({"launches": 1, **numbers})
    del sums["shared_bytes"]  # a kernel's, as its grid is
    left_out = sums["ctas_run"] < sums["ctas_total"]
    return {
        "launches": sums["launches"],
        "kernels": sorted({str(each.get("kernel"))[:_longest_name] for each in reports})[:8],
        "warp_instructions": dict(kinds),
        **{name: sums[name] for name in (_scaled if left_out else sums)},
    }


longest_bytes = 3000
"""Limit on the list as JSON, since the bot's pipe is small."""

_longest_name = 60
_largest = 2**31


class RetargetedKernels:
    """Writes `device.retargeted` whenever more kernels were rewritten."""

    def __init__(self, pipe: ResultPipe) -> None:
        self._pipe = pipe
        self._written = ""

    def note(self, launches: list[Any]) -> None:
        """launches: kernels as reported by the submission's process, which may be made up."""
        found = [kernel for kernel in map(_entry, launches) if kernel is not None]
        while len(text := json.dumps(found)) > longest_bytes:
            found.pop()
        if found and text != self._written:
            self._written = text
            self._pipe.write("device.retargeted", text, longest_bytes=longest_bytes + 100)


def _entry(report: Any) -> dict[str, Any] | None:
    """Return the known fields with their types checked; None if this is not a report of a rewritten
    kernel."""
    if not isinstance(report, dict) or not isinstance(report.get("rewritten"), dict):
        return None
    names, numbers = ("kernel", "source", "target"), ("instructions", "added")
    plain: dict[str, Any] = {name: str(report.get(name))[:_longest_name] for name in names}
    plain |= {name: _count(report.get(name)) for name in numbers}
    opcodes = list(report["rewritten"].items())[:12]
    plain["rewritten"] = {str(name)[:_longest_name]: _count(count) for name, count in opcodes}
    return plain


def _count(value: Any) -> int:
    return value if type(value) is int and abs(value) < _largest else 0
