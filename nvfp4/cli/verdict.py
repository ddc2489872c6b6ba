"""The verdict on a submission, and the JSON object it becomes."""

import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import asdict, field, fields, replace
from typing import Any, TypeVar

from nvfp4.cli.b200 import read_counts
from nvfp4.cli.errors import json_schema
from nvfp4.cli.mistakes import Mistake
from nvfp4.cli.problem import leaderboard
from nvfp4.cli.text import visible_json
from nvfp4.records import failures
from nvfp4.records.base import Record
from nvfp4.records.cases import dimensions, full_range_suffix
from nvfp4.records.channel import fits
from nvfp4.records.prediction import Prediction, read_prediction

rankings = {
    "geom": "geometric mean",
    "last": "ranked by the last benchmark",
    "mean": "ranked by the mean",
}
"""The name of the figure that a leaderboard ranks by, for each ``ranking_by`` of a problem."""


class Submission(Record):
    """The file that is judged."""

    path: str
    """The path as given."""
    sha256: str
    """The hash of the file's bytes."""


class Device(Record):
    """The device that judges."""

    kind: str
    """cuda or cpu."""
    name: str
    capability: str | None = None
    driver: str | None = None
    torch: str | None = None
    cuda: str | None = None
    cutlass_dsl: str | None = None
    triton: str | None = None
    nvcc: str | None = None
    """A version, or "none: ..." with the reason."""
    emulates: str | None = None
    """The architecture that kernels are emulated as; None on a GPU."""
    flush: str | None = None
    """contest, clean or fill; None without a GPU."""
    read_gbps: float | None = None
    """The best bandwidth; None if nothing was measured."""
    empty_us: float | None = None
    """The time of an empty call; None if nothing was measured."""
    retargeted: list[dict[str, Any]] = field(default_factory=list)
    """The kernels that were rewritten for this GPU."""


class CaseResult(Record):
    """The result of a case; docs/json.md explains findings and failure."""

    spec: str
    status: str
    """pass, fail, or skipped if it was not judged."""
    message: str | None = None
    error_share: float | None = None
    """The largest error over the allowed one."""
    findings: list[failures.Finding] = field(default_factory=list)
    failure: failures.Failure | None = None
    """Why it did not pass; set for every case that failed."""
    output: str | None = None
    """The text that the submission printed."""
    unverified: str | None = None
    """Why counts may leave out work or are of few calls, or why a test says little; None
    otherwise."""
    dropped: list[str] = field(default_factory=list)
    """The fields for which the result pipe had no room."""
    elapsed_s: float | None = None
    """The duration of the case without later calls."""

    def __post_init__(self) -> None:
        """Give a case that failed a failure with a message; its code is UNKNOWN if there was
        none."""
        if self.status == "fail" or self.failure is not None:
            known = self.failure or failures.Failure(failures.UNKNOWN)
            first_line = (self.message or "").partition("\n")[0]
            filled = replace(known, message=(known.message or first_line)[: failures.LONGEST_TEXT])
            object.__setattr__(self, "failure", filled)


Result = TypeVar("Result", bound=CaseResult)


class TestResult(CaseResult):
    """The result of a test."""

    __test__ = False  # not a pytest class, whatever its name says

    inputs: str = "contest"
    """contest or full."""
    emulated: bool = False
    """Whether it launched kernels that were emulated, as the judge says."""


class BenchmarkResult(CaseResult):
    """The result of a benchmark. Times are None if nothing was timed."""

    timed: bool = False
    runs: int | None = None
    mean_us: float | None = None
    median_us: float | None = None
    std_us: float | None = None
    err_us: float | None = None
    best_us: float | None = None
    worst_us: float | None = None
    batched_us: float | None = None
    """Time of a call among many queued back to back, by the judge's own clock."""
    bytes: int | None = None
    """The least that a kernel must move."""
    floor_us: float | None = None
    sol_us: float | None = None
    """The speed of light, as published by the problem."""
    b200_floor_us: float | None = None
    elements: int | None = None
    """The number of elements that instruction counts are divided by."""
    emulation: dict[str, Any] | None = None
    """Counts of an emulated call; see ``cli.b200``."""
    predicted: Prediction | None = None
    """The time of an emulated call on another GPU."""
    full_range: str | None = None
    """Whether a call with full-range inputs was right, pass or fail; None if there was none."""
    samples_us: list[float] | None = None
    """Every timed call that counts, in order."""


class Score(Record):
    """Means over the benchmarks, geometric unless a field says otherwise."""

    geomean_us: float | None
    """None unless every benchmark was timed and passed."""
    floor_geomean_us: float | None
    sol_geomean_us: float | None
    b200_floor_geomean_us: float | None
    reason: str | None = None
    """Why there is no mean."""
    predicted: Prediction | None = None
    """The figure that the leaderboard ranks by, as predicted for another GPU."""
    ranking_by: str = "geom"
    """geom, mean, or last: only the last benchmark ranks."""
    ranked_us: float | None = None
    """The time by which the leaderboard ranks."""


