"""Workers that are forked from a process that has loaded torch."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from bot import root

from gemv import plan_of
from nvfp4.judge import submission_process
from nvfp4.judge.protocol import Exit
from nvfp4.judge.submission_process import SubmissionFailed, SubmissionProcess
from nvfp4.records.failures import Failure
from nvfp4.records.messages import Call, Called, CaseOpened, OpenCase, Profile, Profiled
from nvfp4.records.options import Options
from nvfp4.records.processes import ForkedProcess, Process, start_session
from nvfp4.sandbox import fork_server, isolation, workers
from nvfp4.worker import __main__ as worker_module
from nvfp4.worker import choose_runner

pytestmark = pytest.mark.usefixtures("server_of_executors")

forked = pytest.mark.skipif(
    sys.platform != "linux" or torch.cuda.is_available(), reason="each worker starts by itself"
)

tells = """
import json, os, random, sys
import numpy, torch

def targets():
    for name in os.listdir("/proc/self/fd"):
        try:
            yield os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            pass

def custom_kernel(data):
    raise ValueError(json.dumps({
        "python": random.random(),
        "numpy": numpy.random.rand(),
        "folder": os.getcwd(),
        "temporary": __import__("tempfile").gettempdir(),
        "variables": sorted({*os.environ, *(
            each.partition("=")[0] for each in open("/proc/self/environ").read().split(chr(0)))}),
        "sockets": sum(each.startswith("socket:") for each in targets()),
        "threads": len(os.listdir("/proc/self/task")),
        "arguments": sys.argv[0],
    }))
"""


@pytest.fixture
def submission(tmp_path: Path) -> Path:
    path = tmp_path / "submission.py"
    path.write_text(tells)
    return path


def said(process: SubmissionProcess) -> dict:
    """What the submission says of the process it runs in."""
    plan = plan_of(128, 64, 1)
    opening = OpenCase(plan.inputs.to_plain(), plan.expected.to_plain(), plan.room_bytes)
    process.request(opening, CaseOpened, 60)
    with pytest.raises(SubmissionFailed) as failed:
        process.request(Call(), Called, 60)
    return json.loads(str(failed.value).partition("ValueError: ")[2])


@forked
def test_two_workers_share_neither_numbers_nor_files(
    submission: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SECRET_TOKEN", "POPCORN_SEED", "POPCORN_FD"):
        monkeypatch.setenv(name, "5")
    with SubmissionProcess(submission) as one, SubmissionProcess(submission) as other:
        first, second = said(one), said(other)
    assert first["python"] != second["python"]
    assert first["numpy"] != second["numpy"]
    assert first["folder"] != second["folder"]
    assert first["temporary"] == first["folder"]
    hidden = ("SECRET", "POPCORN", "NVFP4_S", "NVFP4_F")
    assert [name for name in first["variables"] if name.startswith(hidden)] == []
    assert first["sockets"] == 2
    assert first["arguments"] == "nvfp4.worker"


@forked
def test_a_worker_that_is_killed_is_replaced(submission: Path) -> None:
    with SubmissionProcess(submission) as process:
        process.load(60)
        worker = process._process
        assert isinstance(worker, ForkedProcess)
        os.kill(worker.pid, signal.SIGKILL)
        assert process.answered(10)  # the connection is closed with the last of its processes
        with pytest.raises(SubmissionFailed, match="SIGKILL"):
            process.request(Call(), Called, 60)
        assert said(process)["sockets"] == 2
        gpu = process.gpu
        # Where the next worker lies at its server's addresses, it gets a process of its own.
        assert gpu and (isinstance(gpu._process, ForkedProcess) or gpu._anew), "its GPU, too"


def test_a_worker_that_cannot_start_says_nothing_of_the_submission(
    submission: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_memory(*arguments: object) -> None:
        raise RuntimeError("CUDA error: out of memory")

    monkeypatch.setattr(choose_runner, "make_runner", no_memory)
    monkeypatch.setattr(worker_module, "confine", dict)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    monkeypatch.setattr(sys, "argv", ["worker", str(theirs.detach()), str(submission)])
    with ours, pytest.raises(SystemExit) as ended:
        worker_module.main()
    submission.write_text(f"import os\n\nos._exit({ended.value.code})\n")
    with SubmissionProcess(submission) as process, pytest.raises(SubmissionFailed) as failed:
        process.load(60)
    assert failed.value.failure.code == "process.not_started"
    assert capsys.readouterr().err == "RuntimeError: CUDA error: out of memory\n"


@forked
@pytest.mark.parametrize("unread", [False, True], ids=["idle", "before it reads a request"])
def test_a_fork_server_that_is_killed_is_replaced(submission: Path, unread: bool) -> None:
    with SubmissionProcess(submission) as process:
        process.load(60)
        if unread:
            process.stop()
        servers = []
        for pid in isolation.descendants(os.getpid()):
            with suppress(OSError):  # a worker of an earlier test may end now
                if b"nvfp4.sandbox.fork_server" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    servers.append(pid)
        assert servers
        if unread:
            for pid in servers:
                os.kill(pid, signal.SIGSTOP)
            process.start()
        for pid in servers:
            os.kill(pid, signal.SIGKILL)
        if not unread:
            process.stop()
        assert said(process)["sockets"] == 2


# A worker that does not answer as it should, as a process: an answer or SubmissionFailed.

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


def start_script(script: Path, *asked: Any) -> Process:
    """In place of a worker, a script with the same arguments."""
    _, submission, fd, _, folder, _ = asked
    command = [sys.executable, str(script), str(fd), str(submission)]
    return start_session(command, folder, dict(os.environ), [fd], subprocess.PIPE, subprocess.PIPE)


def answers(folder: Path, steps: list[Any], timeout_s: float = 5.0) -> list[Any]:
    """What two requests come to: an answer each, or the failure."""
    submission = folder / "submission.json"
    submission.write_text(json.dumps(steps))
    found: list[Any] = []
    began_s = time.monotonic()
    with pytest.MonkeyPatch.context() as patch:
        start = partial(start_script, folder / "worker.py")
        patch.setattr(submission_process, "start_worker", start)
        patch.setattr(submission_process, "uses_gpu", lambda: True)
        patch.setattr(SubmissionProcess, "_connect", lambda self, timeout_s: None)
        with SubmissionProcess(submission) as process:
            for _ in range(2):
                try:
                    found.append(process.request(Profile(), Profiled, timeout_s))
                except SubmissionFailed as failed:
                    found.append(failed)
                    break
    assert time.monotonic() - began_s < timeout_s + 10
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a worker that follows a script."""
    folder = tmp_path_factory.mktemp("worker")
    (folder / "worker.py").write_text(worker)
    return folder


