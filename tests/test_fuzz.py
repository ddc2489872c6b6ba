"""Bad input to the judge itself: never a traceback, never a hang, never a wrong verdict.

Where input is refused it is by the error that its reader declares.
"""

import io
import json
import math
import os
import socket
import time
from dataclasses import fields
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml
from bot import case
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from rich.console import Console

from nvfp4.cli.b200 import read_counts
from nvfp4.cli.display.render import show
from nvfp4.cli.judging.bot import ProcessResult, _results
from nvfp4.cli.problem import Problem, ProblemError, load_problem, shape_of
from nvfp4.cli.verdict import (
    Submission,
    Verdict,
    read_benchmark,
    read_confinement,
    read_device,
    read_test,
)
from nvfp4.emulator import LaunchReport
from nvfp4.gpu.timing import CallTime
from nvfp4.judge.clock.timing_checks import read_time
from nvfp4.judge.observing import total_counts
from nvfp4.judge.submission_process import SubmissionFailed
from nvfp4.records.channel import BadMessage, Channel, ChannelClosed, ChannelTimeout
from nvfp4.records.messages import Called, unpack
from nvfp4.records.options import VARIABLE, Options, options_of_environment

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**63, 10**400, -(10**400)])
    | st.floats()
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)
"""Any value of JSON, numbers that fit nowhere included."""

_report = LaunchReport(
    kernel="k", grid=(1, 1, 1), block=(32, 1, 1), shared_bytes=0, ctas_run=1, ctas_total=1
).to_dict()
counts = json.dumps(
    total_counts([{**_report, "sectors_distinct": 5, "warp_instructions_total": 9}])
)
"""The counts of an emulated call, as the judge writes them."""

line = case()

# task.yml

yaml_cases = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("m", "k", "l", "seed", "n"), json_values)
) | st.just({"m": 1, "k": 64, "l": 1, "seed": 1})
contents = st.fixed_dictionaries(
    {},
    optional={
        "tests": st.lists(yaml_cases, max_size=3) | json_values,
        "benchmarks": st.lists(yaml_cases, max_size=3) | json_values,
    },
)


def problem_of(folder: Path, text: str | bytes) -> Problem | None:
    """The problem that a task.yml of this text makes, None where it is refused as it should be."""
    (folder / "eval.py").write_text("")
    (folder / "task.yml").write_bytes(text if isinstance(text, bytes) else text.encode())
    try:
        return load_problem(folder)
    except ProblemError as error:
        refused = str(error)
    assert len(refused.splitlines()) == 1
    return None


@given(contents.map(yaml.safe_dump) | st.binary(max_size=100))
def test_a_task_yml_is_a_problem_or_is_refused(
    tmp_path_factory: pytest.TempPathFactory, content: str | bytes
) -> None:
    found = problem_of(tmp_path_factory.getbasetemp(), content)
    for each in found.tests + found.benchmarks if found else []:
        shape_of(each)
        assert len(each.splitlines()) == 1


@pytest.mark.parametrize(
    "text",
    [
        *("[" * 500 + "]" * 500, "files: 2001-99-99", "files: !!python/object:os.system {}"),
        *("files: !!int ''", "files: !!timestamp x", "&a [*a]"),
        "files: []\ntests: [{m: 1, k: 64, l: 1, seed: '1\\ncheck: pass'}]\nbenchmarks: []",
        "files: []\ntests: [{m: true, k: 64, l: 1, seed: 1}]\nbenchmarks: []",
        "files: []\ntests: [{m: 1, k: 64, l: 1, seed: 1, full-range inputs: 1}]\nbenchmarks: []",
        *(b"\xff\xfe\x00", "\x00", ""),
    ],
)
def test_a_hostile_task_yml_is_refused(text: str | bytes, tmp_path: Path) -> None:
    assert problem_of(tmp_path, text) is None


# Lines of the result pipe

