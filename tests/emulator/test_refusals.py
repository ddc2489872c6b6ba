"""What is refused here is never a failure: each refusal leaves the verdict unclear."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bot import case, root
from ptx_harness import run

from nvfp4.capture.emulated_gpu import fault_error
from nvfp4.cli.judging.assess import Observer, Plan, assess
from nvfp4.cli.judging.bot import ProcessResult
from nvfp4.cli.judging.unclear_policy import refusals
from nvfp4.cli.problem import load_problem
from nvfp4.cli.verdict import Submission, Verdict
from nvfp4.emulator import errors
from nvfp4.executor.faults import fault_of
from nvfp4.records.failures import Failure
from nvfp4.records.launch_errors import CaptureError, UnsupportedCall
from nvfp4.records.options import Options
from nvfp4.records.refusals import signs
from nvfp4.retarget.errors import RetargetError
from nvfp4.worker.raised import failure_of
from scripts.codes_page import code_of, subclasses

file = Path("submission.py")


class Failing:
    """eval.py whose only test has failed so."""

    repeat, options, may_emulate = False, Options(), True

    def __init__(self, values: dict[str, str], exit_code: int = 112) -> None:
        self._values, self._exit_code = values, exit_code

    def run_submission(self) -> ProcessResult:
        return ProcessResult(0, "")

    def run_eval(
        self, mode: str, cases: list[str], on_result: Any, on_activity: Any
    ) -> ProcessResult:
        said = {f"test.0.{key}": value for key, value in self._values.items()}
        values = {"device.kind": "cpu", "test-count": "1", "test.0.spec": cases[0], **said}
        for key, value in values.items():
            on_result(key, value)
        return ProcessResult(self._exit_code, "", values=values)


def verdict_of(values: dict[str, str], exit_code: int = 112) -> Verdict:
    verdict = Verdict(Submission("mine.py", "0" * 64))
    plan = Plan([case()], [], load_problem(), inputs=("contest",), repeat=False)
    assess(Failing(values, exit_code), plan, verdict, Observer())  # type: ignore[arg-type]
    return verdict


def outcome_of(error: BaseException, imported: bool = True) -> str:
    """Of a submission that raises it when it is called, or imported, or whose kernel does."""
    if isinstance(error, errors.EmulatorError):
        error = fault_error(fault_of(error, file, file.name, None))
    values = {"failure": failure_of(error, file, imported).as_json(), "status": "fail"}
    values |= {"error": str(error), "complete": "true"}
    if not imported:
        values = {"by_import": "true", **values}
    return verdict_of(values).outcome


def refusing_classes() -> dict[str, type[Exception]]:
    """The classes of our packages whose errors are refusals, by name."""
    bases = (CaptureError, errors.EmulatorError, RetargetError)
    found = (each for base in bases for each in (base, *subclasses(base)))
    return {each.__name__: each for each in found if getattr(each, "refusal", False)}


def test_every_refusal_has_its_words() -> None:
    codes = {code_of(each) for each in refusing_classes().values()} | {each.code for each in signs}
    assert codes <= set(refusals)
    page = (root / "docs" / "emulator.md").read_text(encoding="utf-8")
    assert [code for code in codes if f"`{code}`" not in page] == []


@pytest.mark.parametrize("name", refusing_classes())
def test_what_is_refused_is_unclear(name: str) -> None:
    kind = refusing_classes()[name]
    of_rewriting = ("tcgen05.alloc", "sm_90a", "there is none", 1, None)
    error = kind(*of_rewriting) if name == "NotRetargetable" else kind("no")
    assert outcome_of(error) == "unclear"
    assert outcome_of(error, imported=False) == "unclear"


refused_kernels = [
    *("cvt.rn.f32.e4m3 %r1, %h0;", "cvt.f32.e4m3x2 %r1, %h0;", "cvt.s32.f32 %r1, %r0;"),
    *("cvt.rn.f16x2.s32 %r1, %r0;", "cvt.rn.f16x2.ue8m0x2 %r1, %h0;", "mov.u32 %r1, %pm0;"),
    *("min.lt.f32 %r1, %r0, %r0;", "setp.s32 %p0, %r0, 1;", "add.rn.foo.f32 %r1, %r0, %r0;"),
    *("prmt.b32.rc8 %r1, %r0, %r0, %r0;", "lop3.or.b32 %r1|%p1, %r0, %r0, %r0, 3, %p0;"),
    "cp.async.ca.foo.shared.global [%r0], [%q0], 16;",
    *("cp.async.ca.shared.global [%r0], [%q0], 5;", "cp.async.wait_group %r0;"),
    *("atom.global.u32 %r1, [%q0], 1;", "atom.global.add.u8 %h0, [%q0], %h0;"),
    "cp.async.bulk.mbarrier::complete_tx::bytes [%r0], [%q0], 16, [%r1];",
    "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
    "[%r0], [%q0, {%r0}], [%r1];",
    "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%q0], [%r0], 16;",
    "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r0], %r1, "
    "[%r2];",
    "bar.arrive 1;",
    "tcgen05.frobnicate.cta_group::1 [%r1];",
    "tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r1}, [%r2];",
    "tcgen05.ld.sync.aligned.16x32bx2.x1.b32 {%r1}, [%r2];",
    "tcgen05.ld.sync.aligned.32x32b.x1.pack::16b.b32 {%r1}, [%r2];",
    "tcgen05.cp.cta_group::1.64x128b.warpx4 [%r1], %d1;",
    "tcgen05.mma.sp.cta_group::1.kind::f16 [%r1], %d1, %d2, [%r2], %r3, %p1;",
    "tcgen05.mma.cta_group::1.kind::f128 [%r1], %d1, %d2, %r3, %p1;",
    "tcgen05.mma.cta_group::1.kind::f16 [%r1], %d1, %d2, %r3, {%r4, %r5}, %p1;",
    "tcgen05.mma.cta_group::1.kind::f16 [%r1], %d1, %d2, %r3, %p1, 1, 1;",
    "tcgen05.mma.cta_group::1.kind::mxf4.block_scale.block16 [%r1], %d1, %d2, %r3, [%r4], [%r5],"
    "%p1;",
    "wgmma.fence.sync.aligned;",
    "wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r1, %r2, %r3, %r4}, [%d1];",
    "st.const.u32 [%q0], %r0;",
    "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r1, %r2}, [%r0];",
    "ldmatrix.sync.aligned.m8n8.shared.b16 {%r1}, [%r0];",
    "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r1}, [%r0];",
    "mma.sync.aligned.m16n8k16.row.col.f32.u2.u2.f32 {%r1}, {%r4}, {%r8}, {%r1};",
    *("cvta.to.u64 %d0, %d0;", "cvta.to.global.u32 %r1, %r0;", "isspacep.const %p0, %d0;"),
    *("ld.global.u32 %r1, %q0;", "ld.global %r1, [%q0];"),
    "tensormap.replace.tile.foo.global.b1024.b32 [%q0], 1;",
    "tensormap.replace.tile.box_dim.global.b1024.b32 [%q0], 7, 1;",
    "tensormap.replace.tile.interleave_layout.global.b1024.b32 [%q0], 1;",
    *("shfl.idx.b32 %r1, %r0, 0, 31, -1;", ".reg .f16x4 %w;"),
    *("call %d0, (%r0), P;", "call g;", "call again;"),
    "tex.2d.v4.f32.f32 {%r1, %r2, %r3, %r4}, [%d0, {%r1, %r2}];",
    "st.async.u32 [%q0], %r1, [%r2];",
]
functions = ".extern .func g();\n.func again() { call again; ret; }"


@pytest.mark.parametrize("body", refused_kernels)
def test_a_kernel_that_cannot_be_emulated_is_unclear(body: str) -> None:
    with pytest.raises(errors.UnsupportedInstruction) as refused:
        run(body, np.zeros(64, np.uint32), before=functions)
    assert outcome_of(refused.value) == "unclear"


@pytest.mark.parametrize(
    ("before", "grid", "error"),
    [("", (1 << 31) - 1, errors.TooSlow), (".global .b8 x[1000000000000];", 1, MemoryError)],
)
def test_what_no_machine_holds_is_refused_each_time(
    before: str, grid: int, error: type[Exception]
) -> None:
    for _ in range(2):
        with pytest.raises(error):
            run("", np.zeros(64, np.uint32), before=before, grid=grid)


def test_a_module_that_the_parser_does_not_read_is_unclear() -> None:
    with pytest.raises(errors.EmulatorError) as refused:
        run(".reg .v2 .b32 %vector;", np.zeros(64, np.uint32))
    assert outcome_of(refused.value) == "unclear"


def test_where_the_emulator_itself_fails_the_verdict_is_unclear(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from nvfp4.emulator.execution import launch

    def fails(*_: object) -> None:
        raise IndexError("index 7 is out of bounds")

    monkeypatch.setattr(launch, "run_ctas", fails)
    with pytest.raises(errors.EmulatorFailed, match="index 7") as failed:
        run("mov.u32 %r1, 1;", np.zeros(64, np.uint32))
    assert outcome_of(failed.value) == "unclear"


def test_a_fault_of_a_kernel_is_none() -> None:
    assert outcome_of(errors.OutOfBounds("a write past c")) == "failed"
    assert outcome_of(ValueError("no such shape")) == "failed"


def test_a_refusal_counts_behind_another_exception() -> None:
    def tuned(cause: bool) -> None:
        try:
            raise UnsupportedCall("no time can be measured")
        except UnsupportedCall as refused:
            raise ValueError("tuning failed") from (refused if cause else None)

    with pytest.raises(ValueError, match="tuning") as told:
        tuned(cause=True)
    assert outcome_of(told.value) == "unclear"
    with pytest.raises(ValueError, match="tuning") as told:
        tuned(cause=False)  # it says that nothing of it matters
    assert outcome_of(told.value) == "failed"


@pytest.mark.parametrize(
    ("failure", "outcome"),
    [
        (Failure("setup.memory", "this case needs about 9.1 GiB"), "unclear"),
        (Failure("process.not_started", "the worker did not start"), "unclear"),
        (Failure("process.too_many", "the submission started more than 512"), "unclear"),
        (Failure("process.killed", "SIGKILL", arguments={"signal": "SIGKILL"}), "unclear"),
        (Failure("process.killed", "SIGSEGV", arguments={"signal": "SIGSEGV"}), "failed"),
        (Failure("process.exited", "exit code 1", arguments={"exit_code": 1}), "failed"),
        (Failure("setup.no_gpu", "there is no GPU here"), "unclear"),
    ],
    ids=lambda each: each if isinstance(each, str) else each.message,
)
def test_a_limit_of_this_machine_is_unclear(failure: Failure, outcome: str) -> None:
    said = {"failure": failure.as_json(), "status": "fail", "error": failure.message}
    assert verdict_of({**said, "complete": "true"}).outcome == outcome


@pytest.mark.parametrize("exit_code", [-9, 114, 1])
def test_a_judge_that_ended_early_fails_nothing(exit_code: int) -> None:
    assert verdict_of({}, exit_code).outcome == "unclear"
    assert verdict_of({"status": "pass", "complete": "true"}, exit_code).outcome == "unclear"


on_the_stand_in = {
    "an operator for CUDA alone": "torch.ops.aten._cslt_compress(x)",
    "a dtype that the CPU's kernel lacks": "torch.special.bessel_j0(x)",
    "a nested tensor": "torch.nested.as_nested_tensor([x]).to_padded_tensor(0.0)",
    "gradients": "x.requires_grad_().sum().backward()",
    "a pickle": "__import__('pickle').loads(__import__('pickle').dumps(x))",
    "a storage that is resized": "x.untyped_storage().resize_(0)",
    "torch's CUDA build": "torch._C._cuda_getCurrentBlasHandle()",
    "a time": "torch.cuda.Event().elapsed_time(torch.cuda.Event())",
    "sparse tensors": "x.to_sparse()",
    "scales that are not emulated": "torch._scaled_mm(f8, f8.t(), one, one, scale_result=one)",
    "cudart": "torch.cuda.cudart().cudaHostRegister(0, 0, 0)",
    "memory": "torch.empty(1 << 45, device='cuda')",
    "memory of the host": "bytearray(1 << 45)",
    "a library": "__import__('ctypes').CDLL('libcufft.so.99')",
    "a package": "__import__('pycuda.driver')",
    "libcudart": "__import__('ctypes').CDLL('libcudart.so.12')",
    "SYCL": "cpp_extension.load_inline('x', '', sycl_sources='int x;')",
    "a program": "cpp_extension.load('x', ['x.cu'], is_standalone=True)",
    "torch's compiler at run time": "torch.cuda._compile_kernel('', 'k')",
    "the driver by ctypes": "__import__('ctypes').CDLL('libcuda.so.1')",
    "the driver's functions": "__import__('cuda.bindings.driver').bindings.driver.cuInit(0)",
}


@pytest.mark.skipif(sys.platform != "linux", reason="what is missing has other names")
@pytest.mark.parametrize("what", on_the_stand_in)
def test_what_needs_a_gpu_is_unclear(what: str) -> None:
    import torch
    from torch.utils import cpp_extension

    from nvfp4.emulation import install_stand_in

    with install_stand_in():
        x = torch.ones(16, 16, device="cuda").half()
        known = {"torch": torch, "cpp_extension": cpp_extension, "x": x}
        known |= {"f8": x.to(torch.float8_e4m3fn), "one": torch.ones(1, device="cuda")}
        with pytest.raises(Exception) as refused:  # noqa: PT011
            eval(on_the_stand_in[what], known)
    assert outcome_of(refused.value) == "unclear", refused.value


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        *((name, "unclear") for name in ("cupy", "cuda.core", "tinygrad", "helion")),
        *((name, "failed") for name in ("cutlass.cuet", "mine")),
    ],
)
def test_only_a_package_that_a_gpu_comes_with_may_be_missing(name: str, outcome: str) -> None:
    error = ModuleNotFoundError(f"No module named '{name}'", name=name)
    assert (failure_of(error, file, imported=True).code in refusals) == (outcome == "unclear")


@pytest.mark.parametrize(
    "words", ["No module named 'cupy'", "Torch not compiled with CUDA enabled", "libx.so.1: cannot"]
)
def test_the_words_of_another_error_are_no_refusal(words: str) -> None:
    assert outcome_of(ValueError(words)) == "failed"
