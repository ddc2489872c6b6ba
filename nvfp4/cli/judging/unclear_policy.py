"""Cases that cannot be judged on this machine, which is no fault of the submission.

A call that is refused here may be right. A call that did not end in time fails if it should have
ended, going by the cases that passed or by the longest time of any sensible kernel; otherwise its
result is unknown.
"""

from dataclasses import dataclass, replace

from nvfp4.cli.problem import shape_of
from nvfp4.cli.verdict import CaseResult, Result
from nvfp4.records.failures import BY_SUBMISSION, Failure


@dataclass(frozen=True)
class Refusal:
    """A reason why this machine cannot tell whether a submission is right."""

    code: str
    """The code of the case, which is skipped."""
    words: str
    """The beginning of the case's message, behind ``not judged``."""
    way_out: str
    """Advice on what would help."""


_elsewhere = "on a GPU it can be judged"
not_emulated = Refusal("not_judged.not_emulated", "not emulated", _elsewhere)
emulator_failed = Refusal("not_judged.emulator_failed", "a fault of the emulator", _elsewhere)
too_slow = Refusal("not_judged.too_slow", "too slow here", "--timeout gives more time")
not_installed = Refusal(
    "not_judged.not_installed", "not installed here", "install it, or judge where it is installed"
)
machine_limit = Refusal(
    "not_judged.machine_limit",
    "needs more than this machine has",
    "on a larger machine it can be judged",
)
not_retargeted = Refusal(
    "not_judged.not_retargeted",
    "it cannot be rewritten for this GPU",
    "on a GPU that it is compiled for it can be judged",
)
judge_ended = Refusal("not_judged.judge_ended", "the judge ended early", "try again")

refusals = {
    "kernel.unsupported_instruction": not_emulated,
    "kernel.ptx_syntax": not_emulated,
    "kernel.emulator_failed": emulator_failed,
    "launch.unsupported_call": not_emulated,
    "launch.not_captured": not_emulated,
    "setup.no_gpu": not_emulated,
    "import.not_installed": not_installed,
    "machine.limit": machine_limit,
    "setup.memory": machine_limit,
    "process.too_many": machine_limit,
    "retarget.failed": not_retargeted,
    "retarget.no_replacement": not_retargeted,
    "retarget.driver": not_retargeted,
    "process.not_started": judge_ended,
    "kernel.too_slow": too_slow,
    "not_judged.too_slow": too_slow,
    "not_judged.rounding": Refusal(
        "not_judged.rounding",
        "the reference rounds differently here",
        "on a GPU the problem's own reference decides",
    ),
    "not_judged.problem": Refusal(
        "not_judged.problem", "no reference", "the problem's own code failed"
    ),
    "not_judged.judge_ended": judge_ended,
}
"""The refusal for each code of a failure that says nothing about the submission."""

_out_of_memory = "SIGKILL"
"""The signal by which Linux ends processes if memory is short."""

_margin = 4.0
"""A call hangs after this many times the duration expected from the cases that passed."""

_slowest_s = 1 / 20_000
"""The most seconds for an element: those of a kernel that computes with a single thread."""

_shortest_case_s = 0.1
"""The shortest time that is expected of a case."""

_bound_margin = 2.0
"""A call hangs after this many times `_slowest_s` for its elements, if no case has passed."""

_shortest_s = {"timeout.import": 60.0, "timeout.call": 30.0, "kernel.runaway_kernel": 5.0}
"""A call that had less time is not taken to hang, as host code may get only a tenth of a core on a
busy machine. For a kernel, CPU time is counted, which is not affected."""


def refusal_of(failure: Failure) -> Refusal | None:
    """Return why a failure says nothing about the submission; None if it shows a fault of it."""
    if failure.code == "process.killed":
        return machine_limit if failure.arguments.get("signal") == _out_of_memory else None
    return refusals.get(failure.code)


def is_ours(code: str | None) -> bool:
    """Return whether a failure with this code says nothing about the submission: its call was
    refused or did not get enough time."""
    return code is not None and (code in refusals or code.startswith("timeout."))


def way_out(codes: set[str]) -> str:
    """Return what would help if cases were left out with these codes."""
    least_first = dict.fromkeys((judge_ended, too_slow, *reversed(refusals.values())))
    if "timeout.mode" in codes:
        codes = {*codes - {judge_ended.code}, too_slow.code}
    said = [each.way_out for each in least_first if each.code in codes]
    return said[-1] if said else too_slow.way_out


class Pace:
    """The durations of the cases that passed."""

    def __init__(self) -> None:
        self._passed: list[tuple[int, float]] = []

    def add(self, result: CaseResult) -> None:
        """Note the duration of a case if it passed."""
        if result.status == "pass" and result.elapsed_s is not None:
            self._passed.append((shape_of(result.spec).elements, result.elapsed_s))

    def decided(self, result: Result, emulated: bool) -> Result:
        """Return the result, skipped if it failed only for lack of time or because of a limit of
        the judge.

        emulated: whether there is no GPU. With a GPU, lack of time is excused only if compiling
        took it.
        """
        failure = result.failure
        if result.status != "fail" or failure is None:
            return result
        refusal = refusal_of(failure)
        if refusal is not None:
            return _left_out(result, refusal)
        if not emulated and "not_its_own_s" not in failure.arguments:
            return result
        if failure.code == "timeout.mode":
            return replace(result, status="skipped")
        if failure.code not in _shortest_s or failure.own_s is None:
            return result
        needed_s = _shortest_s[failure.code]
        if emulated and failure.code != "timeout.import":
            needed_s = max(needed_s, self._longest_s(result))
        return result if failure.own_s > needed_s else _left_out(result, too_slow)

    def _longest_s(self, result: CaseResult) -> float:
        """Return the seconds after which a call hangs; with compilation if cases have passed."""
        elements = shape_of(result.spec).elements
        expected_s = self.expected_s(max([elements, *(each for each, _ in self._passed)]))
        return _bound_margin * _slowest_s * elements if expected_s is None else _margin * expected_s

    def expected_s(self, elements: int) -> float | None:
        """Return the expected seconds of a case, going by those that passed; None if none has."""
        if not self._passed:
            return None
        known = dict(self._passed)
        if elements in known:
            return max(_shortest_case_s, known[elements])
        (least, first_s), *_, (most, last_s) = sorted([min(self._passed), *self._passed])
        rises = most > least and last_s > first_s
        element_s = (last_s - first_s) / (most - least) if rises else min(last_s / most, _slowest_s)
        return max(_shortest_case_s, last_s + element_s * (elements - most))


def _left_out(result: Result, refusal: Refusal) -> Result:
    message, failure = result.message or "", result.failure
    assert failure, "it failed"
    if failure.code != refusal.code:  # otherwise the message says so
        says = "its own process says: " if failure.told_by == BY_SUBMISSION else ""
        message = f"not judged: {refusal.words}: {says}{message}"
    failure = replace(failure, code=refusal.code)
    return replace(result, status="skipped", message=message, failure=failure)
