"""What is told of a failure, what is believed of it, and what the command makes of it."""

import json
import os
import re
import tempfile
import time
from dataclasses import asdict, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from bot import case, root
from hypothesis import given
from hypothesis import strategies as st
from recorded_verdicts import recorded_verdict

from nvfp4.capture.emulated_gpu import fault_error
from nvfp4.cli.verdict import TestResult, read_test
from nvfp4.emulator.errors import MemoryFault, OutOfBounds, SourceLocation
from nvfp4.executor.faults import fault_of
from nvfp4.judge.clock.timing_checks import Stats, refuse_impossible
from nvfp4.judge.executor import Executor
from nvfp4.judge.submission_process import SubmissionFailed, SubmissionProcess
from nvfp4.records.failures import LONGEST_BYTES, LONGEST_CAUSES, Failure, read_failure
from nvfp4.records.files import open_plain_file, read_plain_file
from nvfp4.records.launch_errors import LaunchRefused
from nvfp4.records.messages import Call, Failed, Load
from nvfp4.records.options import Options
from nvfp4.records.source import SourceLine
from nvfp4.records.unanswered import RequestState, StateWriter, last_state, stack_of_hang
from nvfp4.worker.raised import explained, failure_of, version_hint
from nvfp4.worker.runner import Runner

submission = Path("/scratch/submission.py")

KEYS = tuple(each.name for each in fields(Failure))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda each: st.lists(each, max_size=4) | st.dictionaries(st.text(), each, max_size=4),
    max_leaves=12,
)
records = st.fixed_dictionaries({}, optional=dict.fromkeys(KEYS, values))


def raised(source: str) -> BaseException:
    """What running a submission's text raises."""
    try:
        exec(compile(source, str(submission), "exec"), {})
    except Exception as error:
        return error
    raise AssertionError(source)


@pytest.mark.parametrize("name", ["mine.py", "my-submission.py", "my submission.py", "a\\1.py"])
def test_a_message_calls_the_file_by_its_own_name_once(name: str) -> None:
    error = raised("raise ValueError('/scratch/submission.py is odd')")
    assert explained(error, submission, name).splitlines()[1:] == [
        f'  File "{name}", line 1, in <module>',
        f"ValueError: {name} is odd",
    ]


def test_a_traceback_shows_the_submissions_own_frames_only() -> None:
    error = raised("import json\ndef read(text):\n    return json.loads(text)\nread('{')\n")
    lines = explained(error, submission, submission.name).splitlines()
    assert lines[0] == "Traceback, the submission's frames:"
    assert [line.strip() for line in lines if line.startswith("  File")] == [
        'File "submission.py", line 4, in <module>',
        'File "submission.py", line 3, in read',
    ]
    assert lines[-1].startswith("json.decoder.JSONDecodeError: ")


NO_FUNCTION = r"the import failed: submission\.py defines no function custom_kernel\(data\)"


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (b"def custom_kernel(data)\n    return 1\n", r"SyntaxError: expected ':'"),
        (
            b"import no_such_package\n",
            r'File "submission\.py", line 1.+\n.+\nModuleNotFoundError: No module named',
        ),
        (b"def kernel(data):\n    return data[6]\n", NO_FUNCTION),
        (b"custom_kernel = 5\n", NO_FUNCTION),
        (b"", NO_FUNCTION),
        (b"x = '\xff\xfe'\n", r"SyntaxError: .*utf-8"),
        (b"x = 1\0\n", r"SyntaxError: .*null bytes"),
        (b"import sys\nsys.exit(3)\n", r"called sys\.exit\(3\)"),
    ],
)
def test_a_file_that_cannot_be_loaded_says_why(source: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / "submission.py").write_bytes(source)
    failed = Runner(tmp_path / "submission.py", Options()).answer(Load(), None)
    assert isinstance(failed, Failed)
    assert re.search(why, failed.message), failed.message
    assert "importlib" not in failed.message


def test_a_failure_for_programs_has_no_colours_and_no_scratch_folder() -> None:
    error = raised("raise ValueError('\\x1b[91m--> /scratch/submission.py:3\\x1b[0m')")
    assert failure_of(error, submission, imported=True).message == "ValueError: --> submission.py:3"


def test_a_fault_has_its_code_its_place_and_its_arguments() -> None:
    line = SourceLine("/scratch/submission.py", 40, 9)
    where = SourceLocation("gemv", 475, "st.global", (1, 0, 0), (32, 0, 0), line)
    arguments: dict[str, int | str] = {"tensor": "c", "offset": 256}
    fault = OutOfBounds("write outside", where=where, hint="a guard", arguments=arguments)
    error = fault_error(fault_of(fault, submission, submission.name, None))
    assert failure_of(error, submission, imported=True).as_plain() == {
        **{"code": "kernel.out_of_bounds", "message": "write outside", "hint": "a guard"},
        **{"kernel": "gemv", "file": "submission.py", "line": 40, "column": 9, "ptx_line": 475},
        **{"cta": [1, 0, 0], "thread": [32, 0, 0], "arguments": arguments, "told_by": "judge"},
    }


