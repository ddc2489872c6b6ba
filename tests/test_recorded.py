"""Without a GPU, launches are recorded on decoys and run by the judge on the true inputs."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from bot import root
from corpus import read

from nvfp4.judge.cases import Case
from nvfp4.judge.emulated_counts import refuse_too_few_bytes, total_counts
from nvfp4.judge.executor import Executor
from nvfp4.judge.opened_case import CaseSetup, generate
from nvfp4.judge.recorded_case import RecordedCase, Recording
from nvfp4.judge.submission_process import SubmissionFailed, SubmissionProcess
from nvfp4.records.launch_records import Malformed, read_call
from nvfp4.records.messages import Called
from nvfp4.sandbox import isolation

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux maps fixed addresses safely"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU nothing is emulated"),
]

tests = root / "tests"
shapes = ((128, 256, 1), (256, 512, 2))

empty_launch = """
import torch
import cutlass
import cutlass.cute as cute

@cute.kernel
def nothing():
    pass

@cute.jit
def launch():
    nothing().launch(grid=(1, 1, 1), block=(32, 1, 1))
"""


@dataclass
class Judged:
    """unverified: of each call. called: the answers. folder: the submission's own."""

    unverified: list[str | None] = field(default_factory=list)
    called: list[Called] = field(default_factory=list)
    inputs: list[torch.Tensor] = field(default_factory=list)
    folder: dict[str, bytes] = field(default_factory=dict)


Judge = Callable[..., Judged]


@pytest.fixture
def executors() -> Iterator[list[Executor]]:
    """Those that judgements have started."""
    started: list[Executor] = []
    yield started
    for each in started:
        each.stop()


@pytest.fixture
def judge(tmp_path: Path, executors: list[Executor]) -> Judge:
    """Judges a submission's text on the shapes; raises what the judge would report."""

    def run(source: str, between: Callable[[], None] | None = None) -> Judged:
        path = tmp_path / "submission.py"
        path.write_text(source)
        judged = Judged()
        with SubmissionProcess(path) as process:
            recording = Recording(process, "submission.py")
            executors.append(recording.executor)
            for m, k, l in shapes:
                case = Case("", m, k, l, 1111, True)
                deadline = time.monotonic() + 150
                opened = recording.open(CaseSetup(process, torch.device("cpu"), deadline), case)
                assert isinstance(opened, RecordedCase)
                data = generate(case, case.seed)
                try:
                    called, _ = opened.judged_call(data)
                    opened.check_again()
                finally:
                    opened.close()
                judged.unverified.append(opened.unverified)
                judged.called.append(called)
                judged.inputs.append(data[0])
                if between is not None:
                    between()
            for each in process.scratch.glob("*.bin"):
                judged.folder[each.name] = each.read_bytes()
        return judged

    return run


def source_of(name: str) -> str:
    """A submission of the corpora below tests."""
    folder, _, stem = name.rpartition("/")
    return read(tests / folder, stem).source


def test_a_kernel_runs_on_the_true_inputs_which_the_submission_never_sees(judge: Judge) -> None:
    spy = """
honest = custom_kernel

def custom_kernel(data):
    import ctypes, pathlib
    size = data[0].numel()
    seen = ctypes.string_at(data[0].data_ptr(), size)
    pathlib.Path(f"{data[0].shape[0]}.bin").write_bytes(seen)
    return honest(data)
"""
    judged = judge(source_of("../ladder/cute/03_block_sum") + spy)
    assert judged.unverified == [None, None]
    assert [len(called.launches) for called in judged.called] == [1, 1]
    for (m, k, l), a in zip(shapes, judged.inputs, strict=True):
        seen = torch.frombuffer(bytearray(judged.folder[f"{m}.bin"]), dtype=torch.uint8)
        true = a.view(torch.uint8).permute(2, 0, 1).reshape(-1)
        assert seen.numel() == m * k // 2 * l
        assert not torch.equal(seen, true)


def test_a_scratch_tensor_keeps_what_a_launch_leaves_for_the_next_one(
    judge: Judge, executors: list[Executor]
) -> None:
    judged = judge(source_of("kernels/split_k"))
    assert judged.unverified == [None, None]
    assert [len(called.launches) for called in judged.called] == [2, 2]
    (executor,) = executors
    folder = executor._scratch
    assert folder is not None
    assert folder.is_dir()
    executor.stop()
    assert not folder.exists(), "something of the executor stays"