class Warning(Record):
    """A warning: what happened, and what to do about it."""

    code: str
    message: str
    hint: str


class Verdict(Record, frozen=False):
    """Everything that ``--json`` shows."""

    submission: Submission
    device: Device | None = None
    confined: dict[str, str] = field(default_factory=dict)
    """How the submission's process was confined, by mechanism."""
    tests: list[TestResult] = field(default_factory=list)
    benchmarks: list[BenchmarkResult] = field(default_factory=list)
    warnings: list[Warning] = field(default_factory=list)
    alone: str | None = None
    """How the submission failed when it was run by itself."""
    alone_too_long: bool = False
    """Whether it did not end in time when it was run by itself."""
    mistake: Mistake | None = None
    """Why none of it could be judged."""
    interrupted: bool = False
    """Whether the user stopped the judgement."""
    elapsed_s: float | None = None
    """The duration of the judgement; None if unknown."""
    strict: bool = False
    """Whether findings fail a case."""
    checked: bool = True
    """Whether emulated kernels were checked for mistakes of memory and order."""
    problem: str = leaderboard
    """The leaderboard."""
    problem_sha256: str | None = None
    """See ``Problem.sha256``; None for judgements of earlier versions."""
    ranking_by: str = "geom"
    """See ``Score``."""

    @property
    def results(self) -> list[CaseResult]:
        """Every case, in the order in which they are judged."""
        return [*self.tests, *self.benchmarks]

    @property
    def _deciding_tests(self) -> list[TestResult]:
        """The tests on the contest's own inputs; all tests if there are none."""
        return [test for test in self.tests if test.inputs == "contest"] or self.tests

    @property
    def passed(self) -> bool:
        """Whether the leaderboard would accept the submission. Full-range tests only warn, unless
        one is wrong because of earlier calls."""
        judged = bool(self.tests or self.benchmarks) and not self.interrupted
        benchmarks_passed = all(each.status == "pass" for each in self.benchmarks)
        return judged and not self.mistake and self.full_range_only_warns and benchmarks_passed

    @property
    def keeps_state(self) -> bool:
        """Whether a test fails because of earlier calls, which decides on inputs of any kind."""
        return any(map(_decides, self.tests))

    @property
    def full_range_only_warns(self) -> bool:
        """Whether the deciding tests passed, and failed full-range tests show nothing but trouble
        with their inputs."""
        return not self.keeps_state and all(test.status == "pass" for test in self._deciding_tests)

    @property
    def unclear(self) -> bool:
        """Whether all that was judged is right, but some cases were not judged."""
        results: list[CaseResult] = [*self._deciding_tests, *self.benchmarks]
        left = any(each.status == "skipped" and each.failure for each in results)
        failed = self.keeps_state or any(each.status == "fail" for each in results)
        return left and not failed and not self.mistake and not self.interrupted

    def only_warns(self, result: CaseResult) -> bool:
        """Return whether a failure of a case is only a warning: that of a test on full-range
        inputs, as long as none on the contest's fails. A test that earlier calls made wrong
        decides, too."""
        deciding = self._deciding_tests
        if not isinstance(result, TestResult) or result in deciding or _decides(result):
            return False
        return not any(test.status == "fail" for test in deciding)

    @property
    def decider(self) -> CaseResult | None:
        """The case that keeps the verdict from passing: the first deciding case that failed, else
        the first that could not be judged; None if no case does."""
        deciding = [each for each in self.results if each.failure and not self.only_warns(each)]
        deciding.sort(key=lambda each: each.status != "fail")
        return deciding[0] if deciding else None

    @property
    def outcome(self) -> str:
        """passed, unclear or failed."""
        return "passed" if self.passed else "unclear" if self.unclear else "failed"

    @property
    def emulated(self) -> bool:
        """Whether kernels are emulated here and so not timed, even if none has run."""
        if any(each.emulation for each in self.benchmarks):
            return True
        on_gpu = self.device is not None and self.device.kind == "cuda"
        return not on_gpu and not any(each.timed for each in self.benchmarks)

    @property
    def score(self) -> Score:
        """Return the means over the benchmarks."""
        reason = None
        if not self.benchmarks:
            reason = "no benchmark was run"
        elif not all(each.status == "pass" for each in self.benchmarks):
            reason = "not every benchmark passed"
        elif not all(each.timed for each in self.benchmarks):
            reason = "the kernels were emulated and not timed"
        means = [] if reason else [each.mean_us for each in self.benchmarks]
        told = [each.predicted for each in self.benchmarks]
        # A model errs alike in all of them, so the interval is no narrower than theirs.
        us, low_us, high_us = (
            ranked([getattr(each, name, None) for each in told], self.ranking_by)
            for name in ("us", "low_us", "high_us")
        )
        return Score(
            ranked(means),
            ranked([each.floor_us for each in self.benchmarks]),
            ranked([each.sol_us for each in self.benchmarks]),
            ranked([each.b200_floor_us for each in self.benchmarks]),
            reason,
            Prediction(told[0].gpu, us, low_us, high_us, None) if us and told[0] else None,
            self.ranking_by,
            ranked(means, self.ranking_by),
        )

    def as_json(self) -> dict[str, Any]:
        """Return the documented JSON object."""
        return {
            "schema": json_schema,
            "problem": self.problem,
            "problem_sha256": self.problem_sha256,
            "passed": self.passed,
            "unclear": self.unclear,
            "decided_by": self._decided_by(),
            "submission": asdict(self.submission),
            "device": asdict(self.device) if self.device else None,
            "confined": self.confined,
            "tests": [{"case": dimensions(e.spec), **asdict(e)} for e in self.tests],
            "benchmarks": [{"case": dimensions(e.spec), **asdict(e)} for e in self.benchmarks],
            "score": asdict(self.score),
            "warnings": [asdict(warning) for warning in self.warnings],
            "alone": self.alone,
            "mistake": asdict(self.mistake) if self.mistake else None,
            "interrupted": self.interrupted,
            "checked": self.checked,
            "elapsed_s": self.elapsed_s,
        }

    def _decided_by(self) -> dict[str, Any] | None:
        case = self.decider
        if case is None or case.failure is None:
            return None
        failure = asdict(case.failure)
        inputs = case.inputs if isinstance(case, TestResult) else None
        kind = "benchmark" if inputs is None else "test"
        return {"kind": kind, "spec": case.spec, "inputs": inputs, "failure": failure}


