"""Without a GPU every launch runs in the judge's executor, on the true inputs, at once."""

import math
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from bot import root
from corpus import read

from gemv import make_case, referee
from nvfp4 import emulator
from nvfp4.capture.emulated_gpu import ExecutorLink
from nvfp4.emulator import Launch
from nvfp4.emulator.errors import NotAdmitted
from nvfp4.executor.__main__ import Executor
from nvfp4.executor.faults import Admission
from nvfp4.executor.gpu import Gpu
from nvfp4.executor.mapped_memory import MappedMemory
from nvfp4.judge import executor as gpu_of_judge
from nvfp4.judge.choose_referee import files_beside
from nvfp4.judge.observing import findings_of, total_counts
from nvfp4.judge.opened_case import CaseSetup, OpenedCase
from nvfp4.judge.submission_process import SubmissionFailed, SubmissionProcess
from nvfp4.model.tools import tools
from nvfp4.records import gpu_messages
from nvfp4.records.channel import Channel
from nvfp4.records.failures import BY_JUDGE, BY_SUBMISSION, Finding
from nvfp4.records.files import sealed_file
from nvfp4.records.messages import Begin, Called, Done, End, Ended, OpenSession, pack
from nvfp4.records.options import Options
from nvfp4.sandbox import isolation, workers
from nvfp4.worker.raised import failure_of

pytestmark = [
    pytest.mark.usefixtures("server_of_executors"),
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux maps fixed addresses safely"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU nothing is emulated"),
]

tests = root / "tests"


@dataclass
class Judged:
    """Of each call. folder: the submission's own. executors: the processes that were the GPU."""

    marks: list[dict[str, str]] = field(default_factory=list)
    called: list[Called] = field(default_factory=list)
    findings: list[list[Finding]] = field(default_factory=list)
    predicted: list[dict[str, object]] = field(default_factory=list)
    folder: dict[str, str] = field(default_factory=dict)
    executors: set[int] = field(default_factory=set)


Judge = Callable[..., Judged]


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    """Judges a submission's text on the shapes as benchmarks; raises what the judge reports."""

    def run(
        source: str,
        between: Callable[[SubmissionProcess], None] = lambda process: None,
        shapes: Sequence[tuple[int, int, int]] = ((128, 256, 1), (256, 512, 2)),
    ) -> Judged:
        path = tmp_path / "submission.py"
        path.write_text(source)
        judged = Judged()
        with SubmissionProcess(path, files=files_beside(Options())) as process:
            for m, k, l in shapes:
                case = make_case(m, k, l, True)
                setup = CaseSetup(process, torch.device("cpu"), time.monotonic() + 150, referee)
                with closing(OpenedCase(setup, case)) as opened:
                    opened.is_benchmark = True
                    called, _ = opened.judged_call(opened.draw(case.seed))
                    opened.check_again()
                judged.marks.append(opened.mark())
                judged.called.append(called)
                judged.findings.append(findings_of(opened, called))
                judged.predicted.append(opened.predicted)
                assert process.gpu and process.gpu._process
                judged.executors.add(process.gpu._process.pid)
                between(process)
            for each in process.scratch.glob("*.txt"):
                judged.folder[each.name] = each.read_text()
        return judged

    return run


def source_of(name: str) -> str:
    """A submission of the corpora below tests."""
    folder, _, stem = name.rpartition("/")
    return read(tests / folder, stem).source


block_sum = "../ladder/cute/03_block_sum"
wrapped = "\nhonest = custom_kernel\n\ndef custom_kernel(data):\n"
UNSET = "torch.empty(500_000, device='cuda')"  # which is noise, and nothing that host code sends
plain_torch = "\n\ndef custom_kernel(data):\n    return gemv(data)\n"


@pytest.mark.parametrize(
    ("name", "more", "launches"),
    [
        (block_sum, "", 1),
        (block_sum, f"import torch\n{wrapped}    kept = {UNSET}\n    return honest(data)\n", 1),
        ("field/races/split_k_workspace", "", 2),  # which keeps what a launch leaves
        (
            "field/races/split_k_float_atomics",
            wrapped + "    honest(data)\n    data[6].zero_()\n    return honest(data)\n",
            4,
        ),
    ],
)
def test_kernels_are_the_judges_word(judge: Judge, name: str, more: str, launches: int) -> None:
    judged = judge(source_of(name) + more)
    assert judged.marks == [{}, {}]
    assert [len(called.launches) for called in judged.called] == [launches] * 2
    assert len(judged.executors) == 1


