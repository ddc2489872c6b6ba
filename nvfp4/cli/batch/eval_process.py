"""Judges submissions by `nvfp4 eval --json`, each in its own process, on behalf of any thread or
machine."""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import field, fields
from pathlib import Path
from typing import IO, Any, NoReturn, Protocol

from nvfp4.cli import errors as exits
from nvfp4.cli.errors import SetupError, error_object, json_schema
from nvfp4.cli.judging.assess import read_submission
from nvfp4.cli.judging.processes import end, watched
from nvfp4.cli.problem import package_path
from nvfp4.cli.text import visible
from nvfp4.records.base import Record
from nvfp4.records.options import Options
from nvfp4.records.processes import VARIABLE, Turn, start_session

Process = subprocess.Popen[bytes]

_stop_s = 10.0
"""Seconds for `nvfp4 eval` to end its judge and delete its files, before it is killed."""


class Candidate(Record):
    """Contents to judge."""

    sha256: str
    content: bytes
    paths: list[Path] = field(default_factory=list)
    """The files with these contents; messages name the first."""

    @property
    def name(self) -> str:
        """Name of the file in messages."""
        return self.paths[0].name


Told = Callable[[Candidate, dict[str, Any]], None]
"""A callback that is given each verdict as it comes."""


class BatchOptions(Record):
    """Options of `nvfp4 batch`."""

    jsonl: Path | None = None
    """The file of the results; None for the history."""
    resume: bool = False
    stop_early: bool = False
    """Whether a judgement ends at its first failure."""
    limit_s: float | None = None
    """Seconds for each submission."""
    jobs: int | None = None
    """How many judgements on the CPU run at once."""
    ray: str | None = None
    """The address of a cluster."""
    device: str = "auto"
    judging: Mapping[str, Any] = field(default_factory=dict)
    """Options of `nvfp4 eval` by their names."""

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "BatchOptions":
        """Return the options of a batch from those of the command. Options without a field here are
        those of `nvfp4 eval`."""
        own = {each.name for each in fields(cls)} & set(options)
        judging = {name: value for name, value in options.items() if name not in own}
        return cls(**{name: options[name] for name in own}, judging=judging)

    @property
    def arguments(self) -> list[str]:
        """The command line of `nvfp4 eval`, but for its device."""
        found = ["--stop"] if self.stop_early else []
        for name, value in self.judging.items():
            if value is True or value is False:
                found += [f"--{name}"] if value else ["--no-check"] if name == "check" else []
            elif value is not None:
                found += [f"--{name.removesuffix('_s')}", str(value)]
        return found

    @property
    def options(self) -> Options:
        """The options of a judgement."""
        known = {each.name for each in fields(Options)}
        chosen = {name: each for name, each in self.judging.items() if name in known}
        return Options(device=self.device, **chosen)

    def identity(self, kind: str) -> dict[str, Any]:
        """Return the settings that a verdict depends on besides the content. kind: cuda or cpu."""
        own = {"stop_early": self.stop_early, "limit_s": self.limit_s}
        return {"device": kind, **self.judging, **own}


class Judges(Protocol):
    """The places where submissions are judged."""

    kind: str
    """cuda or cpu."""

    def judge(self, candidates: Sequence[Candidate], told: Told) -> str | None:
        """Judge each candidate once and pass every verdict to ``told``. An interrupt ends it; the
        verdicts complete by then are passed on. Return a sentence on how the GPUs spent the time;
        None if that is not known."""


class Stopped(Exception):
    """The batch has ended, and the verdict is not needed."""


TakeTurn = Callable[[bool], AbstractContextManager[object]]
"""Returns what is held during the tests or, given True, during the benchmarks."""


class _Spent(AbstractContextManager[None]):
    """Counts the seconds in its blocks, and those left of a limit."""

    def __init__(self, limit_s: float | None) -> None:
        self.seconds, self._limit_s = 0.0, limit_s

    @property
    def left_s(self) -> float | None:
        return None if self._limit_s is None else max(0.01, self._limit_s - self.seconds)

    def __enter__(self) -> None:
        self._began_s = time.monotonic()

    def __exit__(self, *error: object) -> None:
        self.seconds += time.monotonic() - self._began_s