def test_what_follows_from_a_fault_keeps_its_arguments() -> None:
    fault = MemoryFault("a race", arguments={"bytes": 4}).leading_to("the output depends on it")
    assert fault.arguments == {"bytes": 4}


def test_a_fault_behind_another_exception_is_the_one_that_is_told() -> None:
    error = RuntimeError("the launch failed")
    error.__cause__ = LaunchRefused("too many threads")
    assert failure_of(error, submission, imported=True).code == "launch.refused"


@pytest.mark.parametrize(
    ("source", "imported", "code", "line", "kind"),
    [
        ("x = 1\n\nraise ValueError('no')\n", True, "call.exception", 3, "ValueError"),
        ("raise ValueError('no')\n", False, "import.exception", 1, "ValueError"),
        ("import surely_no_module\n", False, "import.module", 1, "ModuleNotFoundError"),
        ("import surely_no_module\n", True, "call.exception", 1, "ModuleNotFoundError"),
        ("x = 1\ny = = 2\n", False, "import.syntax", 2, "SyntaxError"),
        ("class E(Exception):\n  code = 5\nraise E\n", True, "call.exception", 3, "E"),
        ("raise MemoryError\n", True, "call.exception", 1, "MemoryError"),
        ("import errno\nraise OSError(errno.ENOMEM, 'no')\n", True, "call.exception", 2, "OSError"),
        ("bytearray(1 << 62)\n", True, "machine.limit", 1, "MemoryError"),
        ("try:\n  bytearray(1 << 62)\nfinally:\n  pass\n", True, "machine.limit", 2, "MemoryError"),
    ],
)
def test_an_exception_has_the_line_of_the_submission(
    source: str, imported: bool, code: str, line: int, kind: str
) -> None:
    failure = failure_of(raised(source), submission, imported)
    assert (failure.code, failure.file, failure.line) == (code, "submission.py", line)
    assert failure.arguments == {"type": kind}
    assert failure.message.startswith(kind)


@given(records | values)
def test_whatever_a_process_tells_a_failure_is_plain_and_short(record: Any) -> None:
    failure = read_failure(record)
    if failure is None:
        return
    text = failure.as_json()
    assert len(text) <= LONGEST_BYTES + LONGEST_CAUSES + 20
    assert len(failure.message) <= 300
    assert set(json.loads(text)) <= set(KEYS)
    assert read_failure(failure.as_plain()) == failure
    json.dumps(asdict(failure), allow_nan=False)


def test_a_long_failure_keeps_its_code_and_its_place() -> None:
    told = {"code": "call.exception", "message": "\0" * 9000, "line": 7, "hint": "h" * 9000}
    arguments = {f"argument {i}": "x" * 500 for i in range(100)}
    long = read_failure({**told, "arguments": arguments, "file": "/a/b/" + "\x1b" * 900})
    assert long
    plain = json.loads(long.as_json())
    assert (plain["code"], plain["line"]) == ("call.exception", 7)
    assert len(json.dumps(plain)) <= LONGEST_BYTES


@given(st.text(), st.text() | values.map(json.dumps) | records.map(json.dumps))
def test_whatever_comes_through_the_pipe_a_case_has_a_failure(error: str, record: str) -> None:
    values = {"test.0.status": "fail", "test.0.failure": record, "test.0.error": error}
    failure = read_test(values, 0, case()).failure
    assert failure
    assert len(failure.message) <= 300
    json.dumps(asdict(failure), allow_nan=False)


@pytest.mark.parametrize("code", ["A.b", "a b", "a\n", "", "a..b", "\x1b[0m", "x" * 100, 5, None])
def test_without_a_code_there_is_no_failure(code: object) -> None:
    assert read_failure({"code": code}) is read_failure({"message": "no code"}) is None
    assert read_failure({"code": "a", "line": -1}) == Failure("a")