words = (
    "status error spec runs mean median std err best worst batched bytes floor emulation message "
    "kind name read_gbps"
)
names = st.sampled_from(words.split())
keys = st.builds(
    "{}{}{}".format,
    st.sampled_from(["test.0.", "test.1.", "benchmark.0.", "device.", "confined.", "", "check"]),
    names,
    st.sampled_from(["", "", "", " ", "x"]),
)
numbers = st.sampled_from(["nan", "inf", "-inf", "-1", "0", "1e308", "1e999", "5", "1_0", "٣", "x"])
values = st.one_of(
    numbers,
    st.sampled_from(["pass", "fail", "skipped", "PASS", "", counts, counts[:-1], "[]", "[" * 2900]),
    st.text(max_size=20),
    json_values.map(json.dumps),
    st.dictionaries(names, json_values).map(json.dumps),
    st.dictionaries(st.sampled_from(sorted(json.loads(counts))), json_values).map(
        lambda some: json.dumps({**json.loads(counts), **some})
    ),
)
garbage = st.one_of(
    st.binary(max_size=40),
    st.builds(lambda key, value: f"{key}: {value}".encode("utf-8", "replace"), keys, values),
)


def read_back(transcript: bytes) -> Verdict:
    """What the command makes of everything that came through the result pipe."""
    read_fd, write_fd = os.pipe()
    os.write(write_fd, transcript)
    os.close(write_fd)
    ended = ProcessResult(0, "")
    ended.take_all(read_fd, time.monotonic() + 5)
    os.close(read_fd)
    got = ended.values
    verdict = Verdict(Submission("submission.py", ""), read_device(got), read_confinement(got))
    verdict.tests = [
        read_test(got, i, each) for i, each in enumerate([line, line + "; full-range inputs"])
    ]
    verdict.benchmarks = [read_benchmark(got, 0, line)]
    return verdict


@settings(max_examples=200)
@given(st.lists(garbage, max_size=25))
def test_any_lines_become_a_verdict_that_can_be_shown(lines: list[bytes]) -> None:
    verdict = read_back(b"\n".join(lines) + b"\n")
    json.dumps(verdict.as_json(), allow_nan=False)
    show(Console(file=io.StringIO(), width=120), verdict)
    for each in verdict.benchmarks:
        assert each.status in ("pass", "fail")
        if each.status == "pass" and each.timed:
            assert each.mean_us is not None
            assert 0 < each.mean_us < math.inf


passed = [
    *(b"test.0.status: pass", b"test.1.status: pass", b"benchmark.0.bytes: 100"),
    *(b"benchmark.0.%s: 5" % name for name in (b"runs", b"mean", b"median", b"std", b"err")),
    *(b"benchmark.0.best: 5", b"benchmark.0.worst: 5", b"check: pass"),
]


def test_a_whole_transcript_passes() -> None:
    assert read_back(b"\n".join(passed) + b"\n").passed


@settings(max_examples=200)
@given(
    st.sampled_from(["test.0", "benchmark.0"]),
    st.lists(st.tuples(st.integers(0, 20), garbage), max_size=12),
    st.integers(0, 20),
)
def test_no_line_turns_a_failure_into_a_pass(
    failing: str, extra: list[tuple[int, bytes]], at: int
) -> None:
    lines = list(passed)
    lines.insert(at, f"{failing}.status: fail".encode())
    for position, each in extra:
        # A line is a line: one that is broken by another would not be the judge's any more.
        lines.insert(position, each.replace(b"\n", b" "))
    assert not read_back(b"\n".join(lines) + b"\n").passed


@given(st.integers(0, len(passed) - 2), st.lists(st.binary(max_size=40), max_size=6))
def test_a_line_that_is_missing_is_no_pass(missing: int, extra: list[bytes]) -> None:
    assume(passed[missing] not in (b"test.1.status: pass", b"benchmark.0.bytes: 100"))
    left = [each for i, each in enumerate(passed) if i != missing]
    assert not read_back(b"\n".join([*left, *extra])).passed


@given(st.sampled_from(["mean", "worst", "runs"]), numbers)
def test_a_time_that_is_none_is_no_pass(name: str, value: str) -> None:
    key = f"benchmark.0.{name}"
    lines = [each for each in passed if not each.startswith(key.encode())]
    sensible = value in ("5", "1_0", "٣", "1e308") or (name == "worst" and value == "0")
    lines.append(f"{key}: {value}".encode())
    assert read_back(b"\n".join(lines) + b"\n").passed is sensible


