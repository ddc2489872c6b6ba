"""Verdicts and a course of events made by hand, with times that are the same in every run."""

from collections.abc import Iterator
from dataclasses import replace

from bot import problem

from nvfp4.cli.b200 import read_counts
from nvfp4.cli.judging.assess import Observer
from nvfp4.cli.problem import shape_of
from nvfp4.cli.verdict import BenchmarkResult, Device, Submission, TestResult, Verdict, Warning
from nvfp4.records.cases import case_line, full_range_suffix

cpu = Device("cpu", "x86_64", torch="2.13.0", emulates="sm_100a")
gpu = Device("cuda", "NVIDIA B200", "10.0", "580.1", flush="contest", read_gbps=7000.0)

test_lines = [case_line(each) for each in problem()["tests"]]
benchmark_lines = [case_line(each) for each in problem()["benchmarks"]]

wrong = (
    "output mismatch: 64 of 1,024 elements\n"
    "c[64, 0, 0] is 3.5, expected 7.25\n"
    "likely cause: sfa is read in the layout of sfa_permuted, so that each thread of the first "
    "warp multiplies its row with the scales of another one"
)


class Clock:
    """Seconds that pass only when told so."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s

    def passes(self, seconds: float) -> None:
        self.now_s += seconds


def elements(line: str) -> int:
    return shape_of(line).elements


def all_tests(failing: tuple[int, ...] = (), judged: int = 20) -> list[TestResult]:
    """Every test; those with these numbers fail, those from `judged` on were not reached."""
    lines = [(line, inputs) for inputs in ("contest", "full") for line in test_lines]
    results = []
    for number, (line, inputs) in enumerate(lines):
        result = TestResult(line, "pass", inputs=inputs, error_share=0.125)
        if number in failing:
            result = TestResult(line, "fail", wrong, inputs=inputs, error_share=71.5)
        if number >= judged:
            result = TestResult(line, "skipped", "not judged: interrupted", inputs=inputs)
        results.append(result)
    return results


def emulated(line: str) -> BenchmarkResult:
    """As a kernel that asks for each sector twice and has many bank conflicts."""
    least = elements(line) * 9 // 16
    counts = {"sectors_distinct": least // 32 + 900, "sectors_requested": least // 16}
    counts |= {"launches": 2, "warp_instructions_total": elements(line) // 16}
    counts |= {"bank_conflicts": 1234567, "divergent_branches": 5376}
    made = read_counts(counts, least)
    return BenchmarkResult(line, "pass", bytes=least, emulation=made, elements=elements(line))


def timed(line: str) -> BenchmarkResult:
    """As a kernel near the floor."""
    least = elements(line) * 9 // 16
    floor_us = least / 7e6 + 2
    return BenchmarkResult(
        line, "pass", timed=True, runs=100, mean_us=floor_us * 1.1, median_us=floor_us * 1.09,
        std_us=0.5, err_us=0.05, best_us=floor_us * 1.05, worst_us=floor_us * 62.5,
        batched_us=floor_us * 1.02, bytes=least, floor_us=floor_us, sol_us=least / 8e6,
        b200_floor_us=14.9
    )  # fmt: skip


def verdict(
    device: Device, tests: list[TestResult], benchmarks: list[BenchmarkResult], elapsed_s: float
) -> Verdict:
    made = Submission("submission.py", "0" * 64)
    return Verdict(made, device, tests=tests, benchmarks=benchmarks, elapsed_s=elapsed_s)


def skipped(message: str) -> list[BenchmarkResult]:
    return [BenchmarkResult(line, "skipped", message=message) for line in benchmark_lines]


def verdicts() -> dict[str, Verdict]:
    """Each kind of end by name."""
    counted, measured = ([make(line) for line in benchmark_lines] for make in (emulated, timed))
    fault = replace(
        counted[1], status="fail", emulation=None, message="submission.py:57: out of bounds"
    )
    impossible = replace(measured[2], status="fail", message="below the physical floor")
    not_run = skipped("not run: a test on the contest's inputs failed")
    made = {
        "emulated-passed": verdict(cpu, all_tests(), counted, 17.2),
        "emulated-failed": verdict(cpu, all_tests((3, 8, 18)), not_run, 9.44),
        "emulated-fault": verdict(cpu, all_tests(), [counted[0], fault, counted[2]], 16.0),
        "emulated-interrupted": verdict(
            cpu, all_tests((2,), judged=7), skipped("not judged: interrupted"), 5.0
        ),
        "timed-passed": verdict(gpu, all_tests(tuple(range(10, 20))), measured, 21.3),
        "timed-failed": verdict(gpu, all_tests(), [*measured[:2], impossible], 125.0),
    }
    made["emulated-interrupted"].interrupted = True
    made["timed-passed"].warnings = [
        Warning(
            "full_range",
            "right on the contest's inputs, wrong on 10 of 10 tests with full-range inputs",
            "The contest's bytes are 0 to 3 and its scales 0, 1 or 2; real data use all codes.",
        )
    ]
    return made


def play(observer: Observer, clock: Clock) -> Iterator[str]:
    """A judgement without a GPU that passes; stops at each moment that is worth a look."""
    lines = test_lines + [line + full_range_suffix for line in test_lines]
    observer.phase("test", lines, clock() + 170.0)
    clock.passes(2.5)
    observer.device(cpu)
    clock.passes(1.0)
    observer.activity("importing")
    yield "importing"
    for index, result in enumerate(all_tests()):
        observer.started(index, clock())
        clock.passes(0.5)
        observer.activity("compiling")
        clock.passes(0.25)
        if index == 5:
            yield "compiling"
        observer.activity("emulating")
        clock.passes(elements(result.spec) / 1e7)
        observer.finished(index, replace(result, elapsed_s=0.75 + elements(result.spec) / 1e7))
    yield "repeating"
    observer.phase("benchmark", benchmark_lines, clock() + 170.0)
    clock.passes(4.0)
    for index, line in enumerate(benchmark_lines):
        observer.started(index, clock())
        clock.passes(3.0)
        observer.activity("emulating")
        if index == 1:
            yield "emulating"
        clock.passes(elements(line) / 1e7)
        observer.finished(index, replace(emulated(line), elapsed_s=3.0 + elements(line) / 1e7))