@pytest.mark.parametrize(
    ("causes", "expected"),
    [
        ([{"code": "scales.shift", "n": 4}], [{"code": "scales.shift", "n": 4, "or": []}]),
        ([{"code": "a"}, {"code": "b"}, 5], [{"code": "a", "or": []}, {"code": "b", "or": []}]),
        ([{"code": "a", "x": {"b": 1}, "y": [1, 2]}], [{"code": "a", "y": [1, 2], "or": []}]),
        (
            [{"code": "a", "or": [{"code": "b", "n": 1}, 5]}, {"code": "c", "or": 7}],
            [{"code": "a", "or": [{"code": "b", "n": 1}]}, {"code": "c", "or": []}],
        ),
        ([{"code": "a", "or": {}}], [{"code": "a", "or": []}]),
        ({"code": "a"}, []),
        (None, []),
    ],
)
def test_causes_are_objects_with_a_code(causes: Any, expected: list[Any]) -> None:
    failure = read_failure({"code": "output.mismatch", "causes": causes})
    assert failure
    assert failure.causes == expected


def test_or_may_be_nested_as_deep_as_json_allows() -> None:
    cause: dict[str, Any] = {"code": "a"}
    for _ in range(5000):
        cause = {"code": "a", "or": [cause]}
    failure = read_failure({"code": "output.mismatch", "causes": [cause]})
    assert failure
    assert failure.causes == [{"code": "a", "or": [{"code": "a"}]}]


outside = {"access": "write", "bytes": 2, "tensor": "c", "tensor_bytes": 512, "offset": 512}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fault", {"code": "kernel.out_of_bounds", "line": 40, "column": 9, "kernel": "kernel"}),
        ("fault", {"arguments": outside, "cta": [1, 0, 1], "thread": [32, 0, 0]}),
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
        assert {key: getattr(test.failure, key) for key in expected} == expected


def test_a_case_without_a_record_has_a_failure_unless_it_passed() -> None:
    assert TestResult(case(), "fail", "no luck\nhere").failure == Failure("unknown", "no luck")
    assert TestResult(case(), "pass").failure is None
    unsaid = read_test({}, 0, case()).failure
    assert unsaid
    assert unsaid.code == "not_judged.judge_ended"


def test_the_judges_failures_have_their_arguments() -> None:
    with pytest.raises(SubmissionFailed) as told:
        refuse_impossible(Stats(3, *[1500.0] * 6), 8250.0)
    failure = told.value.failure
    assert failure.code == "timing.below_floor"
    assert failure.arguments == {"mean_us": 1.5, "floor_us": 8.25}
    assert failure.message == str(told.value)


# What is known of a request that a submission's process did not live to answer.


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a submission's process that a judge waits for."""
    monkeypatch.setenv("NVFP4_DEADLINE", "1")
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    folder = tmp_path / "nvfp4-x"
    folder.mkdir()
    return folder


def process_of(scratch: Path) -> SubmissionProcess:
    """The judge's side of a process with this folder, which is not there."""
    process = SubmissionProcess(Path(__file__))
    process.scratch = scratch
    process._asked = Call()
    return process


