"""`nvfp4 batch`: judges many submissions; each verdict goes into a file or the history."""

from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from nvfp4.cli import errors as exits
from nvfp4.cli.batch import eval_process
from nvfp4.cli.batch.lines import BatchFile, Line, line_of
from nvfp4.cli.batch.progress import Tally, shown, summarise
from nvfp4.cli.batch.this_machine import ThisMachine
from nvfp4.cli.display.console import new_console
from nvfp4.cli.errors import SetupError, error_object
from nvfp4.cli.history.judgements import keep_printed
from nvfp4.cli.problem import find_problem, leaderboards_named, problem_named


def batch_and_show(names: Sequence[Path], options: eval_process.BatchOptions) -> int:
    """Judges files and those in folders, and returns the exit code. Raises SetupError."""
    if options.resume and options.jsonl is None:
        hint = "Name the file of the batch that is to go on: --jsonl OUT --resume."
        raise SetupError("--resume needs --jsonl", hint, "usage")
    paths = eval_process.find_files(names)
    # Judgements run in another folder, some on other machines.
    problem = problem_named(options.judging["problem"])
    said = {"problem_sha256": find_problem(problem).sha256} if problem else {}
    options = replace(options, judging={**options.judging, "problem": problem})
    judges = _judges(options)
    console = new_console()
    tally = Tally(len(paths))
    stopped = False
    file = BatchFile(options.jsonl, options.resume) if options.jsonl else None
    with closing(file) if file else nullcontext():
        with shown(console, tally) as show:
            try:
                _judge(paths, file, judges, options.identity(judges.kind) | said, tally, show)
            except KeyboardInterrupt:
                stopped = True
        summarise(console, tally, options.jsonl, stopped)
    if stopped:
        return exits.interrupted()
    if tally.passed == len(paths):
        return exits.passed
    return exits.unclear if tally.passed + tally.unclear == len(paths) else exits.failed


def _judges(options: eval_process.BatchOptions) -> eval_process.Judges:
    if options.ray is None:
        return ThisMachine(options)
    if options.jobs:
        hint = "Leave it out; Ray places by what each node has."
        raise SetupError("--jobs is for one machine", hint, "usage")
    if ":" in options.device:
        hint = "Leave out --device, or name auto, cpu or cuda."
        raise SetupError(f"--device {options.device} does not go with --ray", hint, "usage")
    from nvfp4.cli.batch.on_ray import RayCluster

    return RayCluster(options)


def _judge(
    paths: Sequence[Path],
    file: BatchFile | None,
    judges: eval_process.Judges,
    options: dict[str, Any],
    tally: Tally,
    show: Callable[[Line], None],
) -> None:
    """Judge the submissions that the file has no verdict of, and show the new verdicts."""
    known: dict[str, dict[str, Line]] = {}
    for line in file.found if file else []:
        # What was judged in time needs no limit.
        same = {**line["options"], "limit_s": None} == {**options, "limit_s": None}
        if same and _counts(line, options):
            path, sha256 = line["submission"]["path"], line["submission"]["sha256"]
            known.setdefault(sha256, {})[path] = line

    def lines_of(
        paths: Sequence[Path], sha256: str | None, verdict: Line, same_as: str | None = None
    ) -> list[Line]:
        """Return a line for each path with the same content. same_as: the judged path, if it is
        not among these."""
        lines = []
        for path in paths:
            lines.append(line_of(verdict, path, sha256, same_as, options))
            same_as = same_as or str(path)
        return lines

    def add(lines: list[Line]) -> None:
        for line in lines:
            tally.add(line)  # an interrupt may come while the file is written
        if file:
            file.append(lines)
        for line in lines:
            show(line)

    def told(candidate: eval_process.Candidate, verdict: dict[str, Any]) -> None:
        tally.judged += 1
        lines = lines_of(candidate.paths, candidate.sha256, verdict)
        if file is None:
            keep_printed(lines[0], candidate.content)
        add(lines)

    candidates, unreadable = eval_process.read_candidates(paths)
    for path, error in unreadable:
        verdict = error_object(error.code, str(error), error.hint)
        add(lines_of([path], None, verdict))
    new = []
    hashes: dict[tuple[str, ...], str | None] = {}
    for candidate in candidates:
        lines = known.get(candidate.sha256, {})
        named = tuple(leaderboards_named(candidate.content))
        if lines and named not in hashes:
            with suppress(SetupError):
                hashes[named] = find_problem(options["problem"], candidate.paths[0]).sha256
        right = None, hashes.get(named)
        lines = {path: e for path, e in lines.items() if e.get("problem_sha256") in right}
        if not lines:
            new.append(candidate)
            continue
        for path in candidate.paths:
            if str(path) in lines:
                tally.add(lines[str(path)])
        missing = [path for path in candidate.paths if str(path) not in lines]
        line = next(iter(lines.values()))
        first = line["same_as"] or line["submission"]["path"]
        add(lines_of(missing, candidate.sha256, line, first))
    tally.begin(len(new))
    tally.gpus = judges.judge(new, told)


def _counts(line: Line, options: dict[str, Any]) -> bool:
    """Return whether a line is not to be replaced: it has a verdict, or the limit was the same."""
    if "error" not in line:
        return True
    return line["error"]["code"] == "batch.limit" and line["options"] == options
