"""Machine code of the emulator's loops: trusted code compiles what executors begin with."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numba
import pytest
from conftest import with_the_judge

from nvfp4.emulator import loops
from nvfp4.executor.machine_code import compile_line, compiled_since
from nvfp4.judge import executor
from nvfp4.judge.executor import Executor
from nvfp4.judge.submission_process import SubmissionProcess
from nvfp4.records.options import Options
from nvfp4.sandbox.caches import cache_variables

GATHER = "nvfp4.emulator.state.native.gather"


@pytest.fixture
def trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    executor._TrustedCode.end()  # one that an earlier test's executor has started
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    return tmp_path / "caches" / "nvfp4" / "trusted" / "numba_cache_dir"


@pytest.fixture
def folders(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Where each executor that is started keeps machine code; it runs nothing."""
    found: list[Path] = []
    start = subprocess.Popen

    def started(command: list[str], env: dict[str, str], **given: Any) -> subprocess.Popen[bytes]:
        found.append(Path(env["NUMBA_CACHE_DIR"]))
        return start([sys.executable, "-c", ""], env=env, **given)

    monkeypatch.setattr("subprocess.Popen", started)
    return found


def test_what_an_executor_leaves_reaches_no_other(trusted: Path, folders: list[Path]) -> None:
    trusted.mkdir(parents=True)
    (trusted / "code").write_text("ours")
    for _ in range(2):
        begun = Executor()
        begun.start()
        assert [path.name for path in folders[-1].iterdir()] == ["code"]
        assert (folders[-1] / "code").read_text() == "ours"
        (folders[-1] / "code").write_text("poison")
        (folders[-1] / "poison").touch()
        begun.stop()
    assert [path.name for path in trusted.iterdir()] == ["code"]
    assert not any(folder.exists() for folder in folders)


def test_trusted_code_compiles_what_executors_were_missing(trusted: Path) -> None:
    lines = [
        "",
        "os.system uint64[1]",
        f"{GATHER} uint64[1] Path",
        f"{GATHER} uint64[1] uint8",
        f"{GATHER} uint64[1] uint8[2]",
    ]
    ended = subprocess.run(
        [sys.executable, "-m", "nvfp4.executor.machine_code"],
        env={**with_the_judge, "NUMBA_CACHE_DIR": str(trusted)},
        input="\n".join(lines),
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0
    names = [path.name.split("-")[0] for path in trusted.glob("*/*.nbc")]
    assert names == ["native.gather"]


def test_the_judge_has_compiled_what_an_executor_tells(
    trusted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "_fill_s", 120.0)
    for name in ("importlib", "numba"):  # a submission may have left them in the judge's folder
        (tmp_path / f"{name}.py").write_text("raise SystemExit")
    monkeypatch.chdir(tmp_path)
    for itemsize in (8, 16):
        executor._TrustedCode.add([f"{GATHER} uint64[1] uint{itemsize}[2]", "\ud800"])
    executor._TrustedCode.end()
    assert len(list(trusted.glob("*/*.nbc"))) == 2


def test_no_process_follows_a_link_in_a_submission_s_cache_before_it_is_confined(
    trusted: Path, tmp_path: Path
) -> None:
    submission, outside = tmp_path / "submission.py", tmp_path / "outside"
    submission.write_text("def custom_kernel(data):\n    return data[6]\n")
    outside.mkdir()
    Path(cache_variables(submission, tmp_path)["NUMBA_CACHE_DIR"]).symlink_to(outside)
    with SubmissionProcess(submission, Options()) as process:
        process.load(120)
    assert list(outside.iterdir()) == []


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder without machine code, which loops are kept in."""
    folder = tmp_path / "fresh"
    with monkeypatch.context() as changed:
        changed.setattr(numba.config, "CACHE_DIR", str(folder))
        loops.cache_anew()
        yield folder
    loops.cache_anew()


def test_after_a_fork_loops_are_kept_in_the_process_s_own_folder(fresh: Path) -> None:
    line = f"{GATHER} uint64[1] int64[3]"  # nobody has compiled that
    number = len(loops.COMPILED)
    compile_line(line)
    assert compiled_since(number) == [line]
    assert len(list(fresh.glob("*/native.gather*.nbc"))) == 1
    assert compiled_since(len(loops.COMPILED)) == []
