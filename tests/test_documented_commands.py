"""Every command in the README and in docs/ can be typed, and a test or a script runs it."""

import re
import shlex
from collections.abc import Iterator
from importlib.util import find_spec

import pytest
from bot import root
from test_every_command import commands, judgements

from nvfp4.cli.main import main

texts = [
    (root / name).read_text(encoding="utf-8")
    for name in ("README.md", "CONTRIBUTING.md", "ladder/README.md")
]
texts += [page.read_text(encoding="utf-8") for page in sorted((root / "docs").rglob("*.md"))]

command = re.compile(r"(?:nvfp4|python|make|ray|\.venv/bin/\w+|scripts/\w+\.sh) [^#|>]+")


def documented() -> Iterator[str]:
    """The commands that stand in blocks of code and in code spans, without comments and
    redirections."""
    for text in texts:
        blocks = re.findall(r"^ *```(?:sh)?\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)
        lines = [line.strip() for block in blocks for line in block.splitlines()]
        plain = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)
        spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", plain)]
        for each in (*lines, *spans):
            if found := command.match(each):
                yield re.sub(r" \d$", "", found[0].strip())


known = sorted(set(documented()))
incomplete = re.compile(r"OPTIONS|COMMAND|\bARGUMENTS|ID\b|--help|--problem$|ADDRESS$|OUT$")
typed = [each for each in known if each.startswith("nvfp4 ") and not incomplete.search(each)]
"""What can be typed as it stands, but for the names of files."""


@pytest.mark.parametrize("text", typed)
def test_a_command_takes_the_options_that_a_page_gives_it(text: str) -> None:
    name, *arguments = shlex.split(text)[1:]
    if not main.commands[name].get_short_help_str() or arguments:
        main.commands[name].make_context(name, arguments)


run_by = {
    **{"batch --limit-s": "test_batch.py", "batch --resume": "test_batch.py"},
    **{"batch --ray": "test_batch_ray.py", "batch --stop": "test_batch_processes.py"},
    **{"bench --json": "test_json_schema.py", "selftest --json": "test_json_schema.py"},
    **{"check --case": "test_check.py", "check --watch": "test_check.py"},
    **{"compare --json": "test_compare.py", "compare --rounds": "test_compare.py"},
    **{"eval --json": "test_cli.py", "test --json": "test_cli.py", "eval --output": "kept.py"},
    **{"eval --problem": "test_problems.py", "new --problem": "test_problems.py"},
}
"""Options that other tests than `test_every_command` run with a command, and their file."""


def options_of(name: str, arguments: list[str]) -> set[str]:
    """`command --option` for each that stands there, by its longest name."""
    long = {
        short: max(each.opts, key=len) for each in main.commands[name].params for short in each.opts
    }
    given = [each for each in arguments if each.startswith("-")]
    return {f"{name} {long.get(each, each)}" for each in given if each != "--help"}


def test_each_option_that_a_page_gives_a_command_is_run_with_it() -> None:
    run = (*judgements, *(arguments for arguments, _ in commands))
    tried = set().union(*(options_of(name, list(rest)) for name, *rest in run))
    split = [shlex.split(each)[1:] for each in typed]
    wanted = set().union(*(options_of(name, rest) for name, *rest in split if name[0] != "-"))
    assert wanted - tried - run_by.keys() == set()
    for option, file in run_by.items():
        assert option.split()[1] in (root / "tests" / file).read_text(encoding="utf-8"), option


by_hand = {
    "benchmarks.speed": "takes minutes of all cores",
    "scripts.microbench": "needs a GPU",
    "scripts.model_error": "needs clones of other repositories",
    "scripts.version_matrix": "make versions runs it",
}
"""Modules that no test runs, and why."""


def test_a_module_that_a_page_runs_is_there_and_run() -> None:
    tests = "".join(each.read_text("utf-8") for each in (root / "tests").rglob("test_*.py"))
    for module in {each.split()[2] for each in known if each.startswith("python -m ")}:
        assert find_spec(module) is not None, module
        package, _, name = module.rpartition(".")
        named = rf"{module}\b|from {package} import .*\b{name}\b"
        assert re.search(named, tests.replace(f'"{module}": "', "")) or module in by_hand, module


def test_a_target_or_a_part_that_a_page_names_is_there() -> None:
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    on_gpu = (root / "scripts" / "on_gpu.sh").read_text(encoding="utf-8")
    for text in known:
        program, *words = text.split()
        if program == "make":
            assert re.search(rf"^{words[0]}:", makefile, re.MULTILINE), text
        elif program.endswith("on_gpu.sh"):
            assert all(re.search(rf"^    {part}[)|]", on_gpu, re.M) for part in words[1:]), text
