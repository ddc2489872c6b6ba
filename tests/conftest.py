"""Fixtures shared by the tests of the judge and the command."""

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from bot import Bot, root
from click.testing import Result
from hypothesis import settings
from kept import Judge, invoke

from nvfp4.capture.cuda.toolchain import MissingToolchain, Toolchain, find_toolchain
from nvfp4.cli import invocation as judging
from nvfp4.cli.history.database import History
from nvfp4.cli.judging import processes
from nvfp4.cli.verdict import Verdict
from nvfp4.judge.protocol import ResultPipe
from nvfp4.records.launch import ListedMemory
from nvfp4.records.processes import ForkServer
from nvfp4.sandbox import isolation, workers
from nvfp4.sandbox.caches import trusted_variables

if TYPE_CHECKING:
    import torch

    from nvfp4.emulation import Emulation
    from nvfp4.emulator.errors import EmulatorError
    from nvfp4.records.launch import Launch, Memory

# No test writes to the history of whoever runs it.
os.environ["NVFP4_NO_LOG"] = "1"

# The tensors of the tests are small: on a busy machine threads would wait for each other only.
# Torch reads this when it is imported, which takes long and nothing above does.
os.environ["OMP_NUM_THREADS"] = "1"

# Executors and the processes of the tests compile the emulator's loops once for all of them.
os.environ.update(trusted_variables())

settings.register_profile("default", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("default")

_paths = (str(root), os.environ.get("PYTHONPATH", ""))

with_the_judge = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, _paths))}
"""An environment in which the judge's modules can be imported."""

alone = ("-m", "nvfp4.judge", "alone", "submission.py")
"""What Python runs for a submission by itself."""

submissions = Path(__file__).resolve().parent / "submissions"

right_source = (submissions / "right.py").read_text(encoding="utf-8")
"""Defines gemv(data), which is right, and needs a custom_kernel."""

torch_source = (root / "nvfp4/selftest/honest/chunked_torch.py").read_text(encoding="utf-8")
"""A whole submission in plain torch."""


def run_python(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run Python with the judge's modules on its path; options are those of subprocess.run."""
    environment = {**os.environ, "PYTHONPATH": with_the_judge["PYTHONPATH"]}
    usual = {"env": environment, "capture_output": True, "text": True, "timeout": 300}
    return subprocess.run([sys.executable, *arguments], **{**usual, **options})


def start_python(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    """The same, not waiting for its end; options are those of subprocess.Popen."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    usual = {"env": with_the_judge, "text": True, **pipes}
    return subprocess.Popen([sys.executable, *arguments], **{**usual, **options})


def cache_below(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compilers' caches of a test's own, with the machine code of executors, which takes long."""
    machine_code = Path(trusted_variables()["NUMBA_CACHE_DIR"])
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    trusted = folder / "nvfp4" / "trusted"
    trusted.mkdir(parents=True)
    (trusted / machine_code.name).symlink_to(machine_code)


compile_loops = """
import gc, os, pathlib, sys
from nvfp4.executor import machine_code
gc.disable()
folder, others = pathlib.Path(os.environ.get("NUMBA_CACHE_DIR", "")), pathlib.Path(sys.argv[1])
machine_code.load(folder)
machine_code.load_simulation(folder)
machine_code._compile(folder, others.read_text().splitlines())
"""


def pytest_configure(config: pytest.Config) -> None:
    """Compile the emulator's loops in the background before several workers would: the usual ones,
    and those of loops.txt, which many tests need besides."""
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        command = [sys.executable, "-c", compile_loops, str(Path(__file__).with_name("loops.txt"))]
        subprocess.Popen(command, env=with_the_judge)


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """Two more than there are cores: half of its time, a test waits for processes it started, and
    these for each other."""
    return (yield) + 2


LONGEST = (
    *("test_verdicts", "test_first_builds", "test_whole_submissions", "test_stop", "test_broken"),
    *("test_bot", "test_every_command", "test_compiled_verdicts", "test_kernels"),
    *("test_emulated_gpu", "test_batch_processes", "test_nvcc", "test_check"),
    *("test_ladder", "test_problems", "test_batch_ray", "test_wheel", "test_workers"),
    *("test_caches", "test_cli", "test_isolation", "test_compare", "test_batch_places"),
    *("test_pace", "test_forged_times", "test_cuda_runtime_calls", "test_image_headers"),
    *("test_headers_of_torch", "test_diagnosis", "test_kernels_in_ptx", "test_fuzz"),
)
"""Files that take ten seconds and more, the longest first."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files come first, so that no worker is left alone with one in the end."""
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.stem, len(LONGEST)))


def pytest_collection_finish() -> None:
    """Searches for garbage and for tensors leave out what is there before the first test."""
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests of a device skip themselves where it is not there."""
    import torch

    on_cuda = torch.cuda.is_available()
    if item.get_closest_marker("gpu") and not on_cuda:
        pytest.skip("needs a CUDA device")
    if item.get_closest_marker("blackwell") and not (
        on_cuda and torch.cuda.get_device_capability()[0] >= 10
    ):
        pytest.skip("needs a Blackwell device")


@pytest.fixture(scope="session", autouse=True)
def one_server_of_judges() -> Iterator[None]:
    """Judgements of a process fork from one server, which has loaded what any of them needs. Those
    that import Triton have one of their own: beside CuTe DSL, it writes to stderr at the end."""
    packages = processes._packages

    def of_most(folder: Path) -> tuple[str, ...]:
        found = packages(folder)
        return found if "triton" in found else ("cutlass", "setuptools.command.build_ext")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "_packages", of_most)
        yield


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path | bytes], Bot]:
    """Stages a submission for the bot: a path or the source."""
    return lambda submission: Bot.stage(tmp_path_factory.mktemp("bot") / "flat", submission)


@pytest.fixture(scope="session")
def honest(stage: Callable[[Path | bytes], Bot]) -> Bot:
    """The repository's own submission, staged."""
    return stage(root / "submission.py")


