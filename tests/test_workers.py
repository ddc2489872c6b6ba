"""Workers that are forked from a process that has loaded torch."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest
import torch

from nvfp4.judge.submission_process import SubmissionFailed, SubmissionProcess
from nvfp4.records.messages import Call, Called, CaseOpened, OpenCase
from nvfp4.records.processes import ForkedProcess
from nvfp4.sandbox import isolation

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks workers"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU each worker starts by itself"),
]

source = """
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
    path.write_text(source)
    return path


def said(process: SubmissionProcess) -> dict:
    """What the submission says of the process it runs in."""
    process.request(OpenCase(128, 64, 1), CaseOpened, 60)
    with pytest.raises(SubmissionFailed) as failed:
        process.request(Call(), Called, 60)
    found: dict = json.loads(str(failed.value).partition("ValueError: ")[2])
    return found


def test_two_workers_share_neither_numbers_nor_files(
    submission: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hush")
    with SubmissionProcess(submission) as one, SubmissionProcess(submission) as other:
        first, second = said(one), said(other)
    assert first["python"] != second["python"]
    assert first["numpy"] != second["numpy"]
    assert first["folder"] != second["folder"]
    assert first["temporary"] == first["folder"]
    assert "SECRET_TOKEN" not in first["variables"]
    assert first["sockets"] == 2
    assert first["arguments"] == "nvfp4.worker"


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


def fork_servers() -> list[int]:
    """Their processes, below this one."""
    return [
        pid
        for pid in isolation.descendants(os.getpid())
        if b"nvfp4.sandbox.fork_server" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def test_a_fork_server_that_is_killed_is_replaced(submission: Path) -> None:
    with SubmissionProcess(submission) as process:
        process.load(60)
        servers = fork_servers()
        assert servers
        for pid in servers:
            os.kill(pid, signal.SIGKILL)
        process.stop()
        assert said(process)["sockets"] == 2


def test_a_fork_server_that_dies_before_it_has_read_a_request_is_replaced(submission: Path) -> None:
    with SubmissionProcess(submission) as process:
        process.load(60)
        process.stop()
        servers = fork_servers()
        assert servers
        for pid in servers:
            os.kill(pid, signal.SIGSTOP)
        process.start()
        for pid in servers:
            os.kill(pid, signal.SIGKILL)
        assert said(process)["sockets"] == 2
