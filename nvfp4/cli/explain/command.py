"""`nvfp4 explain`: what each line of a submission costs, on the emulator."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from nvfp4.cli import errors as exits
from nvfp4.cli.display.console import new_console
from nvfp4.cli.errors import SetupError
from nvfp4.cli.explain.advice import CostlyLine, costly_lines
from nvfp4.cli.explain.listing import (
    Layout,
    cost_legend,
    costly_sentences,
    kernel_heading,
    legend,
    listing,
    savings,
    time_legend,
)
from nvfp4.cli.judging.assess import read_submission
from nvfp4.cli.judging.bot import Bot
from nvfp4.cli.judging.unclear_policy import is_ours
from nvfp4.cli.problem import Problem, Shape, find_problem, load_problem, shape_of
from nvfp4.cli.text import first_lines, one_line, visible, visible_json
from nvfp4.records.channel import NotPlain, record
from nvfp4.records.costs import Kernel
from nvfp4.records.failures import read_findings
from nvfp4.records.options import Options
from nvfp4.records.prediction import read_prediction

instructions_a_launch = 4_000_000
"""Warp instructions after which a launch is a sample: it takes two seconds to emulate them."""

staged_name = "submission.py"

widest_sentence = 100


@dataclass(frozen=True)
class ExplainOptions:
    """top: how many lines get a sentence. The others as of `records.options.Options`."""

    problem: str = ""
    arch: str = "sm_100a"
    model: str = "B200"
    timeout_s: float = 170.0
    top: int = 5
    ptx: bool = False
    sass: bool = False
    as_json: bool = False


@dataclass(frozen=True)
class Explained:
    """A call of a shape. error: why there are no kernels. unclear: whether that is no fault of the
    submission."""

    spec: str
    shape: Shape
    kernels: list[Kernel]
    costly: list[CostlyLine]
    error: str | None
    unclear: bool = False


def explain_and_show(submission: Path, cases: Sequence[str], options: ExplainOptions) -> int:
    """Explains a call of each case, shows it, returns the exit code: 1 if a call failed, 3 if
    only what is not emulated or the time was why.

    cases: as the user names them; the first benchmark without any. Raises SetupError.
    """
    described, content = read_submission(submission)
    problem = find_problem(options.problem, submission)
    lines = problem.chosen(cases, problem.benchmarks)
    found = explain(content, lines if cases else lines[:1], options, problem)
    passed = all(each.error is None for each in found)
    text = json.dumps(
        {
            "passed": passed,
            "submission": vars(described),
            "emulates": options.arch,
            "cases": [_plain(each, options) for each in found],
        },
        indent=2,
        allow_nan=False,
    )
    if options.as_json:
        click.echo(text)
    else:
        source = visible(content.decode("utf-8", "replace")).split("\n")
        console = new_console()
        for each in found:
            for line in _shown(each, one_line(submission.name), source, options, console.width):
                console.print(line, soft_wrap=True)
    if passed:
        return exits.passed
    return exits.unclear if all(each.unclear for each in found if each.error) else exits.failed


def explain(
    content: bytes, cases: list[str], options: ExplainOptions, problem: Problem | None = None
) -> list[Explained]:
    """Runs the submission once for each case, in the confined worker. problem: NVFP4 GEMV without
    one. Raises SetupError."""
    problem = problem or load_problem()
    judged = Options(
        device="cpu",
        timeout_s=options.timeout_s,
        arch=options.arch,
        model=options.model,
        problem="" if problem.is_bundled else problem.name,
    )
    bot = Bot(problem, content, judged)
    wanted = [name for name in ("ptx", "sass") if getattr(options, name)]
    ended, text = bot.run_explain(cases, instructions_a_launch, wanted)
    if not text:
        last = ended.stderr.splitlines()[-1:] or [f"it ended with {ended.exit_code}"]
        raise SetupError(f"nothing was explained: {last[0]}", "nvfp4 info shows what is here.")
    try:
        results = read_explanations(text)
    except NotPlain as bad:
        error = f"the submission's process sent bad counts: {bad}"
        results = [{"error": error, "code": None, "kernels": []}]
    if len(results) != len(cases):  # it could not be loaded
        why = results[0] if results else {"error": None, "code": None}
        results = [{**why, "error": why["error"] or "no counts came", "kernels": []}] * len(cases)
    found = []
    for case, result in zip(cases, results, strict=True):
        shape, kernels = shape_of(case), result["kernels"]
        costly = costly_lines(kernels, shape, options.top)
        unclear = is_ours(result["code"])
        found.append(Explained(case, shape, kernels, costly, result["error"], unclear))
    return found


_most_entries = 100_000


def read_explanations(text: str) -> list[dict[str, Any]]:
    """An object for each case: `kernels` as Kernel records, or `error` and its `code`. Raises
    NotPlain."""
    found = []
    for case in _list(visible_json(text)):
        if not isinstance(case, dict):
            raise NotPlain("a case is no object")
        error, code = case.get("error"), case.get("code")
        kernels = [] if error is not None else list(map(_kernel, _list(case.get("kernels"))))
        said = {"error": None if error is None else str(error), "kernels": kernels}
        found.append({**said, "code": code if isinstance(code, str) else None})
    return found


def _kernel(value: Any) -> Kernel:
    plain = {"ptx": [], "sass": [], **value} if isinstance(value, dict) else {}
    for name in ("lines", "ptx", "sass"):
        _list(plain.get(name))
    found = record(Kernel, {**plain, "predicted": None, "findings": []})
    predicted, findings = map(plain.get, ("predicted", "findings"))
    return replace(found, predicted=read_prediction(predicted), findings=read_findings(findings))


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list) or len(value) > _most_entries:
        raise NotPlain("a list is missing")
    return value


def _plain(explained: Explained, options: ExplainOptions) -> dict[str, Any]:
    """The part of the JSON object about a shape."""
    kernels = [asdict(kernel) for kernel in explained.kernels]
    for plain in kernels:
        for name in ("ptx", "sass"):
            if not getattr(options, name):
                del plain[name]
        if not options.sass:
            del plain["no_sass"]
    return {
        "spec": explained.spec,
        "error": explained.error,
        "kernels": kernels,
        "costly": [
            {
                "kernel": each.kernel.kernel,
                "line": each.line.line,
                "share": each.share,
                "sentence": each.sentence,
                "advice": [asdict(advice) for advice in each.advice],
            }
            for each in explained.costly
        ],
    }


def _shown(
    explained: Explained, name: str, source: list[str], options: ExplainOptions, columns: int
) -> Iterator[Text]:
    """The whole text about a shape."""
    title = f"{name}, {explained.shape}, emulated as {options.arch}: counts, no times"
    yield Text(title, style="bold")
    if explained.error is not None:
        word, style = ("unclear", "yellow") if explained.unclear else ("failed", "red")
        yield Text(f"{word}:", style=f"bold {style}")
        for line in first_lines(explained.error):
            yield Text(f"  {line}")
        return
    if not explained.kernels:
        yield Text("no kernel was launched: there is nothing to explain")
        return
    layout = Layout(columns, options.ptx, options.sass)
    for kernel in explained.kernels:
        yield Text("")
        for line in kernel_heading(kernel):
            yield Text(line, style="bold" if line.startswith("kernel") else "")
        if options.sass and kernel.no_sass:
            yield Text(kernel.no_sass)
        for line in listing(kernel, staged_name, name, source, layout):
            yield Text(line)
    yield Text(f"\n{legend}\n", style="dim")
    count = len(explained.costly)
    heading = "The line that costs most" if count == 1 else f"The {count} lines that cost most"
    yield Text(heading, style="bold")
    several = len(explained.kernels) > 1
    for line in costly_sentences(explained.costly, several, min(columns, widest_sentence)):
        yield Text(line)
    yield Text(cost_legend, style="dim")
    saved = list(savings(explained.kernels, several))
    if saved:
        yield Text("\nIf a line cost nothing, predicted by the model", style="bold")
        yield from map(Text, saved)
        yield Text(time_legend, style="dim")
