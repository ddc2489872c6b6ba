"""Further calls: how many there are, what they get, and what is said of those that are missing."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gemv import make_case
from nvfp4.judge.ahead import Ahead
from nvfp4.judge.fresh_process import Repetition
from nvfp4.judge.later_calls import LaterCalls, drawn_order, make_all, most_calls
from nvfp4.judge.opened_case import OutOfTime
from nvfp4.judge.protocol import Exit
from nvfp4.judge.submission_process import SubmissionFailed
from nvfp4.problems.nvfp4_gemv import reference
from nvfp4.problems.nvfp4_gemv.contents import draw
from nvfp4.problems.nvfp4_gemv.layout import layouts
from nvfp4.records.failures import BY_JUDGE, BY_SUBMISSION, Failure

case = make_case(128, 256, 1)
on_a_cpu = pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU draws as the contest does")


class Opened:
    """A case whose call is what a function of its number and the kind of inputs says."""

    def __init__(
        self,
        is_right: Callable[[int, bool], bool],
        takes_s: float = 0.0,
        ends: bool = True,
        code: str = "output.mismatch",
        **arguments: Any,
    ) -> None:
        self.calls: list[bool] = []
        self._failed = SubmissionFailed(code, "128 of 128 elements are wrong", **arguments)
        self._is_right, self._ends = is_right, ends
        self.last_call_s = self.busy_s = takes_s

    def resume(self) -> None:
        pass

    def mark(self) -> dict[str, str]:
        return {}

    def unexplained(self) -> AbstractContextManager[None]:
        return nullcontext()

    def call_again(self, full: Any) -> None:
        self.calls.append(full)
        time.sleep(self.last_call_s)
        if not self._ends:
            raise SubmissionFailed("timeout.call", "it did not finish", Exit.TIMED_OUT)
        if not self._is_right(len(self.calls), full):
            raise self._failed

    def call_alone(self, full: Any) -> None:
        if not self._is_right(0, full):
            raise self._failed


def judged(
    opened: Opened, left_s: float = 60.0, call_s: float = 0.0, ahead: bool = False, full: int = 0
) -> dict[str, str]:
    """What is reported of one case, whose inputs are only their kind, or why it failed."""
    told: dict[str, str] = {}

    @contextmanager
    def opening() -> Iterator[Any]:
        yield opened

    @contextmanager
    def reporting(number: int) -> Iterator[dict[str, str]]:
        try:
            yield told
        except SubmissionFailed as failed:
            told.update(code=failed.failure.code, error=str(failed))

    kind: Any = bool
    calls = LaterCalls(case, kind, opening, call_s, 2, full_range_call=full)
    make_all({0: calls}, time.monotonic() + left_s, reporting, Ahead(ahead))
    return told


def _repetition() -> Repetition:
    setup: Any = SimpleNamespace(process=SimpleNamespace(source=SimpleNamespace(text="")))
    return Repetition(setup)


def test_nobody_can_foresee_how_many_calls_there_are_nor_in_what_order() -> None:
    orders = [drawn_order({0: 2, 1: 2, 2: 1}) for _ in range(2000)]
    assert len({tuple(each) for each in orders}) > 50
    counts = [Counter(each) for each in orders]
    assert {min(each[number] for each in counts) for number in (0, 1)} == {2}
    assert max(max(each.values()) for each in counts) <= most_calls
    assert len({each[0] for each in counts}) > 3


def test_without_a_case_that_passed_there_is_no_later_call() -> None:
    def reporting(number: int) -> Any:
        raise AssertionError

    make_all({}, time.monotonic() + 60, reporting, Ahead(False))


@pytest.mark.parametrize(("ahead", "full"), [(False, 0), (True, 0), (False, 1), (True, 1)])
def test_a_right_case_has_one_call_on_full_range_inputs(ahead: bool, full: int) -> None:
    opened = Opened(lambda number, full: True)
    assert judged(opened, call_s=40.0, ahead=ahead, full=full) == {"full_range": "pass"}
    assert len(opened.calls) >= 2, "a first call that took long may have compiled"
    assert [number for number, is_full in enumerate(opened.calls) if is_full] == [full]


@pytest.mark.parametrize("code", ["kernel.emulator_failed", "machine.limit", "process.killed"])
def test_a_call_for_which_memory_was_short_says_nothing_of_what_calls_leave(code: str) -> None:
    arguments: Any = {"signal": "SIGKILL"} if code == "process.killed" else {}
    assert judged(Opened(lambda number, full: number > 1, code=code, **arguments))["code"] == code


@pytest.mark.parametrize(
    ("is_right", "code"),
    [
        (lambda number, full: not full, None),
        (lambda number, full: number == 0, "output.mismatch"),
        (lambda number, full: number < 2, "output.mismatch"),
        (lambda number, full: number != 1, "output.state"),
        (lambda number, full: number not in (1, 3), "output.state"),
    ],
)
def test_what_is_wrong_by_its_full_range_inputs_alone_only_warns(
    is_right: Callable[[int, bool], bool], code: str | None
) -> None:
    said = judged(Opened(is_right))
    assert said.get("code") == code
    assert code or said == {"full_range": "fail"}
    more = "(in another call with other inputs of the same shape)"
    assert code != "output.mismatch" or said["error"].endswith(more)


def test_a_kernel_without_time_on_full_range_inputs_keeps_no_state() -> None:
    def is_right(number: int, full: bool) -> bool:
        if full and not any(opened.calls[:-1]):
            raise SubmissionFailed("kernel.runaway_kernel", "it made progress until then")
        return True

    opened = Opened(is_right)
    assert judged(opened)["code"] == "kernel.runaway_kernel"


def test_calls_that_there_is_no_time_for_are_told() -> None:
    said = judged(Opened(lambda number, full: True), left_s=4.0, call_s=40.0)
    assert said == {"unverified": "it was called once only: a call takes 40 s here"}
    said = judged(Opened(lambda number, full: True, takes_s=1.0), left_s=6.5)
    assert said["unverified"] == "it was called twice only: the time was used up by then"


def test_a_case_whose_later_call_takes_long_has_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nvfp4.judge.later_calls.long_call_s", 0.05)
    opened = Opened(lambda number, full: True, takes_s=0.1)
    assert "it was called twice only: a call takes 0.1" in judged(opened)["unverified"]
    assert opened.calls == [True]
    opened = Opened(lambda number, full: not full, takes_s=0.1)
    assert judged(opened)["full_range"] == "fail"
    assert opened.calls == [True, False]
    waiting = Opened(lambda number, full: True, takes_s=0.1)  # for other work on the machine
    waiting.busy_s = 0.01
    assert "unverified" not in judged(waiting)
    repetition, cases = _repetition(), [case, case, replace(case, full_range=True), case]
    chosen = [repetition.choose(cases, left_out=[0, 2], digest=digest) for digest in range(6)]
    assert {frozenset(each) for each in chosen} == {frozenset([1, 3])}
    assert repetition.choose(cases, left_out=range(4), digest=1) == []


def test_a_slow_call_that_does_not_end_in_time_once_more_is_left_out() -> None:
    opened = Opened(lambda number, full: True, ends=False)
    said = judged(opened, call_s=40.0)
    assert said == {"unverified": "it was called once only: a call takes 40 s here"}
    assert len(opened.calls) == 1
    assert judged(Opened(lambda number, full: True, ends=False))["code"] == "timeout.call"


@pytest.mark.parametrize(
    ("code", "call_s", "told_by", "says"),
    [
        ("runaway_kernel", 10.0, BY_JUDGE, "once only"),
        ("too_slow", 10.0, BY_JUDGE, "once only"),
        ("too_slow", 40.0, BY_JUDGE, "once only"),  # on a busy machine
        ("too_slow", 0.0, BY_JUDGE, "it made progress until then"),
        ("too_slow", 10.0, BY_SUBMISSION, "it made progress until then"),
    ],
)
def test_a_later_call_that_the_end_of_all_time_cuts_short_fails_nothing(
    code: str, call_s: float, told_by: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_right(number: int, full: bool) -> bool:
        failure = Failure(f"kernel.{code}", told_by=told_by)
        raise SubmissionFailed.of(failure, "it made progress until then")

    monkeypatch.setattr("nvfp4.judge.later_calls.longest_call_s", 60.0 if call_s < 40 else 0.0)
    assert says in str(judged(Opened(is_right), call_s=call_s))


@on_a_cpu
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize(("m", "k", "l"), [(128, 256, 1), (130, 512, 3), (1500, 64, 2)])
def test_drawn_contents_are_of_the_contest_s_kinds(m: int, k: int, l: int, full: bool) -> None:
    drawn = draw((m, k, l), full, 7)
    like = reference.generate_input(m, k, l, 7)
    for name, tensor, other in zip(layouts(m, k, l), drawn.data, like, strict=True):
        assert (tensor.shape, tensor.stride(), tensor.dtype) == (
            other.shape,
            other.stride(),
            other.dtype,
        ), name
    a, _, sfa, _, permuted, _ = (each.view(torch.uint8) for each in drawn.data[:6])
    assert int(a.max()) == (255 if full else 3)
    assert not drawn.data[2].float().isnan().any()
    if not full:
        assert set(drawn.data[2].float().unique().tolist()) == {0.0, 1.0, 2.0}
    i, j = (torch.randint(0, size, (50,)) for size in (m, k // 16))
    assert torch.equal(permuted[i % 32, i % 128 // 32, i // 128, j % 4, j // 4], sfa[i, j])


@on_a_cpu
@pytest.mark.parametrize("full", [False, True])
def test_known_rows_of_drawn_contents_are_right(full: bool) -> None:
    drawn = draw((1500, 128, 2), full, 7)
    right = reference.ref_kernel(drawn.data)
    assert drawn.has_right(right)
    assert len(drawn.rows) == 512
    assert not drawn.has_right(right + 1)
    assert not draw((1500, 128, 2), full, 8).has_right(right)


@on_a_cpu
def test_scales_are_drawn_as_often_as_the_contest_draws_them() -> None:
    ours, contests = (
        draw((2048, 16384, 1), False, 5).data[2],
        reference.generate_input(2048, 16384, 1, 5)[2],
    )
    shares = [
        torch.bincount(each.view(torch.uint8).flatten().int(), minlength=256) / each.numel()
        for each in (ours, contests)
    ]
    for share in shares:
        assert share[[0, 0x38, 0x40]].tolist() == pytest.approx([1 / 3] * 3, abs=0.0015)


@pytest.mark.parametrize(
    ("failed", "excused"),
    [
        (SubmissionFailed.of(Failure("kernel.too_slow"), ""), True),
        (SubmissionFailed.of(Failure("kernel.too_slow", told_by=BY_SUBMISSION), ""), False),
        (SubmissionFailed("timeout.call", "", Exit.TIMED_OUT, seconds=0.1), True),
        (SubmissionFailed("timeout.call", "", Exit.TIMED_OUT, seconds=60), False),
        (SubmissionFailed("timeout.call", "", Exit.TIMED_OUT, seconds=90, not_its_own_s=89), True),
    ],
)
def test_a_fresh_process_that_is_too_slow_fails_nothing(
    failed: SubmissionFailed, excused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow:
        def __init__(self, *_: Any) -> None: ...

        def draw(self, seed: int) -> None: ...

        def judged_call(self, data: None) -> None:
            raise failed

        def close(self) -> None: ...

    monkeypatch.setattr("nvfp4.judge.fresh_process.OpenedCase", Slow)
    output: Any = None
    with pytest.raises(OutOfTime if excused else SubmissionFailed):
        _repetition().refuse_other_output(case, output, 0)
