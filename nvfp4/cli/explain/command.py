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
from nvfp4.cli.explain import listing as page
from nvfp4.cli.explain.advice import CostlyLine, costly_lines
from nvfp4.cli.judging.assess import read_submission
from nvfp4.cli.judging.bot import Bot
from nvfp4.cli.judging.unclear_policy import is_ours
from nvfp4.cli.problem import Problem, Shape, find_problem, shape_of
from nvfp4.cli.text import first_lines, one_line, visible, visible_json
from nvfp4.records.channel import record
from nvfp4.records.costs import Kernel
from nvfp4.records.failures import read_findings
from nvfp4.records.options import Options
from nvfp4.records.prediction import read_prediction

instructions_a_launch = 4_000_000
"""Warp instructions after which a launch is only sampled: emulating them takes two seconds."""

widest_sentence = 100


@dataclass(frozen=True)
class Explained:
    """The explanation of a call of one shape."""

    spec: str
    shape: Shape
    kernels: list[Kernel]
    costly: list[CostlyLine]
    error: str | None
    """Why there are no kernels."""
    unclear: bool = False
    """Whether the error is no fault of the submission."""
    unverified: str | None = None
    """Why counts may leave out work."""


def explain_and_show(
    submission: Path, cases: Sequence[str], options: Options, shown: page.Shown, as_json: bool
) -> int:
    """Explain a call of each case, show it, and return the exit code: 1 if a call failed, 3 if only
    for what is not emulated or for lack of time.

    cases: as the user names them; without any, the first benchmark. Raises SetupError.
    """
    described, content = read_submission(submission)
    problem = find_problem(options.problem, submission)
    options = replace(options, name=one_line(submission.name))
    lines = problem.chosen(cases, problem.benchmarks)
    found = explain(content, lines if cases else lines[:1], options, problem, shown)
    passed = all(each.error is None for each in found)
    head = {"passed": passed, "submission": vars(described), "emulates": options.arch}
    plain = [_plain(each, shown) for each in found]
    text = json.dumps({**head, "cases": plain}, indent=2, allow_nan=False)
    if as_json:
        click.echo(text)
    else:
        source = visible(content.decode("utf-8", "replace")).split("\n")
        console = new_console()
        shown = replace(shown, columns=console.width)
        for each in found:
            for line in _lines(each, options, source, shown):
                console.print(line, soft_wrap=True)
    if passed:
        return exits.passed
    return exits.unclear if all(each.unclear for each in found if each.error) else exits.failed


def explain(
    content: bytes, cases: list[str], options: Options, problem: Problem, shown: page.Shown
) -> list[Explained]:
    """Run the submission once for each case, in the confined worker. Raises SetupError."""
    named = "" if problem.is_bundled else problem.name
    bot = Bot(problem, content, replace(options, device="cpu", problem=named))
    wanted = [name for name in ("ptx", "sass") if getattr(shown, name)]
    ended, text = bot.run_explain(cases, instructions_a_launch, wanted)
    if not text:
        last = ended.stderr.splitlines()[-1:] or [f"it ended with {ended.exit_code}"]
        raise SetupError(f"nothing was explained: {last[0]}", "nvfp4 info shows what is here.")
    results: list[dict[str, Any]] = visible_json(text)
    if len(results) < len(cases):  # it could not be loaded
        results = results[:1] * len(cases)
    found = []
    for case, result in zip(cases, results, strict=True):
        shape, kernels = shape_of(case), list(map(_kernel, result.get("kernels", [])))
        costly = costly_lines(kernels, shape, shown.top)
        told = result.get("error"), is_ours(result.get("code")), result.get("unverified")
        found.append(Explained(case, shape, kernels, costly, *told))
    return found


def _kernel(plain: dict[str, Any]) -> Kernel:
    """Read a kernel from the executor's object."""
    found = record(Kernel, {"ptx": [], "sass": [], **plain, "predicted": None, "findings": []})
    predicted, findings = map(plain.get, ("predicted", "findings"))
    return replace(found, predicted=read_prediction(predicted), findings=read_findings(findings))


def _plain(explained: Explained, shown: page.Shown) -> dict[str, Any]:
    """Return the part of the JSON object about a shape."""
    asked = {"ptx": shown.ptx, "sass": shown.sass, "no_sass": shown.sass}
    return {
        "spec": explained.spec,
        "error": explained.error,
        "unverified": explained.unverified,
        "kernels": [
            {name: value for name, value in asdict(kernel).items() if asked.get(name, True)}
            for kernel in explained.kernels
        ],
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


def _lines(
    explained: Explained, options: Options, source: list[str], shown: page.Shown
) -> Iterator[Text]:
    """Yield the whole text about a shape."""
    title = f"{options.name}, {explained.shape}, emulated as {options.arch}: counts, no times"
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
    if explained.unverified:
        yield Text(f"unverified: counts may leave out work: {explained.unverified}", style="yellow")
    for kernel in explained.kernels:
        yield Text("")
        for line in page.kernel_heading(kernel):
            yield Text(line, style="bold" if line.startswith("kernel") else "")
        if shown.sass and kernel.no_sass:
            yield Text(kernel.no_sass)
        yield from map(Text, page.listing(kernel, options.name, source, shown))
    yield Text(f"\n{page.legend}\n", style="dim")
    count = len(explained.costly)
    heading = "The line that costs most" if count == 1 else f"The {count} lines that cost most"
    yield Text(heading, style="bold")
    several, width = len(explained.kernels) > 1, min(shown.columns, widest_sentence)
    yield from map(Text, page.costly_sentences(explained.costly, several, width))
    yield Text(page.cost_legend, style="dim")
    saved = list(page.savings(explained.kernels, several))
    if saved:
        yield Text("\nIf a line cost nothing, predicted by the model", style="bold")
        yield from map(Text, saved)
        yield Text(page.time_legend, style="dim")
