"""Processes of several submissions side by side: what they took, and what ends it."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import cast

import pytest
import torch
from conftest import process_state

from nvfp4.cli.compare.comparing import FailedThere, Times, time_side_by_side
from nvfp4.cli.errors import SetupError
from nvfp4.cli.judging.invocation import Invocation
from nvfp4.contract.task import input_t, output_t
from nvfp4.judge.cases import parse_case
from nvfp4.judge.clock.device_limits import DeviceLimits
from nvfp4.judge.clock.gated_clock import GatedClock
from nvfp4.judge.compare.comparison import most_rounds_at_once, room_for
from nvfp4.judge.compare.side_by_side import (
    SideBySide,
    blocks,
    calls_in_a_block,
    least_calls_in_a_block,
    that_count,
)
from nvfp4.judge.compare.timed_worker import FileFailed, SharedCase, Waits, Worker, started
from nvfp4.judge.submission_process import SubmissionProcess
from nvfp4.records.options import Options
from nvfp4.sandbox.isolation import descendants
from nvfp4.worker.timing import CallTime

most_calls_of_a_case = 1 + blocks * (1 + calls_in_a_block)

cases = ["m: 128; k: 256; l: 1; seed: 1", "m: 128; k: 256; l: 2; seed: 2"]

right = """
import torch

def custom_kernel(data):
    a, b, sfa, sfb, _, _, c = data
    table = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6, 0, -.5, -1, -1.5, -2, -3, -4, -6],
        device=a.device)
    def values(packed, scales):
        codes = packed.view(torch.uint8).long()
        each = torch.stack((table[codes & 15], table[codes >> 4]), 2).flatten(1, 2)
        return each.double() * scales.double().repeat_interleave(16, 1)
    one, other = values(a, sfa), values(b[:1], sfb[:1])
    c.copy_((one * other).sum(1, keepdim=True))
    return c