def test_lines_without_end_do_not_outlast_the_time_limit() -> None:
    read_fd, write_fd = os.pipe()
    os.set_blocking(write_fd, False)
    start = time.monotonic()
    os.write(write_fd, b"a: 1\n")
    for _ in _results(read_fd, start + 0.2):
        os.write(write_fd, b"a: 1\n")  # there is always another line
        assert time.monotonic() < start + 2
    os.close(read_fd)
    os.close(write_fd)


def test_a_line_without_end_is_not_kept() -> None:
    read_fd, write_fd = os.pipe()
    os.write(write_fd, b"x" * 60_000)
    assert list(_results(read_fd, time.monotonic() + 0.2)) == []
    os.close(read_fd)
    os.close(write_fd)


# What the bot sets

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)


@given(st.dictionaries(st.sampled_from([each.name for each in fields(Options)]), json_values))
def test_options_are_taken_or_refused_with_a_sentence(chosen: dict[str, Any]) -> None:
    with mock.patch.dict(os.environ, {VARIABLE: json.dumps(chosen)}):
        try:
            options = options_of_environment()
        except ValueError as error:
            options, refused = None, str(error)
    if options is None:
        assert len(refused.splitlines()) == 1
        return
    assert 0 < options.timeout_s < math.inf
    assert {name: getattr(options, name) for name in chosen} == chosen


# Random answers of a worker: each is read as what it is, or refused.


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=30),
            st.sampled_from([b"{", b"}", b'"id"', b":", b"1", b"\n", b"NaN", b"[" * 9999, b"{}\n"]),
            json_values.map(lambda value: json.dumps(value).encode() + b"\n"),
        ),
        max_size=8,
    ),
    st.booleans(),
)
def test_whatever_is_received_is_an_object_or_a_declared_error(
    pieces: list[bytes], closed: bool
) -> None:
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    with theirs:
        for piece in pieces:
            theirs.sendall(piece)
        if closed:
            theirs.close()
        start = time.monotonic()
        for _ in range(len(pieces) + 1):
            try:
                message, fd = channel.receive(0.01)
            except BadMessage:
                continue
            except (ChannelClosed, ChannelTimeout):
                break
            assert isinstance(message, dict)
            assert fd is None
        assert time.monotonic() - start < 20
    channel.close()


def test_descriptors_from_a_worker_are_not_kept() -> None:
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    with theirs, open(os.devnull, "rb") as something:
        before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc") else 0
        for _ in range(50):
            socket.send_fds(theirs, [b"{}\n"], [something.fileno()])
            assert channel.receive(1) == ({}, None)
        after = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc") else 0
    assert after == before
    channel.close()


@given(
    st.dictionaries(st.sampled_from(["is", "call_ns", "late", "launches"]), json_values),
    st.floats(),
    st.floats(0, 1e12),
)
def test_times_are_times_or_refused(
    answer: dict[str, Any], settled_ns: float, wall_ns: float
) -> None:
    message = {"is": "Called", "call_ns": 5.0, "settled_ns": settled_ns, "late": False}
    message |= {"dtype": "float16", "launches": [], **answer}
    try:
        time = read_time(unpack(message, Called), wall_ns)
    except (SubmissionFailed, BadMessage):
        return
    assert isinstance(time, CallTime)
    assert 0 < time.call_ns <= time.settled_ns < math.inf


summed = sorted(json.loads(counts).keys() - {"kernels", "warp_instructions"})


@settings(max_examples=100)
@given(st.lists(st.dictionaries(st.sampled_from(summed), st.integers(0, 2**50)), max_size=4))
def test_counts_add_up_to_an_object_that_can_be_read_back(launches: Any) -> None:
    total = total_counts(launches)
    counted = read_counts(json.loads(json.dumps(total, allow_nan=False)), 100)
    if total.get("warp_instructions_total"):
        assert counted is not None
        assert counted["warp_instructions_total"] == total["warp_instructions_total"]
    else:
        assert counted is None
