"""An option stands in its click declaration and in `Options`, and reaches every process."""

import ast
import json
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import click
import pytest
from bot import root
from conftest import run_python

from nvfp4.cli import invocation, parameters
from nvfp4.cli.batch.eval_process import BatchOptions
from nvfp4.cli.invocation import Invocation
from nvfp4.cli.judging import bot
from nvfp4.cli.problem import load_problem
from nvfp4.records import options
from nvfp4.records.options import Options

told_by_the_command = {"repeat", "name", "calls", "limit_gib"}
"""Of `Options`, what no user chooses."""

names = [each.name for each in fields(Options)]


def given_nothing() -> dict[str, Any]:
    """What the function of a command that judges gets where the user chose nothing."""

    @click.command()
    @parameters.judging_options
    def command(**given: object) -> None:
        """Stands for all of them."""

    return command.make_context("command", []).params


def test_every_option_of_a_judgement_is_declared_with_the_same_default() -> None:
    given = given_nothing()
    assert set(names) - set(given) == told_by_the_command
    for name in set(names) - told_by_the_command:
        assert given[name] == getattr(Options(), name), name


def test_no_other_module_lists_the_options() -> None:
    """Who names several of them writes them down once more, where a new one would be missing."""
    for path in sorted((root / "nvfp4").rglob("*.py")):
        if path.name in ("options.py", "parameters.py") or "selftest" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            listed: list[ast.expr | None] = []
            if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
                listed = list(node.elts)
            elif isinstance(node, ast.Dict):
                listed = list(node.keys)
            texts = {each.value for each in listed if isinstance(each, ast.Constant)}
            assert len(texts & set(names)) <= 3, f"{path}:{getattr(node, 'lineno', 0)}"


def test_a_new_option_reaches_the_command_the_judge_the_worker_and_a_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An option is added in its two places and nowhere else."""

    @dataclass(frozen=True)
    class Wider(Options):
        color: str = "none"

    for module in (invocation, bot, options):
        monkeypatch.setattr(module, "Options", Wider)
    chosen = Invocation.of({**given_nothing(), "color": "blue", "seed": 5})
    assert chosen.seed == 5
    assert asdict(chosen.options)["color"] == "blue"
    monkeypatch.setenv("PYTHONTRACEMALLOC", "5")  # the judge would be too slow for its time limit
    environment = chosen.bot(load_problem(), b"")._environment(tmp_path / "flat")
    assert "PYTHONTRACEMALLOC" not in environment
    assert json.loads(environment[options.VARIABLE])["color"] == "blue"
    monkeypatch.setenv(options.VARIABLE, environment[options.VARIABLE])
    assert vars(options.options_of_environment())["color"] == "blue"
    batch = BatchOptions.of({"jsonl": tmp_path / "out", "color": "blue", "device": "cpu"})
    assert batch.arguments == ["--color", "blue"]
    assert batch.identity("cpu")["color"] == "blue"


def test_a_process_reads_what_another_was_told() -> None:
    told = replace(Options(), device="cpu", timeout_s=7.5, strict=True, name="x.py")
    code = "from nvfp4.records.options import *; print(options_of_environment())"
    done = run_python("-c", code, env=told.as_variable(), cwd=root)
    assert done.stdout.strip() == str(told), done.stderr
