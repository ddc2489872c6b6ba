"""Plays the bot: a flat folder, one run of the submission, then eval.py with a pipe for results."""

import math
import os
import re
import selectors
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from nvfp4.cli.errors import SetupError, no_room, no_room_codes
from nvfp4.cli.judging.processes import end, prepare, start, watched
from nvfp4.cli.problem import Problem, package_path
from nvfp4.cli.text import visible
from nvfp4.records.files import clear, open_plain_file
from nvfp4.records.options import Options
from nvfp4.records.processes import KEPT_BACK, VARIABLE, Process, Tail, Turn

import_timeout_s = 120.0
"""The bot's limit for the one run of the submission by itself."""

grace_s = 10.0
"""Seconds that eval.py gets to report after its time limit, before it is killed."""

stop_s = 3.0
"""Seconds for eval.py to end its worker and delete its files, before it is killed."""

look_s = 0.2
"""Seconds between two looks at what a silent process is doing."""

longest_wait_s = 60.0
"""Longest single wait; a wait without a limit is a series of these."""

longest_line_bytes = 64 << 10
"""Limit on a line, larger than any that eval.py writes; the rest of a longer line is dropped."""

Look = Callable[[], None]
"""Looks now and then at what a silent process is doing."""
OnResult = Callable[[str, str], "bool | None"]
"""A callback for each result; True ends the run."""

_activity = re.compile(r"importing|compiling|emulating( \d\d?%)?|running")
"""The activities that a submission's process and the emulated GPU may report in a file in their
folders, the share of a launch that has run included. The submission can write to its own as well:
other words are ignored, and only the display depends on it."""

_longest_activity_bytes = 20

_temporary = "tmp"

_running: set[Process] = set()


def has_driver() -> bool:
    """Return whether there is a driver of NVIDIA's: of Linux, or of Linux under Windows."""
    return any(Path(driver).exists() for driver in ("/dev/nvidiactl", "/dev/dxg"))


@dataclass
class ProcessResult:
    """The end of a process."""

    exit_code: int
    stderr: str
    killed: bool = False
    values: dict[str, str] = field(default_factory=dict)
    """Values that the process wrote to the result pipe, by key: the last of each key, except that
    "fail" is never replaced."""

    def take(self, key: str, value: str) -> bool:
        """Note a result; return False for one that would undo a failure."""
        if self.values.get(key) == "fail":
            return False
        self.values[key] = value
        return True

    def take_all(
        self, fd: int, deadline: float, on_result: OnResult | None = None, look: Look | None = None
    ) -> bool:
        """Note the results that come through a pipe, until the writer is gone or the time is up.

        Checks now and then while nothing comes. Returns False if on_result ended the run.
        """
        for key, value in _results(fd, deadline, look):
            if self.take(key, value) and on_result and on_result(key, value):
                return False
        return True