def processes_naming(text: str) -> list[str]:
    """Command lines and folders of all processes that run and have ``text`` in them (Linux)."""
    lines = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            lines.append(f"{command} in {(path / 'cwd').readlink()}/")
    return [line for line in lines if text in line]


def is_below(folder: Path, name: str) -> bool:
    """Whether a file of that name is below a folder, parts of which may vanish meanwhile."""
    return any(name in names for _, _, names in os.walk(folder))


@pytest.fixture(scope="module")
def server_of_executors() -> Iterator[None]:
    """Executors are forked from a server, as a judge's are, and start in a tenth of the time."""
    isolation.adopt_orphans()
    with pytest.MonkeyPatch.context() as patch, workers.start_server_of_executors() as connection:
        patch.setattr(workers, "_executors", [ForkServer(connection)])
        yield


class Recorder:
    """A result pipe that keeps what is written."""

    def __init__(self) -> None:
        self._read_fd, write_fd = os.pipe()
        # What would block a judge for ever is lost here, so that a test fails and does not hang.
        os.set_blocking(write_fd, False)
        self.pipe = ResultPipe(write_fd)

    def raw(self) -> bytes:
        """Everything written; nothing can be written afterwards."""
        self.pipe._file.close()
        chunks = []
        while chunk := os.read(self._read_fd, 1 << 16):
            chunks.append(chunk)
        return b"".join(chunks)

    def lines(self) -> list[str]:
        return self.raw().decode().splitlines()

    def values(self) -> dict[str, str]:
        return dict(line.split(": ", 1) for line in self.lines())

    def close(self) -> None:
        os.close(self._read_fd)


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    """A result pipe that keeps what is written."""
    made = Recorder()
    yield made
    made.close()


@pytest.fixture(scope="module")
def prepared() -> None:
    """What processes that fork from this one need is imported and compiled here."""
    from judged import prepare

    prepare()


@pytest.fixture(scope="session")
def toolchain() -> Toolchain:
    """What compiles CUDA C++ here; skips where there is none."""
    try:
        return find_toolchain()
    except MissingToolchain as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def emulated(toolchain: Toolchain) -> "Iterator[Emulation]":
    """The stand-in device; skips where there is no nvcc, or a real CUDA device."""
    import torch

    from nvfp4 import emulation

    if torch.cuda.is_available():
        pytest.skip("there is a real CUDA device")
    with emulation.install_stand_in() as installed:
        yield installed


@pytest.fixture
def emulation() -> "Iterator[Emulation]":
    """Runs what CuTe DSL launches in this process."""
    pytest.importorskip("cutlass")
    from nvfp4.emulation import install

    with install() as active:
        yield active


@pytest.fixture
def tensor(emulated: "Emulation") -> "torch.Tensor":
    emulated.launches.clear()
    import torch

    return torch.zeros(32, device="cuda")


@contextmanager
def intercept(
    run: "Callable[[Launch], None]", arch: str = "sm_100a", memory: "Memory | None" = None
) -> Iterator[None]:
    """Send every launch of CuTe DSL in the with block to `run`."""
    from nvfp4.capture import cutedsl

    stop = cutedsl.start(run, arch, memory)
    try:
        yield
    finally:
        stop()


def run_listed(launch: "Launch") -> None:
    """Emulate a launch on all memory that a search finds."""
    from nvfp4 import emulator

    *_, known = launch.memory.known(), *launch.memory.search()
    emulator.run(replace(launch, memory=ListedMemory(known, launch.memory.freed())))


def declared(source: str, functions: list[str]) -> str:
    """Declarations of functions of CUDA C++, by the first line of each."""
    heads = [line.partition(" {")[0] for line in source.splitlines() if " {" in line]
    return "\n".join(f"{each};" for each in heads if any(f" {name}(" in each for name in functions))


def users_line(error: "EmulatorError") -> tuple[str, int] | None:
    """The file and the line of the user's that a fault is blamed on."""
    source = error.where.source if error.where else None
    users = source.users() if source else None
    return (Path(users.file).name, users.line) if users else None


@pytest.fixture
def cwd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A test's own folder, empty, in which the test runs."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's own caches, which are empty; the folder is not there yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    return tmp_path / "caches" / "nvfp4"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's data folder with the history switched on; the file of the history."""
    monkeypatch.delenv("NVFP4_NO_LOG")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data" / "nvfp4" / "history.sqlite3"


@pytest.fixture
def history(data: Path) -> History:
    """An empty history, that of the commands."""
    return History(data)


@pytest.fixture
def judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Judge:
    """Runs a command on a file whose verdict is the given one."""

    def run(command: str, *arguments: str, found: Verdict) -> Result:
        def assess(bot: object, plan: object, verdict: Verdict, observer: object) -> None:
            own = {"submission": verdict.submission, "problem_sha256": verdict.problem_sha256}
            vars(verdict).update(vars(found) | own)

        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(judging, "assess", assess)
        (tmp_path / "mine.py").write_text("def custom_kernel(data):\n    return data[6]\n")
        return invoke(command, "mine.py", *arguments)

    return run