def _decides(test: TestResult) -> bool:
    """Return whether a failed test shows more than trouble with full-range inputs: an output that
    depends on earlier calls, or a missing result."""
    return test.failure is not None and test.failure.code in ("output.state", no_result.code)


def by_what(*ranking_by: str) -> str:
    """Return by what figures rank, to end a phrase; "" if all do by the geometric mean."""
    words = sorted({rankings[each] for each in ranking_by})
    return "" if words == [rankings["geom"]] else f", {' or '.join(words)}"


def figure_that_ranks(values: Sequence[float], ranking_by: str) -> float:
    """Return the figure of several benchmarks by which a leaderboard ranks."""
    if ranking_by == "last":
        return values[-1]
    return statistics.fmean(values) if ranking_by == "mean" else statistics.geometric_mean(values)


def ranked(values: Sequence[float | None], ranking_by: str = "geom") -> float | None:
    """Return the figure by which a leaderboard ranks; None unless all values are positive."""
    known = [each for each in values if each is not None and each > 0]
    return figure_that_ranks(known, ranking_by) if known and len(known) == len(values) else None


def unescape(text: str) -> str:
    """Return a value of the result pipe with its line breaks and backslashes."""
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], text)


_times = ("mean", "median", "std", "err", "best", "worst")


def read_device(values: dict[str, str]) -> Device | None:
    """Return the device that eval.py wrote about, None if it did not get that far."""
    if "device.kind" not in values:
        return None
    others = ("read_gbps", "empty_us", "retargeted")
    texts = (each.name for each in fields(Device) if each.name not in others)
    return Device(
        **{name: values.get(f"device.{name}") or None for name in texts},  # type: ignore[arg-type]
        read_gbps=number(values, "device.read_gbps"),
        empty_us=microseconds(values, "device.empty_ns"),
        retargeted=read_retargeted(visible_json(values.get("device.retargeted"))),
    )


def read_retargeted(found: object) -> list[dict[str, Any]]:
    """Return the rewritten kernels; invalid values are left out."""
    kernels = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
    wanted = {
        **dict.fromkeys(("kernel", "source", "target"), str),
        **dict.fromkeys(("instructions", "added"), int),
        "rewritten": dict[str, int],
    }.items()
    return [each for each in kernels if all(fits(kind, each.get(name)) for name, kind in wanted)]


def read_confinement(values: dict[str, str]) -> dict[str, str]:
    """Return how the submission's process was confined: mechanism to description, "none: ..." if
    not."""
    prefix = "confined."
    return {key.removeprefix(prefix): how for key, how in values.items() if key.startswith(prefix)}


judge_ended = failures.Failure("not_judged.judge_ended", "not judged: the judge ended early")

no_result = failures.Failure(
    "process.no_result", "the judge has ended without a result of this case"
)
"""The failure of a case whose result is missing from a report that may not leave it out."""