@dataclass(frozen=True)
class Bot:
    """Runs judges with the submission, device, seed and time limit that the user chose.

    Every run has a new staging folder, so that a submission cannot leave anything to the next one.
    """

    problem: Problem
    submission: bytes
    """Bytes of the file, read once."""
    options: Options = field(default_factory=Options)
    seed: int | None = None
    """A secret seed."""
    turn: AbstractContextManager[object] | None = None
    """Held while a judge runs, from when it has loaded everything; the time limit begins there."""

    @property
    def may_emulate(self) -> bool:
        """Whether kernels are emulated, as far as can be known before torch is loaded."""
        return self.options.without_gpu or not has_driver()

    def run_submission(self) -> ProcessResult:
        """Run ``python submission.py`` as the bot does before anything else, but confined."""
        with self._staged() as folder:
            command = ["alone", "submission.py"]
            ended = _run(command, folder, self._environment(folder), import_timeout_s)
            own = _own_frames(ended.stderr, folder / "submission.py")
            ended.stderr = own.replace("submission.py", self.options.name or "submission.py")
            return ended

    def run_build(self, capability: str, limit_s: float) -> ProcessResult:
        """Imports the submission, without a GPU, until its extensions are built for one of this
        compute capability. The judgements that follow find them.
        """
        apart = replace(self, options=replace(self.options, device="cpu"))
        with self._staged() as folder:
            command = ["build", "submission.py", capability]
            return _run(command, folder, apart._environment(folder), limit_s)

    def prepare(self) -> None:
        """Begin to load what every run needs, while this process goes on."""
        with self._staged() as folder:
            prepare(folder, self._environment(folder))

    def run_eval(
        self,
        mode: str,
        cases: list[str],
        on_result: OnResult | None = None,
        on_activity: Callable[[str], None] | None = None,
    ) -> ProcessResult:
        """Run ``python eval.py MODE CASEFILE``.

        on_result gets every result as it is written; on_activity is told now and then what the
        submission is busy with.
        """
        with self._staged() as folder:
            command = [mode, f"../{_write_cases(folder, cases).name}"]
            limit_s = self.options.timeout_s + grace_s

            def look() -> None:
                word = read_activity(folder.parent / _temporary)
                if word and on_activity:
                    on_activity(word)

            told = on_result or (lambda key, value: None)
            return _run(command, folder, self._environment(folder), limit_s, told, look, self.turn)

    def run_in_parts(
        self,
        mode: str,
        cases: list[str],
        parts: int,
        on_result: OnResult,
        on_activity: Callable[[str], None] | None = None,
        at_once: bool = True,
    ) -> ProcessResult:
        """Do ``run_eval`` with several judges, each for a part of the cases. Returns what one judge
        of all cases would have written.

        at_once: whether all begin now; otherwise they begin once the first judge has emulated a
        kernel, as timing needs the machine to itself.
        """
        whole, lock = ProcessResult(exit_code=0, stderr=""), threading.Lock()
        numbers = [list(range(len(cases)))[part::parts] for part in range(parts)]
        may_begin, ended_early = threading.Event(), threading.Event()
        began_s = time.monotonic()
        if at_once:
            may_begin.set()

        def judge(part: int) -> ProcessResult:
            if part:
                may_begin.wait()
            if ended_early.is_set():
                return ProcessResult(exit_code=-1, stderr="")

            def on_part(key: str, value: str) -> bool | None:
                kind, _, name = key.partition(".")
                number, _, name = name.partition(".")
                if number.isdecimal() and int(number) < len(numbers[part]):
                    key = f"{kind}.{numbers[part][int(number)]}.{name}"
                elif key == "check" or key in whole.values:
                    return None
                if name == "emulated":
                    may_begin.set()
                with lock:
                    stops = whole.take(key, value) and on_result(key, value)
                if stops:
                    ended_early.set()
                return stops

            of_part = [cases[number] for number in numbers[part]]
            left_s = max(1.0, self.options.timeout_s - (time.monotonic() - began_s))
            in_time = replace(self, options=replace(self.options, timeout_s=left_s))
            try:
                return in_time.run_eval(mode, of_part, on_part, on_activity)
            finally:
                may_begin.set()

        with side_by_side(parts) as pool:
            try:
                ended = list(pool.map(judge, range(parts)))
            except BaseException:
                ended_early.set()
                raise
        if all("check" in each.values for each in ended):
            whole.values["check"] = min(each.values["check"] for each in ended)
        whole.exit_code = next((each.exit_code for each in ended if each.exit_code), 0)
        whole.killed = any(each.killed for each in ended)
        whole.stderr = "\n".join(each.stderr for each in ended if each.stderr)
        return whole

    def run_comparison(
        self, files: Sequence[bytes], rounds: int, cases: list[str], on_result: OnResult
    ) -> ProcessResult:
        """See ``judge.comparison``. files: the submissions. The time limit
        is that of a round.
        """
        with self._staged() as folder:
            compared = folder.parent / "compared"
            for number, content in enumerate(files):
                (compared / str(number)).mkdir(parents=True)
                (compared / str(number) / "submission.py").write_bytes(content)
            command = ["compare", str(compared), str(rounds), str(_write_cases(folder, cases))]
            return _run(command, folder, self._environment(folder), math.inf, on_result)

    def run_explain(
        self, cases: list[str], instructions: int, wanted: list[str]
    ) -> tuple[ProcessResult, str]:
        """Return how the mode ended, and the JSON that it left; see ``judge.line_costs``."""
        with self._staged() as folder:
            case_file, target = _write_cases(folder, cases), folder.parent / "explained.json"
            command = ["explain", str(instructions), *wanted, str(case_file), str(target)]
            limit_s = self.options.timeout_s + grace_s
            ended = _run(command, folder, self._environment(folder), limit_s)
            return ended, (target.read_text(encoding="utf-8") if target.is_file() else "")

    @contextmanager
    def _staged(self) -> Iterator[Path]:
        """Make a flat folder with the submission and the problem's files.

        A second folder beside it takes temporary files, so that everything a run makes is deleted
        with it.
        """
        if '"' in (place := tempfile.gettempdir()):  # compilers write paths between such marks
            message = f"{place} has a quotation mark in its name"
            raise SetupError(message, "TMPDIR names another one.")
        with _room():
            both = Path(tempfile.mkdtemp(prefix="nvfp4-"))
        folder = both / "flat"
        try:
            with _room():
                folder.mkdir()
                (both / _temporary).mkdir()
                (folder / "submission.py").write_bytes(self.submission)
                for name, content in self.problem.files.items():
                    (folder / name).write_bytes(content)
            yield folder
        finally:
            clear(both)

    def _environment(self, folder: Path) -> dict[str, str]:
        kept_back = ("POPCORN_", "NVFP4_", "PYTHONTRACEMALLOC", *KEPT_BACK)
        environment = {k: v for k, v in os.environ.items() if not k.startswith(kept_back)}
        environment |= package_path() | self.options.as_variable()
        environment["TMPDIR"] = str(folder.parent / _temporary)
        if self.seed is not None:
            environment["POPCORN_SEED"] = str(self.seed)
        number = self.options.device.partition(":")[2]
        if self.options.without_gpu or number:  # an empty one hides every GPU
            environment["CUDA_VISIBLE_DEVICES"] = number
        return environment