"""
fresh = right.replace("c.copy_((one * other).sum(1, keepdim=True))", "").replace(
    "return c", "return (one * other).sum(1, keepdim=True).half()"
)
twice = right.replace("    one, other", "    for _ in range(20): values(a, sfa)\n    one, other")


def wrong_from(call: int) -> str:
    """A submission whose outputs are wrong from this call of a process on."""
    counted = f"    global calls\n    calls += 1\n    if calls >= {call}: c.zero_()\n    return c"
    return "calls = 0\n" + right.replace("    return c", counted)


def timed(
    texts: list[str], rounds: int | None, on_wave: Callable[[Times], bool] | None = None
) -> list[Times]:
    """The waves of submissions with these texts, on the CPU."""
    waves: list[Times] = []

    def note(times: Times) -> bool:
        waves.append(times)
        return bool(on_wave and on_wave(times)) or len(waves) == rounds

    bot = Invocation(Options(device="cpu", timeout_s=60.0)).bot(b"")
    time_side_by_side(bot, [text.encode() for text in texts], cases, rounds, 3, note)
    return waves


def test_every_file_has_a_time_for_every_case_and_the_slower_one_a_longer() -> None:
    waves = timed([right, twice], 2)
    assert len(waves) == 2
    for (round_,) in waves:
        assert len(round_) == 2
        assert all(len(means) == len(cases) for means in round_)
        assert all(quick < slow for quick, slow in zip(*round_, strict=True))


def test_it_goes_on_until_it_is_told_to_end_and_leaves_no_process_behind() -> None:
    timed([right, fresh], None, lambda times: True)
    before = set(descendants(os.getpid()))
    assert len(timed([right, fresh], None, lambda times: True)) == 1
    assert set(descendants(os.getpid())) <= before


def test_outputs_in_memory_of_their_own_and_in_c_do_not_disturb_each_other() -> None:
    assert len(timed([right, fresh, right], 1)) == 1


@pytest.mark.parametrize(
    ("text", "case", "message"),
    [
        (wrong_from(1), 0, "of 128 elements are wrong"),
        (wrong_from(10), 0, "of 128 elements are wrong"),
        (wrong_from(most_calls_of_a_case + 5), 1, "of 256 elements are wrong"),
        ("raise ValueError('no luck')", None, "no luck"),
        (right.replace("return c", "return a"), 0, "custom_kernel returned"),
        (right.replace("return c", "import os; os._exit(3)"), 0, "ended with exit code 3"),
        (
            right.replace("c.copy_(", "b.view(torch.uint8).zero_(); c.copy_("),
            0,
            "changed its input",
        ),
    ],
)
def test_a_wrong_file_ends_it_and_is_named(text: str, case: int | None, message: str) -> None:
    with pytest.raises(FailedThere, match=message) as told:
        timed([right, text], 2)
    assert (told.value.file, told.value.case) == (1, case)


def test_what_is_not_the_files_fault_is_said_of_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.cases", ["m: 0; k: 256; l: 1; seed: 1"])
    with pytest.raises(SetupError, match=r"could not be timed: .*m and l must be at least 1"):
        timed([right, right], 1)


def test_calls_that_the_host_was_late_for_do_not_count_if_they_are_few() -> None:
    prompt, late = CallTime(10.0, 11.0), CallTime(90.0, 91.0, late=True)
    assert that_count([prompt, late, prompt]) == [prompt, prompt]
    assert that_count([late] * 3) == [late] * 3
    assert len(that_count([prompt] * 5 + [late] * 15)) == 20


def test_one_call_that_something_has_disturbed_does_not_count_and_two_do() -> None:
    usual, slow, longest = (CallTime(ns, ns + 1.0) for ns in (10.0, 19.0, 900.0))
    assert that_count([usual] * 19 + [longest]) == [usual] * 19
    assert that_count([usual] * 19 + [slow]) == [usual] * 19 + [slow]
    assert that_count([usual] * 18 + [longest] * 2) == [usual] * 18 + [longest] * 2


@pytest.mark.parametrize(
    ("files", "cores", "gib", "rounds"),
    [
        (2, 16, 139, most_rounds_at_once),
        (2, 16, 80, 8),
        (2, 16, 24, 2),
        (2, 8, 139, 4),
        (2, 2, 139, 1),
        (3, 16, 80, 5),
        (26, 16, 80, 1),
        (2, 16, 4, 1),
    ],
)
def test_processes_have_a_core_each_and_memory(
    files: int, cores: int, gib: int, rounds: int
) -> None:
    assert room_for(files, cores, gib << 30) == rounds


@pytest.mark.parametrize(
    ("block_s", "calls"), [(math.inf, calls_in_a_block), (0.0, least_calls_in_a_block)]
)
def test_those_that_wait_are_stopped_and_go_on_afterwards(
    block_s: float, calls: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nvfp4.judge.compare.side_by_side.block_s", block_s)
    files = []
    for number in (0, 1):
        files.append(tmp_path / str(number) / "submission.py")
        files[-1].parent.mkdir()
        files[-1].write_text(right)
    states: list[int] = []
    timed_call = SharedCase.timed_call
    deadline = time.monotonic() + 60
    with started(files, 2, Options(), deadline) as workers:

        def stopped() -> int:
            """How many are, once those have stopped that were told to."""
            for _ in range(200):
                found = [process_state(worker.process.pid or 0) for worker in workers].count("T")
                if found == 3:
                    break
                time.sleep(0.005)
            return found

        def noting(self: SharedCase, data: input_t, expected: output_t) -> CallTime:
            states.append(stopped())
            return timed_call(self, data, expected)

        monkeypatch.setattr(SharedCase, "timed_call", noting)
        processes = SideBySide(workers, torch.device("cpu"), deadline)
        processes.wait_until_ready()
        processes.load()
        limits = DeviceLimits(read_gbps=1e6, empty_ns=0.0, settle_ns=1e9)
        processes.time(0, parse_case(cases[0]), limits, Random(1))
        assert all(len(worker.means_us) == 1 for worker in workers)
        assert "T" not in [process_state(worker.process.pid or 0) for worker in workers]
    assert states == [3] * 4 * blocks * (1 + calls)


def workers_of(means_us: list[float], clocked: int) -> SideBySide:
    """Processes of one file that have timed one case."""
    workers = []
    for number, us in enumerate(means_us):
        worker = Worker(0, SubmissionProcess(Path(__file__)), 0.0, means_us=[us])
        worker.clock = cast(GatedClock, object()) if number == clocked else None
        workers.append(worker)
    return SideBySide(workers, torch.device("cpu"), 0.0)


def test_a_process_that_is_slower_where_it_is_clocked_gives_its_file_away() -> None:
    with pytest.raises(FileFailed, match=r"a call took 20\.0 us by the judge's clock and 10\.1 us"):
        workers_of([10.0, 10.1, 20.0, 10.2], clocked=2).refuse_disagreement()
    workers_of([10.0, 10.1, 10.5, 10.2], clocked=2).refuse_disagreement()
    workers_of([10.0, 20.0, 10.1], clocked=1).refuse_disagreement()  # too few to tell


def test_escape_sequences_of_a_failure_do_not_reach_the_terminal() -> None:
    with pytest.raises(FailedThere) as told:
        timed([right, "raise ValueError('\\x1b[2J')"], 1)
    assert "\x1b" not in str(told.value)


def test_the_end_of_the_time_is_no_files_fault() -> None:
    slow = right.replace("    a, b, sfa", "    import time; time.sleep(0.2)\n    a, b, sfa")
    bot = Invocation(Options(device="cpu", timeout_s=6.0)).bot(b"")
    with pytest.raises(SetupError, match="longer than 6 s"):
        time_side_by_side(bot, [slow.encode()] * 2, cases, 1, 3, lambda times: True)


def waits_of(**by_file: list[float]) -> Waits:
    waits = Waits()
    for name, found in by_file.items():
        for wait_s in found:
            waits.add(int(name[1:]), wait_s)
    return waits


def refused(waits: Waits) -> FileFailed | None:
    try:
        waits.refuse_busy(2)
    except FileFailed as failed:
        return failed
    return None


def test_a_file_after_whose_calls_the_device_is_busy_is_refused() -> None:
    told = refused(waits_of(f0=[3e-4] * 40, f1=[3e-4, 5e-3] * 20))
    assert told is not None
    assert "busy after 50% of its calls, for up to 5.0 ms" in str(told)
    assert (told.file, told.case) == (1, 2)


@pytest.mark.parametrize(
    "waits",
    [
        waits_of(f0=[3e-4] * 40, f1=[2e-4] * 40),
        waits_of(f0=[3e-4] * 24 + [0.05] * 4, f1=[3e-4] * 28),  # the host's hiccups
        waits_of(f0=[3e-4, 5e-3] * 20, f1=[5e-3, 3e-4] * 20),  # whoever was before
        waits_of(f0=[2e-2] * 40, f1=[2e-2] * 39 + [8e-2]),  # a slow machine
        waits_of(f0=[3e-4, 5e-3]),
    ],
)
def test_waits_that_both_files_have_are_nobodys_fault(waits: Waits) -> None:
    assert refused(waits) is None


@pytest.mark.gpu
def test_a_copy_is_timed_beside_the_kernel_on_a_gpu() -> None:
    text = (Path(__file__).parent.parent / "submission.py").read_bytes()
    waves: list[Times] = []

    def note(times: Times) -> bool:
        waves.append(times)
        return sum(map(len, waves)) == 2

    time_side_by_side(Invocation().bot(b""), [text, text], cases, 2, 3, note)
    assert torch.tensor(waves).gt(0).all()
