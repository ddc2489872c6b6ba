"""What is known of a request that a submission's process did not live to answer."""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nvfp4.cli.codes import code_of
from nvfp4.judge import case_log as last_words
from nvfp4.worker.request_state import RequestState, StateWriter, last_state


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a submission's process that a judge waits for."""
    monkeypatch.setenv("NVFP4_DEADLINE", "1")
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    folder = tmp_path / "nvfp4-x"
    folder.mkdir()
    return folder


def report_of(scratch: Path, monkeypatch: pytest.MonkeyPatch, error: str) -> dict[str, str]:
    """What is reported of a case that failed so."""
    monkeypatch.setattr(last_words, "taken", lambda stream: "")
    report = {"status": "fail", "error": error}
    process: Any = SimpleNamespace(scratch=scratch, stdout=None)
    last_words.tell_more(report, process, Path("submission.py"), "submission.py")
    return report


def test_compiling_and_emulating_are_not_the_submission_s_own_time(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, clock = StateWriter(scratch), [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    writer.begin()
    for word, seconds in (("importing", 5), ("compiling", 20), ("importing", 3), ("emulating", 30)):
        writer.busy(word)
        clock[0] += seconds
    assert last_state().not_its_own_until_now_s == pytest.approx(50)
    report = report_of(scratch, monkeypatch, "custom_kernel did not finish within 60 s")
    said = "custom_kernel did not finish within 60 s, of which compiling and emulating took 50 s"
    assert report["error"] == said
    assert code_of(said) == ("timeout.call", {"seconds": 60, "not_its_own_s": 50})
    writer.begin()
    assert last_state().not_its_own_s == 0


def test_a_limit_that_was_the_submission_s_own_stays_as_it_is(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    StateWriter(scratch).begin()
    said = "its import did not finish within 150 s"
    assert report_of(scratch, monkeypatch, said)["error"] == said


@pytest.mark.parametrize(
    "error",
    [
        "the submission's process ended with exit code 1",
        "the submission's process was killed by SIGABRT (aborted)",
        "the submission called sys.exit(1)",
        "the import failed: the submission called sys.exit(1)",
    ],
)
def test_a_process_that_ends_where_it_was_refused_something_says_what(
    error: str, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = StateWriter(scratch)
    writer.begin()
    writer.refused("no time can be measured")
    report = report_of(scratch, monkeypatch, error)
    assert json.loads(report["failure"])["code"] == "launch.unsupported_call"
    assert report["error"] == f"no time can be measured\nthen {error}"
    assert "failure" not in report_of(scratch, monkeypatch, "1 of 128 elements are wrong")
    writer.begin()
    assert "failure" not in report_of(scratch, monkeypatch, error)


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{", b"\xff", b'{"word": 1}', b'{"word": "x", "refused": [], "since": 1}'],
)
def test_what_the_submission_writes_there_does_no_harm(scratch: Path, content: bytes) -> None:
    (scratch / "request").write_bytes(content)
    assert last_state() == RequestState()
    (scratch / "request").unlink()
    os.mkfifo(scratch / "request")
    assert last_state() == RequestState()


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