READS = {
    128: ("honest(data).flatten()[0].item()", "reads c"),
    256: ("honest(data).cpu()", "reads c"),
    384: ("data[0].view(torch.uint8).sum()", "reads a"),
    512: ("data[2].float(); data[6].tolist()", "reads sfa and c"),
    640: ("kept = torch.arange(20_000.0).cuda()", "sends 80,000 bytes to the device"),
    768: ("r = [torch.ones(4).cuda() for _ in range(9000)]", "sends 144,000 bytes to the device"),
}
"""By the number of rows: what host code reads or sends, and how that is said."""


def test_host_code_that_reads_device_memory_is_right_and_named(judge: Judge) -> None:
    each = "".join(f"    if len(data[0]) == {m}: {reads}\n" for m, (reads, _) in READS.items())
    more = f"import torch\n{wrapped}{each}    return honest(data)\n"
    judged = judge(source_of(block_sum) + more, shapes=[(m, 256, 1) for m in READS])
    assert judged.marks == [{"unverified": f"host code {what}"} for _, what in READS.values()]


def test_plain_torch_has_no_counts_that_could_be_wrong(judge: Judge) -> None:
    judged = judge(source_of("../nvfp4/selftest/shared/gemv") + plain_torch)
    assert judged.marks == [{}, {}]
    assert [called.launches for called in judged.called] == [[], []]


def test_an_address_is_no_memory_of_the_host(judge: Judge) -> None:
    more = wrapped + "    import ctypes\n    ctypes.string_at(data[0].data_ptr(), 9)\n"
    with pytest.raises(SubmissionFailed, match="killed by SIGSEGV") as raised:
        judge(source_of(block_sum) + more)
    assert "ctypes.string_at(data[0].data_ptr(), 9)" in str(raised.value)
    assert "host code cannot use an address of the device's memory" in str(raised.value)


def test_patching_the_emulator_in_the_submissions_process_changes_nothing(judge: Judge) -> None:
    """No verdict, finding, count or prediction; and none of it is there to begin with."""
    forged = """
import pathlib, sys

pathlib.Path("loaded.txt").write_text(" ".join(sys.modules))

import nvfp4.emulator
import nvfp4.emulator.report
import nvfp4.model.prediction

honest = nvfp4.emulator.report.LaunchReport.to_dict
nvfp4.emulator.report.LaunchReport.to_dict = lambda self: {**honest(self), "sectors_distinct": 1}
nvfp4.emulator.report.Findings.records = lambda self, kernel: []
nvfp4.emulator.run = nvfp4.model.prediction.predict = None
"""
    source = source_of("field/races/number_nobody_reads")
    honest, patched = judge(source), judge(source + forged)
    loaded = patched.folder["loaded.txt"].split()
    assert not [each for each in loaded if each.startswith(("nvfp4.emulator", "nvfp4.model"))]
    assert any(honest.findings)
    assert {each.told_by for found in honest.findings for each in found} == {BY_JUDGE}
    assert patched.findings == honest.findings
    for one_time, other_time in zip(honest.predicted, patched.predicted, strict=True):
        assert other_time["us"] == pytest.approx(one_time["us"], rel=0.05)  # from drawn CTAs
    assert patched.marks == honest.marks
    for one, other in zip(honest.called, patched.called, strict=True):
        counts, others = total_counts(one.launches), total_counts(other.launches)
        assert counts.pop("seconds") > 0
        assert others.pop("seconds") > 0
        assert counts == others


FORGED = """
    import dataclasses, gc
    from nvfp4.capture.emulated_gpu import EmulatedGpu
    from nvfp4.records.launch import Note
    gpu = next(each for each in gc.get_objects() if type(each) is EmulatedGpu)
    kept, notes = gpu.launch, [Note("a", "b"), *[Note("a", "")] * 300, Note("shared_race", "c")]
    gpu.launch = lambda launch: kept(dataclasses.replace(launch, notes=notes))
    return honest(data)
"""


def test_no_number_of_notes_makes_one_the_judge_s_word(judge: Judge) -> None:
    judged = judge(source_of(block_sum) + wrapped + FORGED, shapes=[(128, 256, 1)])
    assert {each.told_by for each in judged.findings[0]} == {BY_SUBMISSION}


