"""A process of one of several submissions: it is stopped while it is not its turn."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

from nvfp4.contract.reference import check_implementation, exact_gemv, round_once_to_fp16
from nvfp4.contract.task import input_t, output_t
from nvfp4.judge.clock import timing_checks
from nvfp4.judge.clock.gated_clock import GatedClock
from nvfp4.judge.opened_case import OpenedCase, OutOfTime
from nvfp4.judge.protocol import Exit
from nvfp4.judge.submission_process import SubmissionFailed, SubmissionProcess
from nvfp4.records.messages import Done, OpenCase
from nvfp4.records.options import Options
from nvfp4.sandbox.isolation import StoppedTree
from nvfp4.shared_memory.buffers import SharedBuffers
from nvfp4.worker.timing import CallTime


class FileFailed(Exception):
    """A submission is wrong. case: the number of the benchmark, None where there was none yet."""

    def __init__(self, file: int, case: int | None, why: SubmissionFailed) -> None:
        super().__init__(str(why))
        self.file, self.case, self.failure = file, case, why.failure


class SharedCase(OpenedCase):
    """A case of one process in buffers that others have open too. fill_s: how long it took to fill
    them last, which waits for what the process before has left on the device.
    """

    fill_s = 0.0

    def fill(self, buffers: SharedBuffers, data: input_t) -> None:
        """As of OpenedCase."""
        start_s = time.perf_counter()
        super().fill(buffers, data)
        self.fill_s = time.perf_counter() - start_s

    def use(self, buffers: SharedBuffers) -> None:
        """Calls use these from now on. Raises SubmissionFailed, OutOfTime."""
        self.buffers = buffers
        self.ask(OpenCase(self.case.m, self.case.k, self.case.l), Done, buffers.fd)

    def timed_call(self, data: input_t, expected: output_t) -> CallTime:
        """A call whose inputs and output are checked. expected: what ref_kernel makes of the data.
        Raises SubmissionFailed, OutOfTime.
        """
        answer, wall_ns = self.judged_call(data, check=False)
        if not check_implementation(data, self.output(), expected)[0]:
            self.check_output(self.output(), data)
        return timing_checks.read_time(answer, wall_ns)


@dataclass(eq=False)
class Worker:
    """A process of a file, by its number. opened, times: of the case in progress. means_us: of
    each case that is done. clock: the judge's own, where this process is to be clocked. deadline:
    of all of it, on the monotonic clock.
    """

    file: int
    process: SubmissionProcess
    deadline: float
    clock: GatedClock | None = None
    tree: StoppedTree = field(default_factory=StoppedTree)
    opened: SharedCase | None = None
    times: list[CallTime] = field(default_factory=list)
    means_us: list[float] = field(default_factory=list)

    @property
    def case(self) -> SharedCase:
        assert self.opened, "_call_first comes first"
        return self.opened

    def stop(self) -> None:
        """Until ``go_on``, with all that it has started."""
        if self.process.pid:
            self.tree.stop(self.process.pid)

    def go_on(self) -> None:
        """It may have ended, which its next answer shows."""
        self.tree.go_on()


@contextmanager
def started(
    files: Sequence[Path], rounds: int, options: Options, deadline: float
) -> Iterator[list[Worker]]:
    """So many processes of each file, which have begun to start, round by round. All are killed
    afterwards.
    """
    workers = [
        Worker(number, SubmissionProcess(file, options), deadline)
        for _ in range(rounds)
        for number, file in enumerate(files)
    ]
    try:
        for worker in workers:
            worker.process.start()
        yield workers
    finally:
        with ThreadPoolExecutor(len(workers)) as pool:
            list(pool.map(lambda worker: worker.process.__exit__(), workers))


@contextmanager
def blamed(worker: Worker, case: int | None) -> Iterator[None]:
    """What goes wrong in the block is this file's fault, unless the time is up for all."""
    try:
        yield
    except SubmissionFailed as failed:
        if failed.end is Exit.TIMED_OUT and time.monotonic() >= worker.deadline:
            raise OutOfTime from None
        raise FileFailed(worker.file, case, failed) from None


longest_wait_s = 2e-3
"""Between two turns, beside what is usual."""

most_waits, busy_share = 5, 0.05
"""So often a file may be waited for longer: the host has its hiccups."""


class Waits:
    """How long the judge waited for the device after a turn, by whose turn it was."""

    def __init__(self) -> None:
        self._of: dict[int, list[float]] = {}

    def add(self, file: int, wait_s: float) -> None:
        self._of.setdefault(file, []).append(wait_s)

    def refuse_busy(self, case: int) -> None:
        """Raises FileFailed for a file after whose turns the device is busy more often than after
        the others'.
        """
        everything = sorted(wait_s for waits in self._of.values() for wait_s in waits)
        limit_s = longest_wait_s + 4 * everything[len(everything) // 4]
        long = {file: sum(each > limit_s for each in waits) for file, waits in self._of.items()}
        shares = {file: long[file] / len(waits) for file, waits in self._of.items()}
        file = max(shares, key=lambda each: shares[each])
        others = [share for each, share in shares.items() if each != file]
        if long[file] > most_waits and others and shares[file] > busy_share + 3 * min(others):
            longest_ms = 1e3 * max(self._of[file])
            share = shares[file]
            why = SubmissionFailed(
                "timing.busy_between_calls",
                f"the device was busy after {share:.0%} of its calls, for up to "
                f"{longest_ms:.1f} ms: what runs between calls slows the others",
                share=round(100 * share),
            )
            raise FileFailed(file, case, why)


_codes = 0x00, 0x38, 0x40
"""0, 1 and 2 in E4M3, as in the contest's inputs."""


def with_own_scales(data: input_t, count: int) -> list[tuple[input_t, output_t]]:
    """So many inputs with other scales of row 0 of b, and what ``reference.ref_kernel`` makes of
    each.
    """
    a, b, sfa, sfb, sfa_permuted, sfb_permuted, c = data
    k_blocks, l = sfb.shape[1:]
    table = torch.tensor(_codes, dtype=torch.uint8, device=c.device)
    scales = table[torch.randint(0, len(_codes), (count, k_blocks, l), device=c.device)]
    exact = torch.stack(
        [
            exact_gemv(
                a.view(torch.uint8)[:, :, batch],
                b.view(torch.uint8)[0, :, batch],
                sfa[:, :, batch],
                scales[:, :, batch].T.contiguous().view(torch.float8_e4m3fn),
            )
            for batch in range(l)
        ]
    )
    results = round_once_to_fp16(exact)  # [l, m, count]
    block = torch.arange(k_blocks, device=c.device)
    found = []
    for number in range(count):
        plain, permuted = sfb.clone(), sfb_permuted.clone()
        plain.view(torch.uint8)[0] = scales[number]
        permuted.view(torch.uint8)[0, 0, 0, block % 4, block // 4] = scales[number]
        expected = torch.empty_like(c)
        expected[:, 0] = results[:, :, number].T
        found.append(((a, b, sfa, plain, sfa_permuted, permuted, c), expected))
    return found