class EvalProcesses:
    """Runs judgements as processes.

    arguments: options of `nvfp4 eval`. limit_s: seconds for each submission; None for no limit.
    """

    def __init__(self, arguments: Sequence[str], limit_s: float | None = None) -> None:
        self._arguments = list(arguments)
        self._limit_s = limit_s
        self._lock = threading.Lock()
        self._running: set[Process] = set()
        self._stopped = False

    def judge(
        self,
        candidate: Candidate,
        device: str,
        environment: Mapping[str, str],
        take_turn: TakeTurn = nullcontext,
    ) -> dict[str, Any]:
        """Return the object that `nvfp4 eval --json` prints, with elapsed_s; one with an error if
        it printed none.

        environment: variables in addition to our own. take_turn: from when everything is loaded;
        elapsed_s and the time limit count what happens in its turns. The process always dies with
        this one. Raises Stopped after ``stop``.
        """
        spent = _Spent(self._limit_s)
        try:
            found = self._judge(candidate, device, environment, take_turn, spent)
        except OSError as error:
            found = crashed(f"nvfp4 eval could not be run: {error.strerror}")
        return {**found, "elapsed_s": round(spent.seconds, 3)}

    def _judge(
        self,
        candidate: Candidate,
        device: str,
        environment: Mapping[str, str],
        take_turn: TakeTurn,
        spent: _Spent,
    ) -> dict[str, Any]:
        with (
            tempfile.TemporaryDirectory(prefix="nvfp4-batch-") as folder,
            tempfile.TemporaryFile() as output,
            tempfile.TemporaryFile() as errors,
        ):
            copy = Path(folder) / candidate.name
            copy.write_bytes(candidate.content)
            command = [sys.executable, "-m", "nvfp4", "eval", str(copy), "--json", "--no-log"]
            command += ["--device", device, *self._arguments]
            over = False
            with (
                watched(Path(folder)) as watch,
                Turn() as its_turn,
                self._started(command, environment, its_turn, output, errors) as process,
            ):
                watch(process)
                try:
                    with take_turn(False), spent:
                        its_turn.give()
                        timed = its_turn.asked(spent.left_s)
                    if timed:
                        with take_turn(True), spent:
                            its_turn.give()
                            its_turn.asked(spent.left_s)
                    process.wait(spent.left_s)
                except (subprocess.TimeoutExpired, TimeoutError):
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
        self, command: list[str], environment: Mapping[str, str], its_turn: Turn, *files: IO[bytes]
    ) -> Iterator[Process]:
        with self._lock:
            if self._stopped:
                raise Stopped
            known = {**os.environ, **package_path(), VARIABLE: str(its_turn.fd), **environment}
            # Not beside a submission, where Python would find modules to import.
            process = start_session(command, "/", known, [its_turn.fd], *files)
            self._running.add(process)
        try:
            yield process
        finally:
            with self._lock:
                self._running.discard(process)


def _end(processes: Sequence[Process]) -> None:
    """Let running processes clean up, then kill them and wait for them."""
    end(processes, _stop_s)
    for process in processes:
        process.wait()


def _content(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()


def _printed(output: bytes, errors: bytes, exit_code: int) -> dict[str, Any]:
    """Return the object that was printed, or one with an error if it is missing or incomplete."""
    with suppress(ValueError, RecursionError):
        found = json.loads(output)
        said = exits.passed, exits.failed, exits.setup, exits.unclear
        if exit_code in said and isinstance(found, dict) and found.get("schema") == json_schema:
            return dict(found)
    last = visible(errors.decode("utf-8", "replace")).strip().splitlines()[-1:]
    message = f"nvfp4 eval ended with exit code {exit_code}" + (f": {last[0]}" if last else "")
    return crashed(message[:300])


def crashed(message: str) -> dict[str, Any]:
    """Return the JSON object for a judge that ended without a verdict."""
    return error_object("batch.crashed", message, "--resume judges it again.")


def find_files(names: Sequence[Path]) -> list[Path]:
    """Return each named file, and the files in folders that end in .py, at any depth.

    Each appears once; hidden folders are left out; a name that does not exist is kept, to get its
    own line. Raises SetupError if nothing is found.
    """
    if not any(map(os.path.lexists, names)):
        raise SetupError(f"{names[0]} does not exist", "Name files, or folders of submissions.")
    found = [
        path for name in names for path in (_files_of(name) if os.path.isdir(name) else [name])
    ]
    if not found:
        folders = ", ".join(map(str, names))
        raise SetupError(f"no file of {folders} ends in .py", "Name the folder of submissions.")
    return list(dict.fromkeys(found))


def _files_of(folder: Path) -> Iterator[Path]:
    def unreadable(error: OSError) -> NoReturn:
        message = f"cannot read {error.filename}: {error.strerror}"
        raise SetupError(message, "Name folders that can be read.", "setup.unreadable")

    for here, folders, files in os.walk(folder, onerror=unreadable):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(here, name) for name in sorted(files) if name.endswith(".py"))


def read_candidates(paths: Sequence[Path]) -> tuple[list[Candidate], list[tuple[Path, SetupError]]]:
    """Return the contents in the order of their first files, and the files that cannot be read."""
    found: dict[str, Candidate] = {}
    unreadable = []
    for path in paths:
        try:
            described, content = read_submission(path)
        except SetupError as error:
            unreadable.append((path, error))
            continue
        found.setdefault(described.sha256, Candidate(described.sha256, content)).paths.append(path)
    return list(found.values()), unreadable
