"""What is told of a failure, what is believed of it, and what the command makes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_verdicts import recorded_verdict

from nvfp4.cli.codes import code_of
from nvfp4.cli.failure_objects import keys, read_failure
from nvfp4.cli.verdict import TestResult
from nvfp4.emulator.errors import MemoryFault, OutOfBounds, SourceLocation
from nvfp4.emulator.source import SourceLine
from nvfp4.records.failures import believed, longest_bytes, record_of, reported
from nvfp4.records.launch_errors import LaunchRefused

submission = Path("/scratch/submission.py")

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda each: st.lists(each, max_size=4) | st.dictionaries(st.text(), each, max_size=4),
    max_leaves=12,
)
records = st.fixed_dictionaries({}, optional=dict.fromkeys((*keys, "cause"), values))


def raised(source: str) -> BaseException:
    """What running a submission's text raises."""
    try:
        exec(compile(source, str(submission), "exec"), {})
    except Exception as error:
        return error
    raise AssertionError(source)


def test_a_fault_has_its_code_its_place_and_its_arguments() -> None:
    line = SourceLine("/scratch/submission.py", 40, 9)
    where = SourceLocation("gemv", 475, "st.global", (1, 0, 0), (32, 0, 0), line)
    arguments: dict[str, int | str] = {"tensor": "c", "offset": 256}
    fault = OutOfBounds("write outside", where=where, hint="a guard", arguments=arguments)
    assert believed(record_of(fault, submission, imported=True)) == {
        "code": "kernel.out_of_bounds",
        "message": "write outside",
        "kernel": "gemv",
        "file": "submission.py",
        "hint": "a guard",
        "line": 40,
        "column": 9,
        "ptx_line": 475,
        "cta": [1, 0, 0],
        "thread": [32, 0, 0],
        "arguments": arguments,
    }


def test_what_follows_from_a_fault_keeps_its_arguments() -> None:
    fault = MemoryFault("a race", arguments={"bytes": 4}).because("the output depends on it")
    assert fault.arguments == {"bytes": 4}


def test_a_fault_behind_another_exception_is_the_one_that_is_told() -> None:
    error = RuntimeError("the launch failed")
    error.__cause__ = LaunchRefused("too many threads")
    assert record_of(error, submission, imported=True)["code"] == "launch.refused"


@pytest.mark.parametrize(
    ("source", "imported", "code", "line", "kind"),
    [
        ("x = 1\n\nraise ValueError('no')\n", True, "call.exception", 3, "ValueError"),
        ("raise ValueError('no')\n", False, "import.exception", 1, "ValueError"),
        ("import surely_no_module\n", False, "import.module", 1, "ModuleNotFoundError"),
        ("import surely_no_module\n", True, "call.exception", 1, "ModuleNotFoundError"),
        ("x = 1\ny = = 2\n", False, "import.syntax", 2, "SyntaxError"),
        ("class E(Exception):\n  code = 5\nraise E\n", True, "call.exception", 3, "E"),
    ],
)
def test_an_exception_has_the_line_of_the_submission(
    source: str, imported: bool, code: str, line: int, kind: str
) -> None:
    record = believed(record_of(raised(source), submission, imported))
    assert (record["code"], record["file"], record["line"]) == (code, "submission.py", line)
    assert record["arguments"] == {"type": kind}
    assert record["message"].startswith(kind)


@given(records)
def test_whatever_a_process_tells_the_record_is_plain_and_short(record: dict[str, Any]) -> None:
    plain = believed(record)
    text = json.dumps(plain)
    assert len(text) <= longest_bytes
    assert json.loads(text) == plain
    assert set(plain) <= set(keys)
    assert believed(plain) == plain


def test_a_long_record_keeps_its_code_and_its_place() -> None:
    arguments = {f"argument {i}": "x" * 500 for i in range(100)}
    told = {"code": "call.exception", "message": "\0" * 9000, "line": 7, "hint": "h" * 9000}
    plain = believed({**told, "arguments": arguments, "file": "/a/b/" + "\x1b" * 900})
    assert (plain["code"], plain["line"]) == ("call.exception", 7)
    assert len(json.dumps(plain)) <= longest_bytes


def test_nothing_is_reported_where_nothing_was_told() -> None:
    assert reported({}) == reported({"message": "no code"}) == {}
    assert json.loads(reported({"code": "a", "line": -1})["failure"]) == {
        "code": "a",
        "arguments": {},
    }