def read_activity(folder: Path) -> str | None:
    """Return the activity that was written last in any of the judge's folders below this one."""
    found: dict[int, str] = {}  # by the time of writing
    for scratch in folder.glob("nvfp4-*"):
        with suppress(OSError), open_plain_file(scratch, "activity") as file:
            word = file.read(_longest_activity_bytes).decode("ascii", "replace").strip()
            if _activity.fullmatch(word):
                found[os.fstat(file.fileno()).st_mtime_ns] = word
    return found[max(found)] if found else None


@contextmanager
def _room() -> Iterator[None]:
    """Raise a SetupError if the folder for temporary files is full."""
    try:
        yield
    except OSError as error:
        raise no_room if error.errno in no_room_codes else error from None


def _write_cases(folder: Path, cases: list[str]) -> Path:
    """Write a case file beside the staged folder, which a submission sees; return its path."""
    case_file = folder.parent / "cases.txt"
    case_file.write_text("".join(f"{case}\n" for case in cases), encoding="utf-8")
    return case_file


def _own_frames(stderr: str, submission: Path) -> str:
    """Return a traceback printed by Python without the frames outside the submission."""
    kept, keep = [], True
    for line in stderr.splitlines():
        if line.startswith('  File "'):
            keep = f'"{submission}"' in line
        elif not line.startswith("    "):
            keep = True
        if keep:
            kept.append(line.replace(f"{submission.parent}/", ""))
    return "\n".join(kept)


def _run(
    command: list[str],
    folder: Path,
    environment: dict[str, str],
    timeout_s: float,
    on_result: OnResult | None = None,
    look: Look | None = None,
    turn: AbstractContextManager[object] | None = None,
) -> ProcessResult:
    """Run a judge, with a result pipe if there is ``on_result``; kill it after the time limit.
    turn: see Bot."""
    read_fd, write_fd = os.pipe()
    its_turn = Turn()
    files = {"POPCORN_FD": write_fd} if on_result else {}
    files |= {VARIABLE: its_turn.fd} if turn else {}
    with watched(folder.parent) as watch:  # before the wait for a server that loads torch
        try:
            process = start(command, folder, environment, files)
        finally:
            os.close(write_fd)
        _running.add(process)
        assert process.stderr
        errors = Tail(process.stderr)
        ended = ProcessResult(exit_code=-1, stderr="")
        try:
            watch(process)
            with its_turn:
                try:
                    with turn or nullcontext():
                        its_turn.give()
                        deadline = time.monotonic() + timeout_s
                        wrote_all = ended.take_all(read_fd, deadline, on_result, look)
                    if wrote_all:
                        process.wait(max(0.1, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    ended.killed = True
                finally:
                    if process.poll() is None:
                        end([process], stop_s)  # it may clear away
        finally:
            os.close(read_fd)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            _running.discard(process)
    ended.exit_code = process.wait()
    ended.stderr = visible(errors.text())
    return ended


def stop_running() -> None:
    """Ends every process that another thread waits for; that thread clears away."""
    end([process for process in list(_running) if process.poll() is None], stop_s)


@contextmanager
def side_by_side(count: int) -> Iterator[ThreadPoolExecutor]:
    """Threads for bots; an interrupt or an error ends what they run and starts nothing more."""
    pool = ThreadPoolExecutor(count)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        stop_running()
        raise
    finally:
        pool.shutdown()


def _results(fd: int, deadline: float, look: Look | None = None) -> Iterator[tuple[str, str]]:
    """Yield key and value of every line, until the writer is gone or the time is up."""
    pending = b""
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        while (left_s := deadline - time.monotonic()) > 0:
            if not selector.select(min(left_s, look_s if look else longest_wait_s)):
                if look:
                    look()
                continue
            chunk = os.read(fd, 1 << 16)
            if not chunk:
                return
            *lines, pending = (pending + chunk).split(b"\n")
            pending = pending[:longest_line_bytes]
            for line in lines:
                key, separator, value = line.decode("utf-8", "replace").partition(":")
                if separator:
                    yield visible(key.strip()), visible(value.strip())
