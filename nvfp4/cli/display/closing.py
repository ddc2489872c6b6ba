"""The last line of a verdict: one sentence that says what came of it."""

from rich.text import Text

from nvfp4.cli.judging.unclear_policy import way_out
from nvfp4.cli.problem import shape_of
from nvfp4.cli.text import seconds, several
from nvfp4.cli.verdict import BenchmarkResult, TestResult, Verdict


def closing_line(verdict: Verdict) -> Text:
    """Passed, failed, unclear or interrupted: how many cases, how long, the first that failed."""
    if verdict.interrupted:
        line = f"interrupted{_taken(verdict, 'after')}: {_counts(verdict)}"
        return Text(line, style="bold yellow")
    if verdict.passed:
        return Text(_passed(verdict), style="bold green")
    if verdict.unclear:
        line = f"unclear{_taken(verdict)}: {_counts(verdict)}; {_way_out(verdict)}"
        return Text(line, style="bold yellow")
    return Text(_failed(verdict), style="bold red")


def _way_out(verdict: Verdict) -> str:
    results: list[TestResult | BenchmarkResult] = [*verdict.tests, *verdict.benchmarks]
    return way_out({each.failure.code for each in results if each.failure})


def _passed(verdict: Verdict) -> str:
    # Of full-range ones alone.
    wrong = sum(test.status == "fail" for test in verdict.tests)
    left = sum(test.status == "skipped" for test in verdict.tests)
    what = [several(len(verdict.tests) - wrong - left, "test")] if verdict.tests else []
    if verdict.benchmarks:
        how = "emulated" if verdict.emulated else "timed"
        marked = any(each.unverified for each in verdict.benchmarks)
        mark = " (unverified)" if marked else ""
        what.append(f"{several(len(verdict.benchmarks), 'benchmark')} {how}{mark}")
    sentence = f"passed: {', '.join(what)}{_taken(verdict)}"
    for word, count in (("failed", wrong), ("not judged", left)):
        if count:
            sentence += f"; {word}: {several(count, 'test')} with full-range inputs"
    return sentence


def _failed(verdict: Verdict) -> str:
    first = verdict.decider
    if first is None or first.status != "fail":
        return f"failed: nothing was judged{_taken(verdict)}"
    tested = isinstance(first, TestResult)
    results = verdict.tests if tested else verdict.benchmarks
    failed = sum(each.status == "fail" for each in results)
    count = f"{failed} of {several(len(results), 'test' if tested else 'benchmark')}"
    sentence = f"failed: {count}{_taken(verdict)}, first: {_case(first)}"
    left = sum(each.status == "skipped" for each in results)
    if left:
        sentence += f"; {several(left, 'test' if tested else 'benchmark')} not run"
    warn = sum(each.status == "fail" for each in verdict.tests)
    if not tested and warn:
        sentence += f"; {several(warn, 'test')} with full-range inputs failed, which only warns"
    return sentence


def _counts(verdict: Verdict) -> str:
    parts, judged = [], False
    for noun, results in (("test", verdict.tests), ("benchmark", verdict.benchmarks)):
        counts = {"pass": "passed", "fail": "failed", "skipped": "not judged"}
        said = [
            f"{count} {word}"
            for status, word in counts.items()
            if (count := sum(each.status == status for each in results))
        ]
        if all(each.status == "skipped" for each in results):
            said = ["none judged"] if results else []
        else:
            judged = True
        if said:
            parts.append(f"of {several(len(results), noun)} {', '.join(said)}")
    return "; ".join(parts) if judged else "nothing was judged"


def _taken(verdict: Verdict, preposition: str = "in") -> str:
    if verdict.elapsed_s is None:
        return ""
    return f" {preposition} {seconds(verdict.elapsed_s)}"


def _case(result: TestResult | BenchmarkResult) -> str:
    shape = str(shape_of(result.spec))
    return f"{shape}, {result.inputs} inputs" if isinstance(result, TestResult) else shape
