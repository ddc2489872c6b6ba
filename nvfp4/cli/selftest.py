"""Runs the corpus of honest submissions and cheats against the judge."""

import json
import os
import re
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from nvfp4.cli.display.console import say
from nvfp4.cli.judging.assess import Observer, Plan, assess
from nvfp4.cli.judging.bot import Bot, side_by_side
from nvfp4.cli.problem import Problem, case_line, load_problem
from nvfp4.cli.verdict import Submission, Verdict
from nvfp4.records.base import Record
from nvfp4.records.options import Options

_shared = ("gemv", "kernels", "nothing", "ptx", "racy")
"""Files of the corpus that are put in front of those which import these modules."""

_tests = [
    case_line({"m": 128, "k": 256, "l": 1, "seed": 1111}),
    case_line({"m": 256, "k": 1024, "l": 2, "seed": 1114}),
]
"""Among the full-range ones is one whose a begins like the contest's, on a CPU and on CUDA."""

_cpu_benchmarks = [case_line({"m": 4096, "k": 1024, "l": 1, "seed": 1111})]
_cuda_benchmarks = [case_line({"m": 4096, "k": 16384, "l": 1, "seed": 1111})]
"""A shape so large that plain torch is bound by the GPU and not by the host."""

_most_at_once = 12
_most_on_a_gpu = 7
"""Judgements at once on a GPU, whose driver makes one context at a time, however many processes
wait for theirs."""

_loaded = 3
"""Judgements on a GPU at once: one has its turn while others are started."""

_catching = ("full_range", "unverified", "strict")
"""Warnings that catch a cheat which passes; none of them is had by plain torch."""


class Specimen(Record):
    """A submission of the corpus."""

    name: str
    strategy: str
    source: str
    family: int | None = None
    """The family of a cheat; None for an honest submission."""
    caught: str | None = None
    """A pattern of the code and message of the failure or warning that must catch it."""
    needs: str | None = None
    """cuda, cpu or None."""
    only: str | None = None
    """benchmarks for a cheat that shows there; the other mode is left out."""
    quick: bool = False
    """Whether it is one of the few that stand for the rest."""
    slow: bool = False
    """Whether its tests take so long that they are started before others."""
    strict: bool = False
    """Whether findings fail it."""
    limit_gib: int = 0
    """See ``Options``."""
    problem: Problem | None = None
    """The problem that it is for; None for NVFP4 GEMV."""


class Finding(Record):
    """The judge's verdict on a specimen."""

    specimen: Specimen
    verdict: str
    """passed, caught, "failed" for an honest one that did not pass, "escaped" for a cheat that did,
    "other reason" for one caught otherwise, or skipped."""
    how: str
    """The judge's message."""

    @property
    def expected(self) -> bool:
        """Whether the judge did what it must."""
        return self.verdict in ("passed", "caught", "skipped")


def load_corpus(problem: Problem) -> list[Specimen]:
    """Honest submissions first, then cheats by family."""
    folder = problem.folder.parents[1] / "selftest"
    paths = (folder / "shared" / f"{name}.py" for name in _shared)
    shared = {path.stem: path.read_text(encoding="utf-8") for path in paths}
    specimens = _specimens(folder / "honest", shared) + _specimens(folder / "cheats", shared)
    own = (folder / "submission.py").read_text(encoding="utf-8")
    specimens.append(Specimen("submission", "the submission of this repository", own))
    for other in map(load_problem, sorted((folder / "problems").iterdir())):
        answer = (other.folder / "right.py").read_text(encoding="utf-8")
        for each in _specimens(folder / "elsewhere", {**shared, "right": answer}):
            name = f"{other.folder.name}.{each.name}"
            specimens.append(replace(each, name=name, problem=other))
    return sorted(specimens, key=lambda each: each.family or 0)


_kinds = {"family": int, "limit_gib": int, "quick": bool, "slow": bool, "strict": bool}
"""Types of the directives that are not text."""


def _specimens(folder: Path, shared: dict[str, str]) -> list[Specimen]:
    return [_specimen(path, shared) for path in sorted(folder.glob("*.py"))]


def _specimen(path: Path, shared: dict[str, str]) -> Specimen:
    text = path.read_text(encoding="utf-8")
    names = "family|caught|needs|only|strategy|quick|slow|strict|limit_gib"
    directives = dict(re.findall(rf"^# ({names}): (.+)$", text, re.MULTILINE))
    for name, content in reversed(shared.items()):
        if re.search(rf"^from {name} import", text, re.MULTILINE):
            alias = f"import sys\n\nsys.modules[{name!r}] = sys.modules[__name__]\n"
            text = f"{content}\n{alias}\n{text}"
    values = {name: _kinds.get(name, str)(value) for name, value in directives.items()}
    return Specimen(name=path.stem, source=text, **values)


