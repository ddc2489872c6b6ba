"""docs/verdict.schema.json describes what the command prints, all of it and nothing else."""

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest
from bot import root
from jsonschema import Draft202012Validator
from kept import invoke
from recorded_verdicts import every_verdict, names, recorded_verdict

from nvfp4.cli import verdict
from nvfp4.cli.b200 import read_counts
from nvfp4.cli.errors import error_object
from nvfp4.emulator import LaunchReport
from nvfp4.judge.observing import total_counts
from nvfp4.records.failures import Failure, read_failure

schema: dict[str, Any] = json.loads((root / "docs" / "verdict.schema.json").read_text())
verdicts = every_verdict()


def mistakes(value: object) -> list[str]:
    """Where an object is not as the schema says."""

    def leaves(errors: Any) -> Iterator[str]:
        for error in errors:
            yield f"{error.json_path}: {error.message}"
            yield from leaves(error.context)

    return list(leaves(Draft202012Validator(schema).iter_errors(value)))


def properties(name: str) -> set[str]:
    """The keys of a part of the schema."""
    part = schema["$defs"][name]
    inherited = properties(part["$ref"].rpartition("/")[2]) if "$ref" in part else set()
    return inherited | set(part["properties"])


def test_the_schema_is_one() -> None:
    assert schema["$schema"] == Draft202012Validator.META_SCHEMA["$id"]
    Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("name", verdicts)
def test_a_verdict_is_as_the_schema_says(name: str) -> None:
    assert mistakes(json.loads(json.dumps(verdicts[name].as_json(), allow_nan=False))) == []


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        *((verdict.Submission, "submission"), (verdict.Device, "device")),
        *((verdict.TestResult, "test"), (verdict.BenchmarkResult, "benchmark")),
        *((verdict.Score, "score"), (verdict.Warning, "warning")),
    ],
)
def test_the_schema_names_every_key(kind: Any, part: str) -> None:
    assert properties(part) - {"case"} == {field.name for field in fields(kind)}


def test_the_schema_names_every_key_of_the_whole_and_of_a_failure() -> None:
    assert properties("verdict") == set(verdict.Verdict(verdict.Submission("", "")).as_json())
    assert properties("failure") == {each.name for each in fields(Failure)}


def test_the_page_names_every_key() -> None:
    page = (root / "docs" / "json.md").read_text(encoding="utf-8")
    size = {"grid": (1, 1, 1), "block": (32, 1, 1), "shared_bytes": 0}
    counted = {"ctas_run": 1, "ctas_total": 1, "warp_instructions": {"move": 1}}
    report = LaunchReport(kernel="k", **size, **counted)  # type: ignore[arg-type]
    counts = read_counts(total_counts([report.to_dict()]), 1)
    parts = ("verdict", "submission", "device", "test", "benchmark", "score", "warning")
    keys = {*(counts or ()), *(key for part in parts for key in properties(part))}
    assert [key for key in sorted(keys) if f"`{key}`" not in page] == []
    section = page.partition("## A failure\n")[2].partition("\n## ")[0]
    explained = re.findall(r"`(\w+)`", "".join(re.findall(r"^\|[^|]*", section, re.MULTILINE)))
    assert {each.name for each in fields(Failure)} <= set(explained)


@pytest.mark.parametrize("name", [name for name in names if name not in ("passed", "races")])
def test_a_failure_without_its_object_is_no_verdict(name: str) -> None:
    content = recorded_verdict(name).as_json()
    for case in [*content["tests"], *content["benchmarks"]]:
        case["status"] = "pass" if case["status"] == "fail" else "fail"
    assert mistakes(json.loads(json.dumps(content)))


def test_causes_are_as_the_schema_says() -> None:
    content = recorded_verdict("mismatch").as_json()
    cause = {"code": "scales.shift", "operand": "sfa", "blocks": 4, "or": [{"code": "b"}]}
    failure = read_failure({"code": "output.mismatch", "message": "no", "causes": [cause]})
    assert failure
    assert failure.causes == [cause]
    told = content["tests"][0]["failure"] = asdict(failure)
    assert mistakes(content) == []
    told["causes"][0]["or"] = ["b"]
    assert mistakes(content)


def test_another_version_is_no_verdict() -> None:
    assert mistakes({**verdicts["timed"].as_json(), "schema": 1})


def test_an_error_is_as_the_schema_says() -> None:
    assert mistakes(error_object("setup", "no luck", "try again")) == []
    assert mistakes({"schema": 3, "error": {"message": "no code"}})


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["eval", "missing.py", "--json"], "setup.unreadable"),
        (["test", "missing.py", "--json"], "setup.unreadable"),
        (["bench", "missing.py", "--json"], "setup.unreadable"),
        (["test", "mine.py", "--json", "-o", "nowhere/verdict.json"], "setup.unwritable"),
        (["test", "mine.py", "--json", "--device", "tpu"], "usage"),
        (["eval", "mine.py", "--json", "--flush", "fast"], "usage"),
        (["eval", "mine.py", "--json", "--surely-none"], "usage"),
        (["judge", "--json"], "usage"),
    ],
)
def test_what_keeps_the_judge_from_judging_is_json_too(
    arguments: list[str], code: str, cwd: Path
) -> None:
    (cwd / "mine.py").write_text("def custom_kernel(data):\n    return data[6]\n")
    done = invoke(*arguments)
    content = json.loads(done.stdout)
    assert done.exit_code == 2
    assert done.stderr == ""
    assert mistakes(content) == []
    assert content["error"]["code"] == code