def test_a_fault_is_told_by_the_judge_at_its_line(judge: Judge) -> None:
    with pytest.raises(SubmissionFailed, match="outside every tensor") as raised:
        judge(source_of("field/bounds/row_past_the_end_stored"))
    assert raised.value.failure.told_by == BY_JUDGE
    assert str(raised.value).count("outside every tensor") == 1
    assert "launched at submission.py:" in str(raised.value)


@pytest.mark.parametrize(("forked", "number"), [(False, 9), (True, 9), (True, signal.SIGABRT)])
def test_an_executor_that_dies_is_no_verdict(
    judge: Judge, monkeypatch: pytest.MonkeyPatch, forked: bool, number: int
) -> None:
    if not forked:  # it is a child, with an exit code
        monkeypatch.setattr(workers, "_executors", [workers.ForkServer(socket.socket())])

    def kill(process: SubmissionProcess) -> None:
        assert process.gpu and process.gpu._process
        os.kill(isolation.descendants(process.gpu._process.pid)[-1], number)

    with pytest.raises(SubmissionFailed, match="the emulated GPU is gone") as raised:
        judge(source_of(block_sum), kill)
    code = "machine.limit" if number == 9 else "kernel.emulator_failed"
    assert raised.value.failure.code == code  # Linux kills where memory is short


def test_where_numba_refuses_to_load_a_verdict_has_its_words(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "numba.py").write_text("raise ImportError('Numba needs NumPy 2.4')")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{root}")
    monkeypatch.setattr(workers, "_executors", [workers.ForkServer(socket.socket())])
    with pytest.raises(SubmissionFailed, match="Numba needs NumPy") as raised:
        judge(source_of(block_sum))
    assert raised.value.failure.code == "import.not_installed"


@pytest.mark.parametrize("opens", [True, False])
def test_what_imports_hears_of_an_executor_that_dies(opens: bool) -> None:
    ours, theirs = socket.socketpair()
    with theirs, sealed_file(gpu_messages.window_bytes) as window:
        if opens:
            Channel(theirs).send(pack(gpu_messages.Window()), window.fileno())
    with pytest.raises(Exception, match="the emulated GPU has ended") as raised:
        ExecutorLink(ours).ask(gpu_messages.Write([]))
    assert failure_of(raised.value, Path("submission.py"), imported=False).code == "machine.limit"


@pytest.mark.corpus
@pytest.mark.usefixtures("toolchain")
@pytest.mark.parametrize("name", ["own_scratch", "constant_table", "split_k_ticket"])
def test_cuda_cpp_keeps_its_variables_and_allocations(judge: Judge, name: str) -> None:
    assert judge(source_of(f"field/cuda/{name}")).marks == [{}, {}]


@pytest.mark.corpus
def test_triton_is_captured(judge: Judge) -> None:
    pytest.importorskip("triton")
    assert judge(source_of("field/triton/table_and_two_kernels")).marks == [{}, {}]


managed = r"""
import torch
from torch.utils.cpp_extension import load_inline

source = r'''
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void twice(int *values) { values[threadIdx.x] *= 2; }

int64_t sum_of_twice() {
  int *values;
  cudaMallocManaged(&values, 32 * sizeof(int));
  for (int i = 0; i < 32; i++) values[i] = i;
  twice<<<1, 32>>>(values);
  cudaDeviceSynchronize();
  int64_t sum = 0;
  for (int i = 0; i < 32; i++) sum += values[i];
  cudaFree(values);
  return sum;
}
'''
built = load_inline("managed", "int64_t sum_of_twice();", source, functions=["sum_of_twice"])
assert built.sum_of_twice() == 32 * 31
assert built.sum_of_twice() == 32 * 31
"""


@pytest.mark.usefixtures("toolchain")
def test_managed_memory_is_the_hosts_and_the_devices(judge: Judge) -> None:
    assert judge(source_of(block_sum) + managed).marks == [{}, {}]


# A launch that no GPU takes is refused, whatever the submission's process says.

needs_ptxas = pytest.mark.skipif(not tools("ptxas"), reason="needs ptxas")

_values = range(200)
_many_registers = "".join(
    [
        "ld.param.u64 %rd0, [p];\n",
        *(f"ld.volatile.global.u32 %r{i}, [%rd0+{4 * i}];\n" for i in _values),
        *(f"st.volatile.global.u32 [%rd0+{4 * i}], %r{i};\n" for i in reversed(_values)),
    ]
)