def read_test(
    values: dict[str, str], index: int, line: str, not_judged: failures.Failure = judge_ended
) -> TestResult:
    """Test number ``index`` of a mode; ``not_judged`` is its failure where it has no status."""
    key = f"test.{index}"
    full = line.endswith(full_range_suffix)
    status = values.get(f"{key}.status")
    said = values.get(f"{key}.error") or values.get(f"{key}.message")
    return TestResult(
        spec=line.removesuffix(full_range_suffix),
        status="pass" if status == "pass" else "fail",
        inputs="full" if full else "contest",
        emulated=values.get(f"{key}.emulated") == "true",
        message=unescape(said) if said else None if status else not_judged.message,
        failure=None if status == "pass" else _failure(values, key, not_judged),
        **_of_any_case(values, key),
    )


def read_benchmark(
    values: dict[str, str], index: int, line: str, not_judged: failures.Failure = judge_ended
) -> BenchmarkResult:
    """Benchmark number ``index`` of a mode. It passed if it has times or counts, all of them
    sensible, and no status but "pass".
    """
    key = f"benchmark.{index}"
    minimum_bytes = count(values, f"{key}.bytes")
    times: dict[str, Any] = {name: microseconds(values, f"{key}.{name}") for name in _times}
    runs = count(values, f"{key}.runs")
    timed = bool(runs and times["mean"] and None not in times.values())
    emulation = read_counts(visible_json(values.get(f"{key}.emulation")), minimum_bytes)
    failed = values.get(f"{key}.status", "pass") != "pass" or (not timed and emulation is None)
    message = unescape(values.get(f"{key}.error") or (not_judged.message if failed else ""))
    full_range = values.get(f"{key}.full_range")
    return BenchmarkResult(
        spec=line,
        status="fail" if failed else "pass",
        timed=timed,
        runs=runs,
        **{f"{name}_us": value for name, value in times.items()},
        batched_us=microseconds(values, f"{key}.batched"),
        bytes=minimum_bytes,
        floor_us=None if emulation else microseconds(values, f"{key}.floor"),
        sol_us=number(values, f"{key}.sol_us"),
        b200_floor_us=number(values, f"{key}.b200_floor_us"),
        elements=count(values, f"{key}.elements"),
        emulation=emulation,
        predicted=read_prediction(visible_json(values.get(f"{key}.predicted"))),
        full_range=full_range if full_range in ("pass", "fail") else None,
        message=message or None,
        failure=_failure(values, key, not_judged) if failed else None,
        samples_us=samples_us(values.get(f"{key}.samples", ""), runs) if timed else None,
        **_of_any_case(values, key),
    )


def _of_any_case(values: dict[str, str], key: str) -> dict[str, Any]:
    """Return the values that are not of a single case. One that was written twice may have been
    dropped once."""
    dropped = values.get(f"{key}.dropped", "").split(",")
    return {
        "error_share": number(values, f"{key}.error_share"),
        "findings": failures.read_findings(visible_json(values.get(f"{key}.findings"))),
        "output": unescape(values.get(f"{key}.output", "")) or None,
        "unverified": unescape(values.get(f"{key}.unverified", "")) or None,
        "dropped": [name for name in dropped if name in failures.OPTIONAL],
        "elapsed_s": number(values, f"{key}.elapsed_s"),
    }


def _failure(values: dict[str, str], key: str, not_judged: failures.Failure) -> failures.Failure:
    """Return the failure that the judge wrote of a case that has not passed.

    Its code is UNKNOWN if it was dropped. It is ``not_judged`` if the case has no status.
    """
    told = failures.read_failure(visible_json(values.get(f"{key}.failure")))
    return told or (failures.Failure(failures.UNKNOWN) if f"{key}.status" in values else not_judged)


def number(values: dict[str, str], key: str) -> float | None:
    """Return a finite number that is not negative; None for anything else."""
    try:
        value = float(values[key])
    except (KeyError, ValueError):
        return None
    return value if 0 <= value < math.inf else None


def count(values: dict[str, str], key: str) -> int | None:
    """Return a number as ``number`` does, cut to a whole one."""
    value = number(values, key)
    return None if value is None else int(value)


def microseconds(values: dict[str, str], key: str) -> float | None:
    """Return a number of nanoseconds, read by ``number``, in microseconds."""
    ns = number(values, key)
    return None if ns is None else ns / 1e3


def samples_us(text: str, runs: int | None) -> list[float] | None:
    """Return one time for each run, in microseconds; None if there are not as many."""
    try:
        times_us = [float(each) / 1e3 for each in text.split(",")]
    except ValueError:
        return None
    sensible = len(times_us) == runs and all(0 <= each < math.inf for each in times_us)
    return times_us if sensible else None