def run_corpus(
    problem: Problem, specimens: list[Specimen], device: str, on_cuda: bool, quick: bool, flush: str
) -> Iterator[Finding]:
    """Judges every specimen; findings are in the order of the specimens.

    All are tested first, several at once; those that pass are then benchmarked, one at a time on a
    GPU, where they would disturb each other. A cheat is judged until it is caught. quick: no
    benchmarks, but of those that show there only.
    """
    benchmarks = _cuda_benchmarks if on_cuda else _cpu_benchmarks
    gemv = replace(problem, tests=_tests, benchmarks=benchmarks)
    # One more than there are cores: a judgement often waits for processes that it has started.
    at_once = min(_most_on_a_gpu if on_cuda else _most_at_once, (os.cpu_count() or 1) + 1)

    gpu = threading.Lock()

    def judge(verdict: Verdict, specimen: Specimen, alone: bool = False, **plan: Any) -> Verdict:
        of = specimen.problem or gemv
        options = Options(
            device=device,
            flush=of.flush if specimen.problem else flush,
            strict=specimen.strict,
            limit_gib=specimen.limit_gib,
            problem=of.name if specimen.problem else "",
        )
        verdict.strict = specimen.strict
        bot = Bot(of, specimen.source.encode(), options, turn=gpu if alone else None)
        assess(bot, Plan.of(of, run_alone=False, **plan), verdict, Observer())
        return verdict

    def test(specimen: Specimen) -> Verdict | None:
        if specimen.needs not in (None, "cuda" if on_cuda else "cpu"):
            return None
        verdict = Verdict(Submission(specimen.name, ""))
        if specimen.only == "benchmarks":
            return verdict
        # A warning counts tests: it needs them all.
        fails = specimen.caught and not specimen.caught.startswith(_catching)
        return judge(verdict, specimen, benchmarks=[], stop_at="fail" if fails else None)

    def benchmark(specimen: Specimen, verdict: Verdict | None) -> Finding:
        if verdict is None:
            what = "a CUDA device" if specimen.needs == "cuda" else "a CPU that emulates"
            return Finding(specimen, "skipped", f"needs {what}")
        caught = _find(specimen, verdict).verdict == "caught"
        if specimen.only == "benchmarks" or (verdict.passed and not caught and not quick):
            judge(verdict, specimen, alone=on_cuda, tests=[])
        return _find(specimen, verdict)

    with side_by_side(at_once) as pool:
        order = sorted(specimens, key=lambda each: not each.slow)
        begun = {each.name: pool.submit(test, each) for each in order}
        verdicts = [begun[each.name].result() for each in specimens]
    with side_by_side(_loaded if on_cuda else at_once) as pool:
        yield from pool.map(benchmark, specimens, verdicts)


def _find(specimen: Specimen, verdict: Verdict) -> Finding:
    """Return the finding on a specimen, by its verdict."""
    said = [f"{each.failure.code}: {each.message}" for each in verdict.results if each.failure]
    said += [f"{verdict.mistake.code}: {verdict.mistake.message}"] if verdict.mistake else []
    if specimen.caught is None:
        how = _one_line(said[0]) if said else _times(verdict)
        outcome = "skipped" if verdict.unclear else "passed" if verdict.passed else "failed"
        return Finding(specimen, outcome, how)
    warned = [f"{each.code}: {each.message}" for each in verdict.warnings if each.code in _catching]
    warned += [f"{each.code}: {each.message}" for test in verdict.results for each in test.findings]
    found = [re.search(specimen.caught, text) for text in [*warned, *said]]
    matches = [_one_line(each.string, each.end()) for each in found if each]
    if verdict.passed and not matches:
        return Finding(specimen, "escaped", "nothing")
    if matches:
        return Finding(specimen, "caught", matches[0])
    return Finding(specimen, "other reason", _one_line(said[0] if said else ""))


def _times(verdict: Verdict) -> str:
    """Return in words how long a call took by events and, if the judge has clocked a batch, by its
    own clock."""
    return ", ".join(
        f"{each.mean_us:.1f} us a call, {each.batched_us:.1f} us by the judge's clock"
        for each in verdict.benchmarks
        if each.mean_us is not None and each.batched_us is not None
    )


def _one_line(message: str, end: int | None = None) -> str:
    """Return the line of a message that holds its last character before ``end``."""
    message = message.rstrip()
    before = len(message[:end].rstrip().splitlines())
    return message.splitlines()[before - 1].strip() if before else ""


def show_findings(console: Console, findings: Iterable[Finding], as_json: bool) -> bool:
    """Prints a row for each finding as it comes, or all as JSON. Returns whether all is as it
    must be.
    """
    seen = []
    for finding in findings:
        seen.append(finding)
        if not as_json:
            say(console, finding_line(finding))
    good = all(finding.expected for finding in seen)
    counts = Counter(finding.verdict for finding in seen)
    if as_json:
        told = ("name", "family", "strategy")
        rows = [
            {name: getattr(each.specimen, name) for name in told}
            | {"verdict": each.verdict, "how": each.how}
            for each in seen
        ]
        print(json.dumps({"passed": good, "findings": rows}, indent=2))
    else:
        summary = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
        say(console, summary, "bold green" if good else "bold red")
    return good


def show_corpus(console: Console, specimens: list[Specimen]) -> None:
    """Prints family, name and strategy of each."""
    for each in specimens:
        family = "honest" if each.family is None else f"cheat {each.family}"
        say(console, f"{family:<9} {each.name:<20} {each.strategy}")


def finding_line(finding: Finding) -> Text:
    """Family, name, strategy, verdict, and how the judge saw through it."""
    specimen = finding.specimen
    family = "-" if specimen.family is None else str(specimen.family)
    skipped = finding.verdict == "skipped"
    style = "dim" if skipped else "green" if finding.expected else "bold red"
    name, word = f"{family:>2}  {specimen.name:<18} ", (f"{finding.verdict:<12}", style)
    line = Text.assemble(name, word, f" {specimen.strategy}")
    if finding.how:
        line.append(f"\n{'':<23}{finding.how}", style="dim")
    return line
