"""Judges a submission case by case: fresh inputs, one call, its output against the reference."""

import base64
import hashlib
import json
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

import reference
from buffers import SharedBuffers, create_buffers, output_name
from cases import Case
from device import DeviceLimits, free_memory_bytes
from emulated import total_counts
from layout import input_names, layouts, storages
from protocol import Exit, ResultPipe
from stats import Stats, summarise
from submission_process import Reason, SubmissionFailed, SubmissionProcess
from task import input_t

longest_call_s = 60.0
"""One call, compilation included, or the import of the submission."""

longest_value_bytes = 3000
"""A failure message or the counts of an emulated call."""

report_bytes = 14 << 10
"""Longest profile report of a benchmark, before base64."""

floor_tolerance = 0.95
"""A mean below this share of the floor is impossible; the rest is the error of the floor itself."""

settle_tolerance_ns = 50e3
"""By how much the device may go idle later than after an empty call, beside a share of the call."""

settle_tolerance_share = 0.05


@dataclass(frozen=True)
class Schedule:
    """How often a benchmark case is called: fixed, so that no submission can steer it."""

    warm_up_calls: int
    timed_calls: int


schedules = {"cuda": Schedule(10, 100), "cpu": Schedule(1, 5)}


class OutOfTime(Exception):
    """The mode's time limit is reached."""


class NotEnoughMemory(Exception):
    """A case is too large for this device; the message says by how much."""


