"""The README names everything a participant can type or read."""

from __future__ import annotations

import re
from dataclasses import fields

import click
import pytest
from bot import root

from nvfp4.cli.main import main
from nvfp4.cli.verdict import (
    BenchmarkResult,
    Device,
    Score,
    Submission,
    TestResult,
    Verdict,
    Warning,
)
from protocol import Exit

readme = (root / "README.md").read_text(encoding="utf-8")

options = sorted(
    {
        (name, option)
        for name, command in main.commands.items()
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for option in parameter.opts
    }
)

json_keys = sorted(
    {
        field.name
        for kind in (Submission, Device, TestResult, BenchmarkResult, Score, Warning)
        for field in fields(kind)
    }
    | set(Verdict(Submission("", "")).as_json())
)


@pytest.mark.parametrize("command", main.commands)
def test_every_command_is_named(command: str) -> None:
    assert f"nvfp4 {command}" in readme


@pytest.mark.parametrize(("command", "option"), options)
def test_every_option_is_named(command: str, option: str) -> None:
    assert re.search(rf"`[^`]*{option}\b[^`]*`", readme), f"{option} of nvfp4 {command}"


@pytest.mark.parametrize("code", [0, 1, 2])
def test_every_exit_code_of_the_command_is_in_the_table(code: int) -> None:
    assert re.search(rf"^\| {code} \|", readme, re.MULTILINE)


@pytest.mark.parametrize("code", Exit)
def test_every_exit_code_of_the_judge_is_named(code: Exit) -> None:
    assert re.search(rf"\b{code.value} [a-zA-Z]", readme)


@pytest.mark.parametrize("key", json_keys)
def test_every_key_of_the_json_object_is_named(key: str) -> None:
    assert f"`{key}`" in readme


def test_every_file_that_is_linked_is_there() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", readme)
    assert links
    assert [link for link in links if not (root / link).exists()] == []


def test_both_ways_to_begin_are_named() -> None:
    assert "make eval" in readme
    assert "make test" in readme
    assert "python -m cli" in readme