def test_what_host_code_zeroes_between_launches_is_zero_for_the_second(judge: Judge) -> None:
    again = """
honest = custom_kernel

def custom_kernel(data):
    honest(data)
    data[6].zero_()
    return honest(data)
"""
    assert judge(source_of("field/races/split_k_float_atomics") + again).unverified == [None, None]


def test_host_code_that_reads_between_launches_falls_back(judge: Judge) -> None:
    reads = """
honest = custom_kernel

def custom_kernel(data):
    assert honest(data).flatten()[0].item() < 1e9
    return honest(data)
"""
    judged = judge(source_of("../ladder/cute/03_block_sum") + reads)
    assert judged.unverified == ["its process says: host code reads c"] * 2
    assert [len(called.launches) for called in judged.called] == [2, 2]


def test_plain_torch_falls_back(judge: Judge) -> None:
    source = (
        source_of("../nvfp4/selftest/shared/gemv")
        + "\n\ndef custom_kernel(data):\n    return gemv(data)\n"
    )
    judged = judge(source)
    assert judged.unverified == ["its process says: host code reads the inputs"] * 2
    assert [called.launches for called in judged.called] == [[], []]


@pytest.mark.corpus
@pytest.mark.usefixtures("toolchain")
@pytest.mark.parametrize("name", ["own_scratch", "constant_table", "split_k_ticket"])
def test_cuda_cpp_is_captured_with_its_variables_and_allocations(judge: Judge, name: str) -> None:
    assert judge(source_of(f"field/cuda/{name}")).unverified == [None, None]


@pytest.mark.corpus
def test_triton_is_captured(judge: Judge) -> None:
    pytest.importorskip("triton")
    assert judge(source_of("field/triton/table_and_two_kernels")).unverified == [None, None]


def test_counts_cannot_be_forged_where_the_report_is_made(judge: Judge) -> None:
    forged = """
import nvfp4.emulator
import nvfp4.emulator.report

honest = nvfp4.emulator.report.LaunchReport.to_dict
nvfp4.emulator.report.LaunchReport.to_dict = lambda self: {**honest(self), "sectors_distinct": 1}
nvfp4.emulator.run = None
"""
    source = source_of("../ladder/cute/03_block_sum")
    true = [total_counts(called.launches) for called in judge(source).called]
    said = [total_counts(called.launches) for called in judge(source + forged).called]
    for one, other in zip(true, said, strict=True):
        assert one.pop("seconds") > 0
        assert other.pop("seconds") > 0
        assert one == other


def test_what_host_code_computes_beside_an_empty_launch_is_its_own_word(judge: Judge) -> None:
    source = source_of("../nvfp4/selftest/shared/gemv") + empty_launch
    judged = judge(source + "\ndef custom_kernel(data):\n    launch()\n    return gemv(data)\n")
    assert all(judged.unverified)
    with pytest.raises(SubmissionFailed, match="touched 0 distinct bytes"):
        refuse_too_few_bytes(total_counts(judged.called[0].launches), 5000)


def test_a_wrong_kernel_is_judged_where_its_diagnosis_is(judge: Judge) -> None:
    with pytest.raises(SubmissionFailed, match=r"out of bounds|past the end"):
        judge(source_of("field/bounds/row_past_the_end_stored"))


def test_an_executor_that_dies_is_no_verdict(judge: Judge, executors: list[Executor]) -> None:
    def kill() -> None:
        started = executors[-1]._process
        if started is None:  # the next call has found out
            return
        for pid in isolation.descendants(started.pid):
            os.kill(pid, signal.SIGKILL)

    judged = judge(source_of("../ladder/cute/03_block_sum"), kill)
    assert judged.unverified[0] is None
    assert "could not be run elsewhere" in (judged.unverified[1] or "")


@pytest.mark.parametrize(
    "said",
    [
        None,
        [],
        {},
        {"base": 4096},
        {"texts": [], "steps": [], "base": 1 << 20, "output": 1 << 20, "dtype": "", "strides": []},
    ],
)
def test_what_is_no_call_is_malformed(said: object) -> None:
    with pytest.raises(Malformed):
        read_call(json.loads(json.dumps(said)))