class Judge:
    """Runs the cases of one mode against a submission and writes every verdict to the pipe."""

    def __init__(
        self,
        process: SubmissionProcess,
        pipe: ResultPipe,
        device: torch.device,
        deadline: float,
        secret_seed: int | None,
    ) -> None:
        """deadline: on the monotonic clock, in seconds."""
        self._process = process
        self._pipe = pipe
        self._device = device
        self._deadline = deadline
        self._secret = os.urandom(16) if secret_seed is None else str(secret_seed).encode()
        self._failures: list[Exit] = []

    def test(self, cases: list[Case]) -> Exit:
        """Each case once. Returns how the mode ends."""
        self._pipe.write("test-count", len(cases))
        for index, case in enumerate(cases):
            key = f"test.{index}"
            self._pipe.write(f"{key}.spec", case.spec)
            with self._reported(key) as report, self._opened(case) as opened:
                opened.judged_call(_generate(case, case.seed))
                report["status"] = "pass"
        return self._end()

    def benchmark(self, cases: list[Case], limits: DeviceLimits, fresh_contents: bool) -> Exit:
        """Each case on a fixed schedule of calls. Returns how the mode ends.

        fresh_contents: every call sees new contents in the same buffers and every output is
        checked; otherwise the contents stay and the first and the last output are checked.
        """
        self._pipe.write("benchmark-count", len(cases))
        for index, case in enumerate(cases):
            key = f"benchmark.{index}"
            self._pipe.write(f"{key}.spec", case.spec)
            self._pipe.write(f"{key}.bytes", case.bytes)
            self._pipe.write(f"{key}.floor", limits.floor_ns(case.bytes))
            with self._reported(key) as report, self._opened(case) as opened:
                data = _generate(case, case.seed)
                first = opened.judged_call(data)
                if first.get("launches"):
                    # An emulated kernel is executed once: it has counts, and no time of its own.
                    report["emulation"] = json.dumps(total_counts(first["launches"]))
                    report["status"] = "pass"
                else:
                    stats = self._time(opened, data, index, limits, fresh_contents)
                    report.update({name: str(value) for name, value in vars(stats).items()})
                    _refuse_impossible(stats, limits.floor_ns(case.bytes))
        return self._end()

    def profile(self, cases: list[Case]) -> Exit:
        """One call of each case under a profiler; its report as base64. Returns how it ends."""
        self._pipe.write("benchmark-count", len(cases))
        for index, case in enumerate(cases):
            key = f"benchmark.{index}"
            self._pipe.write(f"{key}.spec", case.spec)
            with self._reported(key), self._opened(case) as opened:
                text = opened.judged_call(_generate(case, case.seed), op="profile")["report"]
                encoded = base64.b64encode(str(text).encode()[:report_bytes]).decode()
                self._pipe.write(f"{key}.report", encoded, longest_bytes=2 * report_bytes)
        return self._end()

    def _time(
        self,
        opened: "_OpenedCase",
        data: input_t,
        index: int,
        limits: DeviceLimits,
        fresh_contents: bool,
    ) -> Stats:
        """The rest of the schedule, after a first call on ``data``."""
        schedule = schedules[self._device.type]
        calls = schedule.warm_up_calls + schedule.timed_calls
        elapsed: list[tuple[float, float]] = []
        for call in range(1, calls):
            if fresh_contents:
                data = _generate(opened.case, self._call_seed(index, call))
            answer = opened.judged_call(data, check=fresh_contents or call == calls - 1)
            if call >= schedule.warm_up_calls:
                elapsed.append(_times_of(answer))
        stats = summarise([call_ns for call_ns, _ in elapsed])
        _refuse_unfinished(stats, elapsed, limits)
        return stats

    def _call_seed(self, case_index: int, call: int) -> int:
        """A seed nobody can foresee: it hangs on the secret seed, or on chance without one."""
        text = f"{case_index}/{call}".encode()
        digest = hashlib.blake2b(text, key=self._secret[:64], digest_size=8).digest()
        return int.from_bytes(digest, "little") % 2**63

    @contextmanager
    def _opened(self, case: Case) -> Iterator["_OpenedCase"]:
        opened = _OpenedCase(self._process, case, self._device, self._deadline)
        try:
            yield opened
        finally:
            opened.close()

    @contextmanager
    def _reported(self, key: str) -> Iterator[dict[str, str]]:
        """Writes what the block puts into the report, or why it failed."""
        report: dict[str, str] = {}
        try:
            if time.monotonic() >= self._deadline:
                raise OutOfTime
            yield report
        except SubmissionFailed as failed:
            out_of_time = failed.reason is Reason.TIMED_OUT
            ends = {Reason.TIMED_OUT: Exit.TIMED_OUT, Reason.CUDA: Exit.CUDA_ERROR}
            self._fail(key, str(failed), ends.get(failed.reason, Exit.CHECK_FAILED), report)
            if out_of_time:  # the rest would hang as long; say so instead
                self._deadline = time.monotonic()
        except OutOfTime:
            self._fail(key, "not judged: the time limit was reached", Exit.TIMED_OUT, report)
        except NotEnoughMemory as error:
            self._fail(key, str(error), Exit.CHECK_FAILED, report)
        else:
            self._write(key, report)

    def _fail(self, key: str, message: str, end: Exit, report: dict[str, str]) -> None:
        self._failures.append(end)
        self._write(key, {**report, "status": "fail", "error": message})

    def _write(self, key: str, report: dict[str, str]) -> None:
        for name, value in report.items():
            self._pipe.write(f"{key}.{name}", value, longest_bytes=longest_value_bytes)

    def _end(self) -> Exit:
        """The closing line; a time-out outranks a CUDA error, which outranks a failed check."""
        self._pipe.verdict(passed=not self._failures)
        for end in (Exit.TIMED_OUT, Exit.CUDA_ERROR, Exit.CHECK_FAILED):
            if end in self._failures:
                return end
        return Exit.PASSED