@given(st.text(), st.text() | records.map(json.dumps), st.text() | values.map(json.dumps))
def test_whatever_comes_through_the_pipe_a_failure_has_every_key(
    message: str, record: str, cause: str
) -> None:
    failure = read_failure(message, record, cause, [])
    assert set(failure) == set(keys)
    assert isinstance(failure["code"], str)
    assert isinstance(failure["message"], str)
    assert len(failure["message"]) <= 300
    assert all(set(each) >= {"code"} for each in failure["causes"])
    json.dumps(failure, allow_nan=False)


@pytest.mark.parametrize("code", ["A.b", "a b", "a\n", "", "a..b", "\x1b[0m", "x" * 100, 5, None])
def test_what_is_no_code_is_not_taken(code: object) -> None:
    assert read_failure("what", json.dumps({"code": code}))["code"] == "unknown"


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        ('{"code": "scales.shift", "n": 4}', [{"code": "scales.shift", "n": 4, "or": []}]),
        ('[{"code": "a"}, {"code": "b"}, 5]', [{"code": "a", "or": []}, {"code": "b", "or": []}]),
        ('{"code": "a", "x": {"b": 1}, "y": [1, 2]}', [{"code": "a", "y": [1, 2], "or": []}]),
        (
            '{"code": "a", "or": [{"code": "b", "n": 1}, 5], "and": [{"code": "c", "or": 7}]}',
            [{"code": "a", "or": [{"code": "b", "n": 1}]}, {"code": "c", "or": []}],
        ),
        ('{"code": "a", "or": {}, "and": "b"}', [{"code": "a", "or": []}]),
        ("{", []),
        ("[" * 100_000, []),
        (None, []),
    ],
)
def test_causes_are_objects_with_a_code(cause: str | None, expected: list[Any]) -> None:
    assert read_failure("1 of 2 elements are wrong", None, cause)["causes"] == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fault", {"code": "kernel.out_of_bounds", "line": 40, "column": 9, "kernel": "kernel"}),
        ("raised", {"code": "call.exception", "file": "submission.py", "line": 5}),
        ("syntax", {"code": "import.syntax", "file": "submission.py", "line": 1}),
        ("mismatch", {"code": "output.mismatch", "file": None, "line": None}),
        ("returns_none", {"code": "contract.returned", "arguments": {"returned": "None"}}),
        ("exits", {"code": "process.sys_exit", "arguments": {"argument": 3}}),
    ],
)
def test_a_recorded_failure_has_its_code_and_its_place(name: str, expected: dict) -> None:
    for test in recorded_verdict(name).tests:
        assert test.failure
        assert {key: test.failure[key] for key in expected} == expected


def test_an_access_out_of_bounds_says_where_in_numbers() -> None:
    failure = recorded_verdict("fault").tests[0].failure
    assert failure
    assert failure["arguments"] == {
        "access": "write",
        "bytes": 2,
        "tensor": "c",
        "tensor_bytes": 512,
        "offset": 512,
    }
    assert (failure["cta"], failure["thread"]) == ([1, 0, 1], [32, 0, 0])


def test_a_traceback_without_a_record_still_has_its_line() -> None:
    message = 'Traceback:\n  File "submission.py", line 5, in f\n    x\nValueError: no'
    failure = read_failure(message)
    assert (failure["code"], failure["line"]) == ("call.exception", 5)
    assert failure["message"] == "ValueError: no"


def test_a_case_that_fails_by_its_message_alone_has_a_failure() -> None:
    failed = TestResult("m: 1; k: 64; l: 1; seed: 1", "contest", "fail", "not judged: interrupted")
    assert failed.failure
    assert failed.failure["code"] == "not_judged.interrupted"
    assert TestResult(failed.spec, "contest", "pass").failure is None


def test_numbers_of_a_message_are_numbers() -> None:
    code, arguments = code_of("3 of 256 elements are wrong\n  (m=0, l=0): got 1")
    assert (code, arguments) == ("output.mismatch", {"wrong": 3, "elements": 256})
    code, arguments = code_of("the mean of 1.500 us is below the physical floor of 8.250 us: no")
    assert (code, arguments) == ("timing.below_floor", {"mean_us": 1.5, "floor_us": 8.25})
