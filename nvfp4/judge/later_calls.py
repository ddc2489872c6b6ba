"""Further calls of cases that have passed; their number and order cannot be foreseen.

They reveal results that a submission keeps from call to call, and code that skips the values that
the contest's inputs never have. The contest's inputs decide; wrong results on others are reported.
"""

import secrets
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from functools import partial

from nvfp4.contract.referee import Drawn
from nvfp4.judge.ahead import Ahead
from nvfp4.judge.opened_case import OpenedCase, OutOfTime
from nvfp4.judge.protocol import Exit
from nvfp4.judge.submission_process import SubmissionFailed
from nvfp4.records.cases import Case
from nvfp4.records.failures import BY_JUDGE
from nvfp4.records.unanswered import longest_again_s, longest_call_s

most_calls = 8
"""Limit for a case; each call after the least number comes with probability one quarter."""

_margin = 3.0
"""A later call that times out within this many times the first call's time may just need more
time."""

long_call_s = 2.5
"""A case whose call takes longer is called only once more."""

least_left_s = 5.0
"""Time to leave in the judge's limit for what comes after the later calls."""

too_slow = "kernel.too_slow"
"""Code of an emulated kernel that advances but would not end within the mode's time."""

_OF_ANY_INPUTS = ("kernel.runaway_kernel", too_slow, "kernel.emulator_failed", "machine.limit")
"""Codes of a failure that does not depend on the inputs: an emulated kernel ran out of time, or
memory was short."""

_more = "(in another call with other inputs of the same shape)"


def drawn_order(least: dict[int, int]) -> list[int]:
    """Return each number at least ``least[number]`` times, in random order."""
    random = secrets.SystemRandom()
    order: list[int] = []
    for number, times in least.items():
        while times < most_calls and random.random() < 0.25:
            times += 1
        order += [number] * times
    random.shuffle(order)
    return order


def judged_code(failed: SubmissionFailed) -> str:
    """Return the code of a failure; "" if only the submission's process says so, which would let it
    end its calls."""
    return failed.failure.code if failed.failure.told_by == BY_JUDGE else ""


