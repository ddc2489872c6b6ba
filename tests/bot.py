"""The contest's bot as a driver of its own, written from the contest's protocol alone.

It shares nothing with ``cli/judging/bot.py``: it reads the pipe only when the process has ended,
as the bot does, so a judge that writes more than a pipe holds blocks for ever here too. ``run``
starts Python as the bot does. ``judge`` has a process that has loaded torch forked, as the command
does: the same judge, which takes a tenth of the time to start.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from nvfp4.cli.judging.processes import Process, start

root = Path(__file__).resolve().parent.parent
pipe_bytes = 64 << 10


def problem() -> dict:
    """task.yml as it stands in the repository."""
    return yaml.safe_load((root / "task.yml").read_text(encoding="utf-8"))


def case(m: int = 128, k: int = 256, l: int = 1, seed: int = 1111, full: bool = False) -> str:
    """A line of a case file."""
    return f"m: {m}; k: {k}; l: {l}; seed: {seed}" + ("; full-range inputs" if full else "")


@dataclass
class Ended:
    """How a run ended. written: every byte that came out of the pipe. killed: by the bot."""

    exit_code: int
    stdout: bytes
    stderr: str
    written: bytes = b""
    killed: bool = False
    values: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for line in self.written.decode().splitlines():
            key, colon, value = line.partition(":")
            assert colon, f"a line without a colon: {line!r}"
            self.values[key.strip()] = value.strip()


@dataclass(frozen=True)
class Bot:
    """A flat folder with the files that task.yml names and nothing else."""

    folder: Path

    @classmethod
    def stage(cls, folder: Path, submission: Path | bytes) -> "Bot":
        """Writes the folder; it must not exist yet."""
        folder.mkdir()
        for entry in problem()["files"]:
            target = folder / entry["name"]
            if entry["source"] != "@SUBMISSION@":
                shutil.copy(root / entry["source"], target)
            elif isinstance(submission, bytes):
                target.write_bytes(submission)
            else:
                shutil.copy(submission, target)
        return cls(folder)

    def run_submission(self) -> Ended:
        """``python3 submission.py``, the first thing the bot does."""
        done = subprocess.run(
            [sys.executable, "submission.py"],
            cwd=self.folder,
            env=_environment({}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=120,
        )
        return Ended(done.returncode, done.stdout, done.stderr.decode())

    def run(
        self,
        mode: str,
        cases: list[str] | bytes | None,
        secret_seed: int | None = None,
        timeout_s: float = 180,
        forked: bool = False,
        **environment: str,
    ) -> Ended:
        """``python3 eval.py MODE CASEFILE`` with a pipe; no case file is written for None."""
        case_file = self.folder / "cases.txt"
        if cases is not None:
            case_file.write_bytes(cases if isinstance(cases, bytes) else "\n".join(cases).encode())
        if secret_seed is not None:
            environment["POPCORN_SEED"] = str(secret_seed)
        run = self._run_forked if forked else self.run_raw
        return run([mode, case_file.name], timeout_s, environment)

    def judge(self, mode: str, cases: list[str] | bytes | None, **options: Any) -> Ended:
        """``run`` by a forked judge, of whose standard output nothing is kept."""
        return self.run(mode, cases, forked=True, **options)

    def _run_forked(
        self, arguments: list[str], timeout_s: float, environment: dict[str, str]
    ) -> Ended:
        read_fd, write_fd = os.pipe()
        process = start(arguments, self.folder, _environment(environment), {"POPCORN_FD": write_fd})
        killed = _wait(process, timeout_s)
        os.close(write_fd)
        assert process.stderr
        with process.stderr as errors:
            text = _drain(errors.fileno()).decode("utf-8", "replace")
        return Ended(process.wait(), b"", text, _drain(read_fd, close=True), killed)

    def run_raw(
        self,
        arguments: list[str],
        timeout_s: float = 180,
        environment: dict[str, str] | None = None,
        fd: bool = True,
    ) -> Ended:
        """``python3 eval.py`` with any arguments. fd: whether it is told of the pipe."""
        read_fd, write_fd = os.pipe()
        told = {"POPCORN_FD": str(write_fd)} if fd else {}
        log, errors = self.folder / "stdout.log", self.folder / "stderr.log"
        with log.open("wb") as stdout, errors.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "eval.py", *arguments],
                cwd=self.folder,
                env=_environment({**told, **(environment or {})}),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                pass_fds=[write_fd],
            )
        killed = _wait(process, timeout_s)
        os.close(write_fd)
        written = _drain(read_fd, close=True)
        text = errors.read_bytes().decode("utf-8", "replace")
        return Ended(process.returncode, log.read_bytes(), text, written, killed)


def _wait(process: Process, timeout_s: float) -> bool:
    """Until a process has ended; whether it had to be killed."""
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        return True
    return False


def _environment(extra: dict[str, str]) -> dict[str, str]:
    ours = ("POPCORN_", "NVFP4_")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**inherited, **extra}


def _drain(fd: int, close: bool = False) -> bytes:
    """What a pipe holds now; does not wait for writers that are still alive."""
    os.set_blocking(fd, False)
    chunks = []
    with contextlib.suppress(BlockingIOError):
        while chunk := os.read(fd, pipe_bytes):
            chunks.append(chunk)
    if close:
        os.close(fd)
    return b"".join(chunks)
