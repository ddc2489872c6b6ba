"""Judges submissions by `nvfp4 eval --json`, a process each, whichever thread or machine asks."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from nvfp4.cli import exits
from nvfp4.cli.batch.candidates import Candidate
from nvfp4.cli.judging.janitor import end, watched
from nvfp4.cli.problem import package_path
from nvfp4.cli.text import visible
from nvfp4.cli.verdict import error_object, json_schema

Process = subprocess.Popen[bytes]

_stop_s = 10.0
"""How long `nvfp4 eval` has to end its judge and clear away before it is killed."""


class Stopped(Exception):
    """Nobody wants the verdict any more."""


class EvalProcesses:
    """arguments: options of `nvfp4 eval`. limit_s: of each submission, None for no limit."""

    def __init__(self, arguments: Sequence[str], limit_s: float | None = None) -> None:
        self._arguments = list(arguments)
        self._limit_s = limit_s
        self._lock = threading.Lock()
        self._running: set[Process] = set()
        self._stopped = False

    def judge(
        self, candidate: Candidate, device: str, environment: Mapping[str, str]
    ) -> dict[str, Any]:
        """The object that `nvfp4 eval --json` prints, or one with an error where it printed none,
        and elapsed_s.

        environment: variables beside our own. The process dies with this one, however that ends.
        Raises Stopped after ``stop``.
        """
        started = time.monotonic()
        try:
            found = self._judge(candidate, device, environment)
        except OSError as error:
            found = crashed(f"nvfp4 eval could not be run: {error.strerror}")
        return {**found, "elapsed_s": round(time.monotonic() - started, 3)}

    def _judge(
        self, candidate: Candidate, device: str, environment: Mapping[str, str]
    ) -> dict[str, Any]:
        with (
            tempfile.TemporaryDirectory(prefix="nvfp4-batch-") as folder,
            tempfile.TemporaryFile() as output,
            tempfile.TemporaryFile() as errors,
        ):
            copy = candidate.written_to(Path(folder))
            command = [sys.executable, "-m", "nvfp4", "eval", str(copy), "--json", "--no-log"]
            command += ["--device", device, *self._arguments]
            started = self._started(command, environment, output, errors)
            with started as process, watched(process, Path(folder)):
                over = False
                try:
                    process.wait(self._limit_s)
                except subprocess.TimeoutExpired:
                    over = True
                finally:
                    _end([process])
            if self._stopped:
                raise Stopped
            if over:
                message = f"it was not judged within {self._limit_s:g} s"
                return error_object("batch.limit", message, "--limit-s allows more.")
            return _printed(_content(output), _content(errors), process.returncode)

    def stop(self) -> None:
        """Ends every process; the threads that wait for them get Stopped."""
        with self._lock:
            self._stopped = True
            running = list(self._running)
        _end(running)

    @contextmanager
    def _started(
        self,
        command: list[str],
        environment: Mapping[str, str],
        output: IO[bytes],
        errors: IO[bytes],
    ) -> Iterator[Process]:
        with self._lock:
            if self._stopped:
                raise Stopped
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                cwd="/",  # of files beside a submission none may be imported
                env={**os.environ, **package_path(), **environment},
                start_new_session=True,
            )
            self._running.add(process)
        try:
            yield process
        finally:
            with self._lock:
                self._running.discard(process)


def _end(processes: Sequence[Process]) -> None:
    """Lets processes that still run clear away, then kills them, and waits."""
    end(processes, _stop_s)
    for process in processes:
        process.wait()


def _content(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()


def _printed(output: bytes, errors: bytes, exit_code: int) -> dict[str, Any]:
    """The object that was printed; one with an error where there is none, or only a part of one."""
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(output)
        said = exits.passed, exits.failed, exits.setup, exits.unclear
        whole = exit_code in said and isinstance(found, dict)
        if whole and found.get("schema") == json_schema:
            return dict(found)
    last = visible(errors.decode("utf-8", "replace")).strip().splitlines()[-1:]
    message = f"nvfp4 eval ended with exit code {exit_code}" + (f": {last[0]}" if last else "")
    return crashed(message[:300])


def crashed(message: str) -> dict[str, Any]:
    """The object where the judge ended without a verdict."""
    return error_object("batch.crashed", message, "--resume judges it again.")