def test_compiling_and_emulating_are_not_the_submission_s_own_time(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, clock = StateWriter(scratch), [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    writer.begin()
    for word, seconds in (("importing", 5), ("compiling", 20), ("importing", 3), ("emulating", 30)):
        writer.busy(word)
        clock[0] += seconds
    assert last_state(scratch).not_its_own_until_now_s == pytest.approx(50)
    failed = process_of(scratch)._timed_out(60)
    assert str(failed) == (
        "custom_kernel did not finish within 60 s, of which compiling and the GPU's work took 50 s"
    )
    assert failed.failure.code == "timeout.call"
    assert failed.failure.arguments == {"seconds": 60, "not_its_own_s": 50}
    writer.begin()
    assert last_state(scratch).not_its_own_s == 0
    assert str(process_of(scratch)._timed_out(60)) == "custom_kernel did not finish within 60 s"


def test_a_call_on_a_gpu_hangs_after_20_seconds_of_its_own(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, process, clock = StateWriter(scratch), process_of(scratch), [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    writer.begin()
    assert not process._hangs(19) and process._hangs(21)
    writer.busy("compiling")
    clock[0] += 20
    writer.busy("running")
    assert not process._hangs(39) and process._hangs(41)
    process._asked = Load()
    assert not process._hangs(41), "an import has its own limit"
    process._asked, process.gpu = Call(), Executor()
    assert not process._hangs(41), "an emulated call, too"


def test_a_process_that_ends_where_it_was_refused_something_says_what(scratch: Path) -> None:
    ended = SubmissionFailed("process.exited", "the submission's process ended with exit code 1")
    process, writer = process_of(scratch), StateWriter(scratch)
    writer.begin()
    writer.refused("no time can be measured")
    failed = process._after_refusal(ended)
    assert failed.failure.code == "launch.unsupported_call"
    assert str(failed) == f"no time can be measured\nthen {ended}"
    writer.begin()
    assert process._after_refusal(ended) is ended


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{", b"\xff", b'{"word": 1}', b'{"word": "x", "refused": [], "since": 1}'],
)
def test_what_the_submission_writes_there_does_no_harm(scratch: Path, content: bytes) -> None:
    (scratch / "request").write_bytes(content)
    assert last_state(scratch) == RequestState()


def test_nothing_is_written_where_no_judge_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NVFP4_DEADLINE", raising=False)
    StateWriter(tmp_path).begin()
    assert list(tmp_path.iterdir()) == []


def test_on_a_gpu_compilers_are_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch.utils.cpp_extension as theirs

    from nvfp4.capture import activity
    from nvfp4.retarget.extensions import watch_compilers

    told: list[str] = []
    monkeypatch.setattr(theirs, "_jit_compile", lambda: told.append("builds"))
    monkeypatch.setattr(activity, "_tell", None)
    watch_compilers(told.append)
    theirs._jit_compile()
    assert told == ["compiling", "builds", "running"]


@pytest.mark.parametrize(
    ("inner", "said"),
    [
        (
            ["lib/python3.11/threading.py", "site-packages/torch/ops.py"],
            ["  inside threading.py:1, in f"],
        ),
        (["lib/python3.11/threading.py", str(root / "nvfp4/capture/cuda/build.py")], []),
        (
            ["lib/python3.11/threading.py", str(root / "nvfp4/a.py"), "site-packages/torch/ops.py"],
            ["  inside torch/ops.py:1, in f"],
        ),
    ],
)
def test_where_a_call_hangs_inside_our_own_code_is_not_told(
    scratch: Path, inner: list[str], said: list[str]
) -> None:
    paths = [*inner, str(scratch / "submission.py")]
    written = "".join(f'  File "/x/{path}", line 1 in f\n' for path in paths).replace("/x//", "/")
    (scratch / "stack").write_text(written)
    assert stack_of_hang(scratch, "submission.py", "add()", "mine.py").splitlines() == [
        "at the time limit it was here:",
        '  File "mine.py", line 1, in f',
        "    add()",
        *said,
    ]


# What the judge reads in a folder that a submission can write: plain files, nothing else.


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A submission's folder, beside which lies a file of the user's."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "file").write_text("hush")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return scratch


def test_a_plain_file_is_read_up_to_a_limit(folder: Path) -> None:
    (folder / "inner").mkdir()
    (folder / "inner" / "file").write_text("kept")
    assert read_plain_file(folder, "inner/file", 100) == b"kept"
    assert read_plain_file(folder, "inner/file", 2) == b"ke"


def test_no_link_is_followed_in_any_part_of_a_path_and_none_is_left_open(folder: Path) -> None:
    (folder / "file").symlink_to(folder.parent / "secret" / "file")
    (folder / "inner").symlink_to(folder.parent / "secret")
    (folder / "environment").symlink_to("/proc/self/environ")
    os.mkfifo(folder / "pipe")
    before, names = len(os.listdir("/proc/self/fd")), ["file", "inner/file", "environment"]
    for name in (*names, "../secret/file", "/etc/hostname", "", "pipe", "none/file"):
        assert read_plain_file(folder, name, 100) is None, name
    assert len(os.listdir("/proc/self/fd")) == before


def test_pipes_devices_and_folders_are_no_plain_files_and_nobody_waits(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "inner").mkdir()
    for name in ("pipe", "inner", "pipe/file"):
        with pytest.raises(OSError):  # noqa: PT011
            open_plain_file(folder, name)
    with pytest.raises(OSError, match="no regular file"):
        open_plain_file(Path("/dev"), "zero")


def test_links_and_pipes_say_nothing_of_a_process_that_ended(folder: Path) -> None:
    os.mkfifo(folder / "request")
    (folder / "stack").symlink_to(folder.parent / "secret" / "file")
    assert last_state(folder) == RequestState()
    assert stack_of_hang(folder, "submission.py", "", "submission.py") == ""


@pytest.mark.parametrize(
    ("source", "library"),
    [
        ("import cutlass.cute; cutlass.cute.no_such_name", "nvidia-cutlass-dsl"),
        ("from cutlass import no_such_name", "nvidia-cutlass-dsl"),
        ("import torch.no_such_module", "torch"),
        ("import json; json.no_such_name", None),
        ("[].no_such_name", None),
    ],
)
def test_a_name_that_a_library_lacks_is_told_with_its_version(
    source: str, library: str | None
) -> None:
    with pytest.raises((AttributeError, ImportError)) as raised:
        exec(source)
    wrapped = RuntimeError("a compiler's")
    wrapped.__cause__ = raised.value
    hints = {version_hint(raised.value), version_hint(wrapped)}
    expected = library and f"{library} {version(library)} is installed here"
    assert {hint and hint.partition(";")[0] for hint in hints} == {expected}