def test_an_orderly_worker_is_understood(folder: Path) -> None:
    first, second = (
        [f'{{"is": "Profiled", "report": "{number}", "output": {{}}, "id": {number}}}\n', 1]
        for number in (2, 3)
    )
    steps = [hello, "wait", loaded, "wait", first, "wait", second]
    assert answers(folder, [*steps, "wait"]) == [Profiled("2", {}), Profiled("3", {})]


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (['{"id": 9}\n', 1], "sent an answer that nobody asked for"),
        (['{"id": [2]}\n', 1], "sent an answer that nobody asked for"),
        (['{"id": 1}\n{"id": 2}\n', 1], "sent an answer that nobody asked for"),
        (["garbage\n", 1], "not JSON"),
        (["x" * 65_536, 64], "is longer than"),
        (['{"id": 2}\n', 1], "is no Profiled or Failed"),
        (['{"id": 2, "is": "Failed", "message": "lost", "failure": {"code": "a"}}\n', 1], "lost"),
        (['{"id": 2, "is": "Failed", "message": "\\ud800", "failure": {}}\n', 1], ""),
        (['{"id": 2', 1], "did not finish within"),
        ("exit", "ended with exit code 3"),
        ("close", "closed its connection"),
        ("descriptors", "did not finish within"),
    ],
)
def test_a_disorderly_worker_is_a_failure(step: Any, why: str, folder: Path) -> None:
    [failed] = answers(folder, [hello, "wait", loaded, "wait", step, "sleep"], timeout_s=1.0)
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


@pytest.mark.parametrize("writable", [False, True])
def test_bytecode_that_an_installation_takes_none_of_is_kept_in_our_cache(
    writable: bool, caches: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow.py").touch()
    (tmp_path / "torch").mkdir()
    monkeypatch.setattr(fork_server.os, "access", lambda path, mode: writable)
    monkeypatch.setattr(fork_server.gc, "disable", lambda: None)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.syspath_prepend(tmp_path)
    fork_server._load(["slow"])
    del sys.modules["slow"]
    assert bool([*caches.rglob("slow.*.pyc")]) != writable and sys.pycache_prefix is None


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python takes modules of its folder")
def test_no_module_of_a_problem_runs_unconfined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is a GPU, a process begins in the folder with the problem's files."""
    script, outside = tmp_path / "submission.py", tmp_path.with_name("outside")
    script.write_text("")
    (tmp_path / "socket.py").write_text(f"open({str(outside)!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(root))
    monkeypatch.setattr(workers, "_servers", [])
    assert workers.start_alone(script, Options(device="cpu")).wait(60) == 0
    assert not outside.exists()