def admit(body: str, threads: int = 128, version: str = "8.8") -> str:
    """Why it was not asked about. Raises what the executor would."""
    ptx = (
        f".version {version}\n.target sm_100a\n.address_size 64\n"
        ".visible .entry k(.param .u64 p) {\n.reg .b64 %rd<2>; .reg .b32 %r<200>;\n"
        f"{body}\nret;\n}}\n"
    )
    return Admission().require(Launch(ptx, "k", (1, 1, 1), (threads, 1, 1), [bytes(8)]))


@needs_ptxas
@pytest.mark.parametrize(
    ("body", "threads", "said"),
    [
        (".reg .b32 z; .reg .b32 z;", 128, "Duplicate definition of variable 'z'"),
        ("mov.u32 %r0, 0f3f800000;", 128, "Arguments mismatch for instruction 'mov'"),
        (".shared .b8 x[300000]; st.shared.u8 [x], %r0;", 128, "too much shared data"),
        (_many_registers, 1024, r"1024 threads of 2\d\d registers; a block has 65536"),
    ],
)
def test_what_ptxas_or_a_multiprocessor_refuses_is_not_admitted(
    body: str, threads: int, said: str
) -> None:
    with pytest.raises(NotAdmitted, match=said):
        admit(body, threads)
    admit(_many_registers, threads=256)


@needs_ptxas
def test_ptx_that_no_assembler_knows_is_not_said_to_be_wrong() -> None:
    assert admit("mov.u32 %r0, 1;") == ""
    said = admit("mov.u32 %r0, 1;", version="99.0")
    assert said == "no ptxas here knows the PTX of k; a newer one may"


class HostMemory:
    """Device memory that is this process's own."""

    def map_file(self, fd: int, nbytes: int, address: int) -> None: ...
    def is_shared(self, address: int, nbytes: int) -> bool:
        return False


def start_of(text: int, ctas: int, threads: int, *parameters: str) -> gpu_messages.Start:
    """The request for a launch of kernel k, of which nothing is out of the ordinary."""
    dims, flags = ((ctas, 1, 1), (threads, 1, 1), (1, 1, 1)), (False, False, False, False)
    return gpu_messages.Start(text, "k", *dims, 0, 0, *flags, [*parameters], [], [], None)


def gpu_of(ptx: bytes) -> Gpu:
    """A GPU that has this kernel."""
    gpu = Gpu(OpenSession([], "", "", "", True), HostMemory(), bytearray(ptx))  # type: ignore[arg-type]
    gpu.answer(gpu_messages.AddText(len(ptx)), None)
    return gpu


MARKS = (
    b".version 8.8\n.target sm_100a\n.address_size 64\n"
    b".visible .entry k(.param .u64 p) {\n.reg .b64 %rd<3>; .reg .b32 %r<2>;\n"
    b"ld.param.u64 %rd0, [p]; mov.u32 %r0, %ctaid.x; mul.wide.u32 %rd1, %r0, 4;\n"
    b"add.u64 %rd2, %rd0, %rd1; mov.u32 %r1, 1; st.global.u32 [%rd2], %r1;\nret;\n}\n"
)
"""Each thread block writes 1 to its word."""


def test_nothing_can_foresee_which_thread_blocks_a_sample_runs() -> None:
    ctas = 1 << 16
    samples = []
    for _ in range(4):
        marks = torch.zeros(ctas, dtype=torch.int32)
        gpu = gpu_of(MARKS)
        place = [0, 4 * ctas, True, [ctas], [4], 0, [], "int32"]
        late, far = time.monotonic() + 60, marks.data_ptr()
        begin = Begin(far, [["a", *place]], 4 * ctas, 0, 0, late, "B200", longest_s=1e-9)
        gpu.begin(begin, os.open(os.devnull, os.O_RDONLY))
        start = start_of(0, ctas, 512, far.to_bytes(8, "little").hex())
        assert gpu.answer(start, None) == gpu_messages.Started("")
        wrong = replace(start, parameters=["00" * 8])  # as it may be where contents are unknown
        assert gpu.answer(wrong, None).failure["code"] == "kernel.too_slow"  # type: ignore[union-attr]
        ended = gpu.end(End())
        assert "CTAs of k were run" in ended.sampled
        assert not ended.fatal
        samples.append(bytes(marks.numpy()))
        assert 0 < marks.sum() < ctas
    assert len(set(samples)) > 1


