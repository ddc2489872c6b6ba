"""What is known of a request that a submission's process did not live to answer."""

import os
import tempfile
import time
from pathlib import Path

import pytest

from nvfp4.judge.submission_process import SubmissionFailed, SubmissionProcess
from nvfp4.records.messages import Call
from nvfp4.records.unanswered import RequestState, StateWriter, last_state


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
        "custom_kernel did not finish within 60 s, of which compiling and emulating took 50 s"
    )
    assert failed.failure.code == "timeout.call"
    assert failed.failure.arguments == {"seconds": 60, "not_its_own_s": 50}
    writer.begin()
    assert last_state(scratch).not_its_own_s == 0


def test_a_limit_that_was_the_submission_s_own_stays_as_it_is(scratch: Path) -> None:
    StateWriter(scratch).begin()
    assert str(process_of(scratch)._timed_out(60)) == "custom_kernel did not finish within 60 s"


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
    (scratch / "request").unlink()
    os.mkfifo(scratch / "request")
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
    try:
        watch_compilers(told.append)
        theirs._jit_compile()
    finally:
        activity.tell(None)
    assert told == ["compiling", "builds", "running"]
