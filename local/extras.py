"""What an installed nvfp4 adds to the judge."""

import json
import os
import secrets
import sys
from functools import partial
from pathlib import Path

import torch

from extras import Extras
from messages import Called
from nvfp4.local.captured_case import CapturedCase, Captures
from nvfp4.local.causes import Causes
from nvfp4.local.emulated_counts import refuse_too_few_bytes, total_counts
from nvfp4.local.failure_records import reported
from nvfp4.local.findings import findings_of
from nvfp4.local.flushes import flushes
from nvfp4.local.gated_timing import GatedClock
from nvfp4.local.last_words import tell_more
from nvfp4.local.listings import take_listings
from nvfp4.local.options import called_by_the_command
from nvfp4.local.printed import unheard
from nvfp4.local.repeat import Repetition
from nvfp4.local.retargeted_kernels import RetargetedKernels
from nvfp4.local.timed_calls import TimedCalls
from nvfp4.local.write_back import WriteBack, nothing_added
from opened_case import OpenedCase, generate
from protocol import ResultPipe
from submission_process import SubmissionFailed, SubmissionProcess


def judge_extras(
    process: SubmissionProcess,
    submission: Path,
    device: torch.device,
    deadline: float,
    flush: str,
    strict: bool,
    pipe: ResultPipe,
) -> Extras:
    """process: that of the submission. deadline: on the monotonic clock, in seconds. flush: contest
    or clean. strict: whether findings fail a case. pipe: takes what is known of the device only
    later.
    """
    on_cuda = device.type == "cuda"
    keep = os.environ.get("NVFP4_KEEP")
    retargeted = RetargetedKernels(pipe)
    name = os.environ.get("NVFP4_NAME") or submission.name
    captures = None if on_cuda or sys.platform != "linux" else Captures(name)
    if captures:
        captures.expect(process)

    causes, timed_calls = Causes(), TimedCalls()

    def end_case(report: dict[str, str]) -> None:
        if keep:
            take_listings(process.scratch / "kept", Path(keep))
            if captures and captures.executor.listings:
                take_listings(captures.executor.listings, Path(keep))
        causes.tell(report)
        timed_calls.add_to(report)
        tell_more(report, process, submission)

    def observe(opened: OpenedCase, called: Called, report: dict[str, str]) -> None:
        retargeted.note(called.launches)
        timed_calls.of(opened)
        if called.launches and not on_cuda:
            report["emulated"] = "true"
            # Not in the way of what else is emulated now.
            torch.set_num_threads(max(1, (os.cpu_count() or 1) // 2))
        report["error_share"] = f"{opened.error_share:.6g}"
        if isinstance(opened, CapturedCase):
            report.update(opened.reported())
        elif not on_cuda:
            report["own_word"] = "launches can be run elsewhere on Linux only"
        found = findings_of(opened, called)
        if found:
            report["findings"] = json.dumps(found)
        if found and strict:
            raise SubmissionFailed(f"{found[0]['message']} (--strict)")

    open_case = captures.open if captures else OpenedCase
    return Extras(
        explain=causes.explain,
        open_case=open_case,
        open_clock=partial(GatedClock, process, device, deadline) if on_cuda else None,
        untimed=_timed if on_cuda else Counted(process),
        flush=flushes[flush],
        added_ns=WriteBack(device).added_ns if on_cuda and flush == "contest" else nothing_added,
        observe=observe,
        end_case=end_case,
        failed=reported,
        repeat=partial(
            Repetition,
            submission=submission,
            device=device,
            deadline=deadline,
            open_case=open_case,
        )
        if os.environ.get("NVFP4_REPEAT", "1") != "0"
        else None,
    )


def _timed(opened: OpenedCase, called: Called) -> dict[str, str]:
    """Nothing: kernels on a GPU have a time."""
    return {}


_calls_left = 3.0
"""So many times as long as the last call another one may take."""


class Counted:
    """What emulated kernels did, which have no time. One benchmark of three, drawn at random, is
    called again with other contents: what is kept from a call is wrong then.
    """

    def __init__(self, process: SubmissionProcess) -> None:
        self._process = process
        self._number, self._again = 0, secrets.randbelow(3)

    def __call__(self, opened: OpenedCase, called: Called) -> dict[str, str]:
        """Raises SubmissionFailed where there can be no counts or the second call is wrong, and
        under the bot, which ranks by times.
        """
        if not called.launches:
            return {}
        if not called_by_the_command():
            raise SubmissionFailed(
                "there is no GPU here, and a kernel that is emulated has no time"
            )
        counts = total_counts(called.launches)
        refuse_too_few_bytes(counts, opened.case.bytes)
        number, self._number = self._number, self._number + 1
        if number % 3 == self._again:
            _call_again(opened, self._process)
        return {"emulation": json.dumps(counts), "status": "pass"}


def _call_again(opened: OpenedCase, process: SubmissionProcess) -> None:
    """Once more if the last call was recorded and this one is not: then it is the first of another
    process. Nothing if that is not likely to end in time. Raises SubmissionFailed.
    """
    recorded = _is_recorded(opened)
    with unheard(process.stdout):
        for _ in range(2):
            if opened.seconds_left() < _calls_left * getattr(opened, "last_call_s", 0.0):
                return
            try:
                opened.judged_call(generate(opened.case, secrets.randbelow(2**63)))
            except SubmissionFailed as failed:
                raise SubmissionFailed(
                    f"{failed}\n(in another call with other inputs of the same shape)",
                    failed.end,
                    failed.record,
                ) from None
            if not recorded or _is_recorded(opened):
                return


def _is_recorded(opened: OpenedCase) -> bool:
    return isinstance(opened, CapturedCase) and opened.is_recorded
