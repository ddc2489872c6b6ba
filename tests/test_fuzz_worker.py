"""A worker that does not answer as it should, as a process: an answer or SubmissionFailed."""

import json
import os
import random
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nvfp4.judge import submission_process
from nvfp4.judge.protocol import Exit
from nvfp4.judge.submission_process import SubmissionFailed, SubmissionProcess
from nvfp4.records.failures import Failure
from nvfp4.records.messages import Profile, Profiled
from nvfp4.records.options import Options
from nvfp4.sandbox import isolation
from nvfp4.sandbox.workers import Process

worker = """\
import json, os, pathlib, socket, sys, time
connection = socket.socket(fileno=int(sys.argv[1]))
for step in json.loads(pathlib.Path(sys.argv[2]).read_text()):
    if step == "wait":
        if not connection.recv(1 << 16):
            break
    elif step == "close":
        connection.close()
        time.sleep(60)
    elif step == "exit":
        os._exit(3)
    elif step == "sleep":
        time.sleep(60)
    elif step == "descriptors":
        for _ in range(300):
            socket.send_fds(connection, [b" "], [0])
    else:
        data, times = step
        try:
            for _ in range(times):
                connection.sendall(data.encode("latin-1"))
        except OSError:
            break
"""

hello = ['{"is": "Greeting", "confined": {}}\n', 1]
loaded = ['{"is": "Done", "id": 1}\n', 1]


def start_script(
    script: Path, module: str, submission: Path, fd: int, options: Options, folder: Path
) -> Process:
    """In place of a worker, a script with the same arguments."""
    command = [sys.executable, str(script), str(fd), str(submission)]
    return isolation.start_worker(command, folder, fd, dict(os.environ))


def answers(folder: Path, steps: list[Any], timeout_s: float = 5.0) -> list[Any]:
    """What two requests come to: an answer each, or the failure."""
    submission = folder / "submission.json"
    submission.write_text(json.dumps(steps))
    found: list[Any] = []
    start = time.monotonic()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            submission_process, "start_worker", partial(start_script, folder / "worker.py")
        )
        patch.setattr(submission_process, "uses_gpu", lambda: True)
        patch.setattr(SubmissionProcess, "_connect", lambda self, timeout_s: None)
        with SubmissionProcess(submission) as process:
            for _ in range(2):
                try:
                    found.append(process.request(Profile(), Profiled, timeout_s))
                except SubmissionFailed as failed:
                    found.append(failed)
                    break
    assert time.monotonic() - start < timeout_s + 10
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a worker that follows a script."""
    folder = tmp_path_factory.mktemp("worker")
    (folder / "worker.py").write_text(worker)
    return folder


def test_an_orderly_worker_is_understood(folder: Path) -> None:
    first, second = (
        [f'{{"is": "Profiled", "report": "{number}", "dtype": "", "id": {number}}}\n', 1]
        for number in (2, 3)
    )
    steps = [hello, "wait", loaded, "wait", first, "wait", second]
    assert answers(folder, [*steps, "wait"]) == [Profiled("2", ""), Profiled("3", "")]


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (['{"id": 9}\n', 1], "sent an answer that nobody asked for"),
        (["{}\n", 1], "sent an answer that nobody asked for"),
        (['{"id": null}\n', 1], "sent an answer that nobody asked for"),
        (['{"id": [2]}\n', 1], "sent an answer that nobody asked for"),
        (['{"id": 1}\n{"id": 2}\n', 1], "sent an answer that nobody asked for"),
        (["garbage\n", 1], "not JSON"),
        (["\x00\xff\n", 1], "not JSON"),
        (["[" * 50_000 + "\n", 1], "not JSON"),
        (["2\n", 1], "not a JSON object"),
        (["x" * 65_536, 64], "is longer than"),
        (['{"id": 2}\n', 1], "is no Profiled or Failed"),
        (['{"id": 2, "is": ["Profiled"]}\n', 1], "is no Profiled or Failed"),
        (['{"id": 2, "is": "Profiled", "report": 5}\n', 1], "no report of type str"),
        (['{"id": 2, "is": "Called", "call_ns": 1.0}\n', 1], "is no Profiled or Failed"),
        (
            [
                '{"id": 2, "is": "Failed", "message": "lost", "failure": {"code": "cuda.error"}}\n',
                1,
            ],
            "lost",
        ),
        (
            ['{"id": 2, "is": "Failed", "message": "\\ud800", "failure": {}}\n', 1],
            "",
        ),
        (['{"id": 2, "is": "Failed", "message": ["a"], "failure": {}}\n', 1], "type str"),
        (['{"id": 2', 1], "did not finish within"),
        ("exit", "ended with exit code 3"),
        ("close", "closed its connection"),
        ("descriptors", "did not finish within"),
    ],
)
def test_a_disorderly_worker_is_a_failure(step: Any, why: str, folder: Path) -> None:
    steps = [hello, "wait", loaded, "wait", step, "sleep"]
    [failed] = answers(folder, steps, timeout_s=1.0)
    assert isinstance(failed, SubmissionFailed)
    assert why in str(failed)


def test_a_worker_cannot_give_a_code_of_the_judge(folder: Path) -> None:
    told = {"code": "timeout.mode", "line": 3, "causes": [{"code": "output.zero"}]}
    answer = {"id": 2, "is": "Failed", "message": "forged\nby it", "failure": told}
    [failed] = answers(folder, [hello, "wait", loaded, "wait", [json.dumps(answer) + "\n", 1]])
    assert failed.failure == Failure("call.exception", "forged", line=3, told_by="submission")
    assert failed.end is Exit.CHECK_FAILED


def test_answers_of_chance_are_answers_to_the_question_or_failures(folder: Path) -> None:
    """In one run each: a process a message would take long."""
    draw = random.Random(5)
    pieces = ['{"id": ', "2", "1", "}", "\n", ",", '"', "NaN", "[", "\xff", '"is": "Profiled"', " "]
    for _ in range(12):
        text = "".join(draw.choices(pieces, k=draw.randrange(1, 12))) + "\n"
        for found in answers(folder, [hello, "wait", loaded, "wait", [text, 1], "exit"]):
            assert isinstance(found, (SubmissionFailed, Profiled))


@pytest.mark.parametrize(
    "greeting", ["{}", '{"confined": {}}', '{"is": "Greeting", "confined": ["a"]}']
)
def test_a_greeting_that_is_none_is_a_failure(greeting: str, folder: Path) -> None:
    [failed] = answers(folder, [[greeting + "\n", 1], "sleep"])
    assert isinstance(failed, SubmissionFailed)