def test_an_address_of_an_earlier_call_is_told_as_such() -> None:
    gpu, marks = gpu_of(MARKS), torch.zeros(2, 1 << 22, dtype=torch.int32)
    for each in (marks[1], marks[0]):
        base = each.data_ptr()
        begin = Begin(base, [["a", 0, 4, True, [1], [1], 0, [], "int32"]], 4, 0, 0, math.inf)
        gpu.begin(begin, os.open(os.devnull, os.O_RDONLY))
    stale = start_of(0, 1, 1, marks[1].data_ptr().to_bytes(8, "little").hex())
    fault: Any = gpu.answer(stale, None)
    assert "byte 0 of an earlier call's a, which has been freed" in fault.text
    assert "another call's tensors lie elsewhere" in fault.text


def test_a_region_in_whose_place_a_case_was_is_no_memory_any_more() -> None:
    gpu = Gpu(OpenSession([], "", "", "", True), MappedMemory(), bytearray(8))
    here, elsewhere, nbytes = 1 << 45, 1 << 44, 1 << 16
    region = "kept", here, nbytes, True, None
    assert gpu.answer(gpu_messages.SetRegions([region], []), None) == Done()
    for base in (here, elsewhere):
        file = os.memfd_create("case")
        os.ftruncate(file, nbytes)
        gpu.begin(Begin(base, [], nbytes, 0, 0, time.monotonic() + 60), file)
    assert isinstance(gpu.answer(gpu_messages.Read(here, 8, []), None), gpu_messages.Fault)
    full = os.open("/dev/full", os.O_WRONLY)
    gpu._operations[gpu_messages.Read] = lambda *_: os.write(full, b"0")  # type: ignore[assignment]
    fault: Any = gpu.answer(gpu_messages.Read(here, 8, []), None)
    assert fault.failure["code"] == "machine.limit"
    gpu._memory.drop()


def test_another_kernel_of_the_same_name_is_no_launch_that_was_made_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    again: list[bool] = []
    run = emulator.run

    def noting(*launch: Any, **how: Any) -> Any:
        again.append(how["again"])
        return run(*launch, **how)

    monkeypatch.setattr(emulator, "run", noting)
    window = bytearray(1 << 12)
    gpu = Gpu(OpenSession([], "", "", "", True), HostMemory(), window)  # type: ignore[arg-type]
    head = ".version 8.8\n.target sm_100a\n.address_size 64\n.visible .entry k() {"
    for number, body in enumerate(("ret;}", "bar.sync 0; ret;}")):
        text = f"{head} {body}\n".encode()
        window[: len(text)] = text
        gpu.answer(gpu_messages.AddText(len(text)), None)
        start = start_of(number, 1, 1)
        for _ in range(3):
            begin = Begin(0, [], 0, 0, 0, time.monotonic() + 60)
            gpu.begin(begin, os.open(os.devnull, os.O_RDONLY))
            assert gpu.answer(start, None) == gpu_messages.Started("")
    assert again == 2 * [False, False, True]


def test_the_judge_is_heard_before_what_a_worker_has_asked_at_once() -> None:
    (judge, its), (worker, theirs) = socket.socketpair(), socket.socketpair()
    executor = Executor(Channel(its))
    executor._worker = Channel(theirs)
    worker.sendall(b"{}\n" * 400)
    assert executor._worker.take()
    assert executor._judge not in executor._ready()
    judge.sendall(b"{}\n")
    assert executor._judge in executor._ready()
    for each in (judge, its, worker, theirs):
        each.close()


@pytest.mark.parametrize(
    ("path", "code"), [("/dev/full", "machine.limit"), ("/", "kernel.emulator_failed")]
)
def test_a_limit_on_files_is_no_fault_of_ours(path: str, code: str) -> None:
    ours, theirs = map(Channel, socket.socketpair())
    executor = Executor(theirs)
    executor._gpu = cast(Any, SimpleNamespace(end=lambda _: Path(path).write_text("no room")))
    ours.send({**pack(End()), "id": 1})
    executor._serve_judge()
    assert ours.receive(1)[0]["failure"] == {"code": code}
    for each in (ours, theirs):
        each.close()


def test_a_gpu_that_has_no_time_to_answer_is_too_slow_and_no_fault_of_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = socket.socketpair()
    executor = gpu_of_judge.Executor()
    for name in ("start", "stop"):
        monkeypatch.setattr(executor, name, lambda: None)
    executor._channel, executor._greeted = Channel(ours), True
    with theirs, pytest.raises(gpu_of_judge.ExecutorFailed) as failed:
        executor.ask(End(), Ended, 0.05)
    assert failed.value.code == "kernel.too_slow"