@dataclass
class LaterCalls:
    """Further calls of one case."""

    case: Case
    redraw: Callable[[bool], Drawn]
    """Draws inputs cheaply; its argument says whether they are full-range."""
    open: Callable[[], AbstractContextManager[OpenedCase]]
    """Opens the case for a call."""
    call_s: float
    """The duration of a call."""
    least: int
    """The least number of calls."""
    full_range_call: int | None = None
    """Which call has full-range inputs though the case has others, counted from 0; None for
    none."""
    full_range: str | None = None
    """Whether that call was right, pass or fail."""
    made: int = 0
    """The number of calls so far."""
    busy_s: float = 0.0
    """Processor seconds of the last one; other work on the machine does not lengthen them."""
    ended: bool = False
    """Whether there are no more calls, because the case has failed or a call takes too long."""

    def draw(self, after_another: bool = False) -> Drawn:
        """Return inputs of the next call, or of the one after it."""
        full = self.made + after_another == self.full_range_call
        return self.redraw(self.case.full_range or full)

    def make(self, drawn: Drawn) -> dict[str, str]:
        """Make a call with inputs from `draw` and return what it adds to the report. Raises
        SubmissionFailed if the case cannot pass any more, and OutOfTime."""
        began_s = time.monotonic()
        full = self.made == self.full_range_call
        try:
            with self.open() as opened:
                if full:
                    right = self._is_right_on_full_range(opened, drawn)
                    self.full_range = "pass" if right else "fail"
                else:
                    opened.call_again(drawn)
                report = opened.mark()
        except SubmissionFailed as failed:
            self.ended = True
            if self._had_too_little_time(failed, time.monotonic() - began_s):
                raise OutOfTime from None
            self.least = 0
            raise failed.and_more(_more) from None
        self.call_s, self.busy_s = opened.last_call_s, opened.busy_s
        self.made += 1
        return {**report, "full_range": str(self.full_range)} if full else report

    def _had_too_little_time(self, failed: SubmissionFailed, had_s: float) -> bool:
        enough_s, code = _margin * self.call_s, judged_code(failed)
        if code == "kernel.runaway_kernel":  # at the end of the mode's time
            enough_s = min(enough_s, longest_call_s / 2)
        elif code != too_slow and failed.end is not Exit.TIMED_OUT:  # too_slow cannot hang
            return False
        return had_s < enough_s

    def _is_right_on_full_range(self, opened: OpenedCase, drawn: Drawn) -> bool:
        """Return whether a full-range call is right. Raises SubmissionFailed if it is wrong for a
        reason other than its inputs."""
        try:
            with opened.unexplained():
                opened.call_again(drawn)
            return True
        except SubmissionFailed as failed:
            short_of_memory = failed.failure.arguments.get("signal") == "SIGKILL"
            of_any_inputs = failed.failure.code in _OF_ANY_INPUTS or short_of_memory
            if failed.end is Exit.TIMED_OUT or of_any_inputs:
                raise
            before = failed
        opened.resume()
        opened.call_again(self.redraw(self.case.full_range))  # these decide
        if opened.busy_s <= long_call_s:
            refuse_state(opened, before, drawn)
        return False

    @property
    def is_long(self) -> bool:
        """Whether a later call took so long that there are no more calls of any kind."""
        return self.busy_s > long_call_s

    @property
    def left_out(self) -> str | None:
        """Return a sentence for the report if there were too few calls, else None."""
        if self.made >= self.least and not self.is_long:
            return None
        times = "once" if self.made == 0 else "twice"
        why = "the time was used up by then"
        if self.call_s > long_call_s:
            why = f"a call takes {self.call_s:.3g} s here"
        return f"it was called {times} only: {why}"


def refuse_state(opened: OpenedCase, failed: SubmissionFailed, drawn: Drawn) -> None:
    """Repeat a wrong call in a new process. Raise SubmissionFailed if its output is right there,
    since then the state left by earlier calls was the cause."""
    try:
        opened.call_alone(drawn)
    except (SubmissionFailed, OutOfTime):
        return
    why = "in a process of its own this call is right: what earlier calls have left decides"
    state = SubmissionFailed("output.state", f"{failed}\n{why}")
    state.failure = replace(state.failure, causes=failed.failure.causes)
    raise state from None


def make_all(
    cases: dict[int, LaterCalls],
    deadline: float,
    reporting: Callable[[int], AbstractContextManager[dict[str, str]]],
    ahead: Ahead,
) -> None:
    """Call all cases in turn, while time is left.

    deadline: on the monotonic clock. reporting: a context manager that adds its block's dictionary
    to the report of a case, or notes why the case failed. ahead: draws the next inputs during a
    call.
    """
    # By the known time of a call, as the first one may include compilation.
    end_s = min(time.monotonic() + longest_again_s, deadline - least_left_s)
    told: dict[int, dict[str, str]] = {number: {} for number in cases}
    order = drawn_order({number: case.least for number, case in cases.items()})
    for position, number in enumerate(order):
        case = cases[number]
        call_s = case.call_s if case.made else 0.0
        if case.ended or case.is_long or time.monotonic() + call_s > end_s:
            continue
        with reporting(number) as report, suppress(OutOfTime):
            drawn = ahead.take(("later", position), case.draw)
            for following in order[position + 1 : position + 2]:
                draw = partial(cases[following].draw, following == number)
                ahead.prepare(("later", position + 1), draw)
            added = case.make(drawn)
            report.update(dict(added.items() - told[number].items()))
            told[number] |= added
    for number, case in cases.items():
        said = case.left_out
        if said is not None and "unverified" not in told[number]:
            with reporting(number) as report:
                report["unverified"] = said
