"""How the worker decides to retarget, and what the judge and the command make of it."""

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from nvfp4.cli.display.sentences import retargeting_lines
from nvfp4.cli.text import visible_json
from nvfp4.cli.verdict import read_retargeted
from nvfp4.judge.observing import RetargetedKernels
from nvfp4.judge.protocol import ResultPipe
from nvfp4.records.messages import Call, Called, Done, Load, Profile
from nvfp4.records.options import Options
from nvfp4.retarget import extensions
from nvfp4.retarget.errors import NotRetargetable
from nvfp4.worker.fitting import Fitting, RetargetedCalls, names_an_architecture
from nvfp4.worker.raised import explained
from nvfp4.worker.runner import Refused

KERNEL = {"kernel": "gemv_kernel", "source": "sm_100a", "target": "sm_90a", "instructions": 218}
KERNEL |= {"rewritten": {"cvt.rn.f16x2.e2m1x2": 64, "add.rn.f32x2": 2}, "added": 476}


class FakeRunner:
    """Runs what needs another architecture only once it is retargeted."""

    def __init__(self, error: BaseException | None = None, fails: type = Call) -> None:
        self.device = torch.device("cuda")
        self.error, self.fails, self.retargeted = error, fails, False
        self.asked: list[str] = []
        self.operations = {Load: self.answer, Call: self.answer, Profile: self.answer}

    def answer(self, request: Any, fd: int | None) -> object:
        self.asked.append(type(request).__name__)
        if self.error and isinstance(request, self.fails) and not self.retargeted:
            raise self.error
        return Called(1.0, 1.0, False, {}, []) if isinstance(request, Call) else Done()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A factory of calls on a runner; installing tells the runner."""

    def make(runner: FakeRunner, retarget: str = "auto") -> RetargetedCalls:
        def start(self: Any) -> None:
            runner.retargeted = True
            self._translator = SimpleNamespace(kernels=[KERNEL])

        monkeypatch.setattr(Fitting, "_start", start)
        return RetargetedCalls(runner, Options(retarget=retarget))  # type: ignore[arg-type]

    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    monkeypatch.setattr(extensions, "start", lambda *_: None)
    return make


def ask(calls: RetargetedCalls, request: Any) -> Any:
    return calls.operations[type(request)](request, None)


def fails_at_first(calls: RetargetedCalls) -> None:
    """The load succeeds, and the call fails with the first error."""
    ask(calls, Load())
    with pytest.raises(RuntimeError, match="ptxas"):
        ask(calls, Call())


unfit = RuntimeError("ptxas error: Feature 'cvt with .e2m1x2' requires .target sm_100a or higher")


def test_what_runs_as_it_is_stays_as_it_is(calls: Any) -> None:
    runner = FakeRunner()
    worker = calls(runner)
    assert ask(worker, Load()) == Done()
    assert ask(worker, Call()).launches == []
    assert (runner.asked, runner.retargeted) == (["Load", "Call"], False)


@pytest.mark.parametrize(
    ("fails", "asked"), [(Load, ["Load", "Load", "Call"]), (Call, ["Load", "Call", "Load", "Call"])]
)
def test_what_does_not_fit_is_loaded_again(calls: Any, fails: type, asked: list[str]) -> None:
    runner = FakeRunner(unfit, fails)
    worker = calls(runner)
    ask(worker, Load())
    assert ask(worker, Call()).launches == [KERNEL]
    assert runner.asked == asked


def test_never_rewrites_nothing(calls: Any) -> None:
    never = FakeRunner(unfit)
    fails_at_first(calls(never, "never"))
    assert not never.retargeted


@pytest.mark.parametrize(
    "error",
    [Refused("contract.returned", "an arch"), ValueError("no luck"), KeyError(3)],
    ids=lambda e: type(e).__name__,
)
def test_another_error_is_the_submission_s_own(calls: Any, error: Exception) -> None:
    runner = FakeRunner(error)
    worker = calls(runner)
    ask(worker, Load())
    with pytest.raises(type(error)):
        ask(worker, Call())
    assert not runner.retargeted


@pytest.mark.parametrize(
    ("owner", "name", "error"),
    [
        (torch.cuda, "synchronize", RuntimeError("CUDA error: an illegal memory access")),
        (Fitting, "_start", ValueError("sm_75 is older than sm_80")),
    ],
    ids=["the device is lost", "nothing can be rewritten"],
)
def test_where_another_try_fails_the_first_error_counts(
    owner: object, name: str, error: Exception, calls: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise error

    worker = calls(FakeRunner(unfit))
    monkeypatch.setattr(owner, name, fail)
    fails_at_first(worker)


def test_an_architecture_may_be_named_by_the_cause() -> None:
    error = RuntimeError("compilation failed")
    assert not names_an_architecture(error)
    error.__cause__ = ValueError("CUDA_ERROR_NO_BINARY_FOR_GPU")
    assert names_an_architecture(error)
    error.__cause__ = error
    assert not names_an_architecture(error)


def test_what_is_refused_by_name_is_not_tried_again_and_told_in_one_sentence(calls: Any) -> None:
    error = NotRetargetable("tcgen05.mma", "sm_90a", "there is no tensor memory", 7, None)
    runner = FakeRunner(error, Load)
    with pytest.raises(NotRetargetable):
        ask(calls(runner), Load())
    assert runner.asked == ["Load"]
    told = explained(error, Path("mine.py"), "mine.py")
    said = "tcgen05.mma cannot run on sm_90a: there is no tensor memory"
    assert told.splitlines() == [said, "  PTX line 7"]


def written(tmp_path: Path, *reports: list[Any]) -> list[str]:
    path = tmp_path / "pipe"
    kernels = RetargetedKernels(ResultPipe(os.open(path, os.O_WRONLY | os.O_CREAT)))
    for each in reports:
        kernels.note(each)
    return path.read_text().splitlines()


def test_kernels_travel_to_the_verdict(tmp_path: Path) -> None:
    (line,) = written(tmp_path, [{"kernel": "gemv", "findings": []}], [KERNEL], [KERNEL])
    key, _, value = line.partition(": ")
    assert key == "device.retargeted"
    assert read_retargeted(visible_json(value)) == [KERNEL]
    first, second = retargeting_lines([KERNEL])
    assert first.startswith("retargeted from sm_100a to sm_90a: times hold for this GPU")
    assert second == (
        "  gemv_kernel: 218 PTX instructions +476: 64 cvt.rn.f16x2.e2m1x2, 2 add.rn.f32x2"
    )


def test_what_a_submission_makes_up_stays_plain(tmp_path: Path) -> None:
    wild = {**KERNEL, "kernel": "x" * 9999, "added": "many"}
    wild["rewritten"] = {str(i): i for i in range(99)}
    (line,) = written(tmp_path, [wild] * 50, [7, None, {"rewritten": 3}])
    assert len(line) < 3100
    for kernel in read_retargeted(visible_json(line.partition(": ")[2])):
        assert (len(kernel["kernel"]), kernel["added"], len(kernel["rewritten"])) == (60, 0, 12)
    for text in (None, "", "{", "[1, {}]", json.dumps([{**KERNEL, "rewritten": {"a": "b"}}])):
        assert read_retargeted(visible_json(text)) == []
    assert not list(retargeting_lines([]))