class _OpenedCase:
    """The shared buffers of a case and the calls made in them."""

    def __init__(
        self, process: SubmissionProcess, case: Case, device: torch.device, deadline: float
    ) -> None:
        self.case = case
        self._process = process
        self._deadline = deadline
        _refuse_too_large(case, device)
        self._buffers: SharedBuffers = create_buffers(case.m, case.k, case.l, device)
        try:
            self._ask("case", m=case.m, k=case.k, l=case.l, handles=self._buffers.handles)
        except SubmissionFailed:
            self._buffers.close()
            raise

    def close(self) -> None:
        """Gives the buffers back."""
        self._buffers.close()

    def judged_call(self, data: input_t, check: bool = True, op: str = "call") -> dict:
        """Fills the buffers, has the submission called, checks inputs and output.

        Raises SubmissionFailed with what is wrong.
        """
        shape = self.case.m, self.case.k, self.case.l
        pristine = storages(data, *shape)
        for name, contents in pristine.items():
            self._buffers.tensors[name].copy_(contents)
        # A result that is not handed over must not be found here from the call before.
        self._buffers.tensors[output_name].fill_(0xFF)
        self._synchronize()
        answer = self._ask(op)
        for name in input_names:
            if not torch.equal(self._buffers.tensors[name], pristine[name]):
                raise SubmissionFailed(f"custom_kernel changed its input {name} in place")
        if check:
            output = layouts(*shape)["c"].view(self._buffers.tensors[output_name].clone())
            passed, message = reference.check_implementation(data, output)
            if not passed:
                raise SubmissionFailed(message)
        return answer

    def _ask(self, op: str, **fields: object) -> dict:
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise OutOfTime
        return self._process.request(
            {"op": op, **fields}, min(left_s, longest_call_s), self._buffers.fd
        )

    def _synchronize(self) -> None:
        if self._buffers.tensors["c"].is_cuda:
            torch.cuda.synchronize()


def _refuse_too_large(case: Case, device: torch.device) -> None:
    """Raises NotEnoughMemory where inputs, their shared copy and the work on them do not fit."""
    inputs_bytes = sum(layout.nbytes for layout in layouts(case.m, case.k, case.l).values())
    needed_bytes, free_bytes = 4 * inputs_bytes, free_memory_bytes(device)
    if needed_bytes > free_bytes:
        raise NotEnoughMemory(
            f"this case needs about {needed_bytes / 2**30:.1f} GiB of memory and "
            f"{free_bytes / 2**30:.1f} GiB are free: choose a smaller shape"
        )


def _generate(case: Case, seed: int) -> input_t:
    generate: Callable[[int, int, int, int], input_t] = (
        reference.generate_full_range_input if case.full_range else reference.generate_input
    )
    return generate(case.m, case.k, case.l, seed)


def _times_of(answer: dict) -> tuple[float, float]:
    """call_ns and settled_ns of an answer. Raises SubmissionFailed where they are no times."""
    call_ns, settled_ns = answer.get("call_ns"), answer.get("settled_ns")
    if not isinstance(call_ns, float) or not isinstance(settled_ns, float):
        raise SubmissionFailed("the submission's process sent no times")
    if not (0 < call_ns <= settled_ns < math.inf):
        raise SubmissionFailed("the submission's process sent impossible times")
    return call_ns, settled_ns


def _refuse_impossible(stats: Stats, floor_ns: float) -> None:
    if stats.mean < floor_tolerance * floor_ns:
        raise SubmissionFailed(
            f"the mean of {stats.mean / 1e3:.3f} us is below the physical floor of "
            f"{floor_ns / 1e3:.3f} us: nothing can read these inputs from memory so fast"
        )


def _refuse_unfinished(
    stats: Stats, elapsed: list[tuple[float, float]], limits: DeviceLimits
) -> None:
    """Work outside the current stream ends after the second event and before the device is idle."""
    late_ns = statistics.median(settled_ns - call_ns for call_ns, settled_ns in elapsed)
    excess_ns = late_ns - limits.settle_ns
    if excess_ns > settle_tolerance_ns + settle_tolerance_share * stats.mean:
        raise SubmissionFailed(
            f"the device worked {excess_ns / 1e3:.1f} us longer than the {stats.mean / 1e3:.1f} us "
            "between the events: work on another stream is not joined to the current one"
        )
