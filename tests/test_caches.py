"""Compilers' caches: one for each submission, old ones deleted."""

import fcntl
import importlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bot import root
from conftest import alone, cache_below, run_python, with_the_judge

from nvfp4.cli.history.database import History, HistoryError
from nvfp4.emulator.loops import LOOPS
from nvfp4.executor import machine_code
from nvfp4.judge.submission_process import SubmissionProcess
from nvfp4.model import multiprocessor
from nvfp4.records.files import clear
from nvfp4.records.options import Options
from nvfp4.records.processes import caches_home
from nvfp4.sandbox import caches as sandbox_caches
from nvfp4.sandbox.caches import cache_variables, keep_missed, prune, trim
from nvfp4.sandbox.machine import size_bytes


def variables(text: str, folder: Path) -> dict[str, str]:
    (folder / "submission.py").write_text(text)
    return cache_variables(folder / "submission.py", folder)


def test_each_submission_has_a_cache_of_its_own(caches: Path, tmp_path: Path) -> None:
    one, other = variables("a = 1\n", tmp_path), variables("a = 2\n", tmp_path)
    assert set(one) == set(other) > {"XDG_CACHE_HOME", "NUMBA_CACHE_DIR", "TMPDIR"}
    assert one["TMPDIR"] == other["TMPDIR"] == str(tmp_path)
    assert one["XDG_CACHE_HOME"] != other["XDG_CACHE_HOME"]
    for each in (one, other):
        folder = each.pop("XDG_CACHE_HOME")
        del each["TMPDIR"]
        assert Path(folder).is_dir()
        assert all(path.startswith(f"{folder}/") for path in each.values())
    assert variables("a = 1\n", tmp_path)["NUMBA_CACHE_DIR"] == one["NUMBA_CACHE_DIR"]


def test_caches_are_closed_to_other_users(caches: Path, tmp_path: Path) -> None:
    variables("a = 1\n", tmp_path)
    assert caches.stat().st_mode & 0o777 == 0o700
    caches.chmod(0o755)
    variables("a = 1\n", tmp_path)
    assert caches.stat().st_mode & 0o777 == 0o700, "older ones were open"


def test_a_cache_begins_with_what_trusted_code_has_compiled(caches: Path, tmp_path: Path) -> None:
    (caches / "trusted" / "nvfp4-cuda").mkdir(parents=True)
    (caches / "trusted" / "nvfp4-cuda" / "object").write_text("code")
    copy = Path(variables("a = 1\n", tmp_path)["XDG_CACHE_HOME"], "nvfp4-cuda", "object")
    copy.write_text("other code")
    assert (caches / "trusted" / "nvfp4-cuda" / "object").read_text() == "code"
    other = Path(variables("a = 2\n", tmp_path)["XDG_CACHE_HOME"], "nvfp4-cuda", "object")
    assert other.read_text() == "code"


def test_trusted_code_is_built_without_what_lies_in_the_judge_s_folder(
    cwd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cwd / "hashlib.py").write_text("open('imported', 'w').close()\nraise SystemExit\n")
    monkeypatch.setenv("PATH", "")  # there is no compiler
    sandbox_caches._build_trusted(cwd / "trusted")
    assert not (cwd / "imported").exists()


def test_where_no_cache_can_be_made_the_scratch_folder_has_it(caches: Path, tmp_path: Path) -> None:
    caches.parent.write_text("no folder")
    assert variables("a = 1\n", tmp_path)["XDG_CACHE_HOME"] == str(tmp_path / "cache")


def test_a_submission_writes_its_own_cache_and_no_other(caches: Path, tmp_path: Path) -> None:
    other = Path(variables("a = 1\n", tmp_path)["XDG_CACHE_HOME"])
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "submission.py").write_text(
        "import os\n"
        "open(os.environ['XDG_CACHE_HOME'] + '/own', 'w').close()\n"
        "try:\n"
        f"    open({str(other / 'poison')!r}, 'w').close()\n"
        "except OSError:\n"
        "    print('refused')\n"
    )
    ended = run_python(*alone, cwd=folder)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "refused\n", "")
    assert list(other.iterdir()) == []
    assert [path.name for path in (caches / "submissions").glob("*/own")] == ["own"]


@pytest.mark.parametrize(
    ("then", "shown"),
    [
        (lambda cache: (cache / "new").write_text("draw"), {"index": 1, "old": 1}),
        (lambda cache: (cache / "old").unlink(), {}),
        (lambda cache: (cache / "old").write_text("draw"), {}),
        (lambda cache: os.utime(cache / "old", (1, 1)), {}),
        (lambda cache: (cache / "numba").rename(cache / "moved"), {}),
        (lambda cache: [(cache / "old").unlink(), (cache / "old").symlink_to("numba/index")], {}),
    ],
    ids=["added", "deleted", "written", "dated", "moved", "linked"],
)
def test_a_fresh_process_gets_the_cache_from_before_the_judgement_or_a_new_one(
    caches: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    then: Callable[[Path], Any],
    shown: dict[str, float],
) -> None:
    (caches / "trusted").mkdir(parents=True)
    cache, secret = Path(variables("a = 1\n", tmp_path)["XDG_CACHE_HOME"]), tmp_path / "secret"
    (caches / "trusted" / "object").write_text("code")
    secret.write_text("the user's")
    for path in (cache / "numba" / "index", cache / "old"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(path.name)
        os.utime(path, (1, 1))
    (cache / "link").symlink_to(secret)
    os.mkfifo(cache / "pipe")
    monkeypatch.setattr(sandbox_caches, "_BEGAN_S", time.time())
    variables("a = 1\n", tmp_path)
    time.sleep(0.02)  # the system's clock of files has steps
    then(cache)
    (earlier,) = sandbox_caches.earlier_cache(variables("a = 1\n", tmp_path), tmp_path).values()
    files = [path for path in Path(earlier).rglob("*") if path.is_file()]
    assert {path.name: path.stat().st_mtime for path in files if path.name != "object"} == shown
    assert len(files) == (len(shown) or 1), "a new cache begins with the object"


def make(folder: Path, nbytes: int, age_s: float) -> Path:
    folder.mkdir(parents=True)
    (folder / "file").write_bytes(bytes(nbytes))
    os.utime(folder, (time.time() - age_s,) * 2)
    return folder


def test_old_caches_and_those_that_are_too_much_are_deleted(tmp_path: Path) -> None:
    new, second, third = (make(tmp_path / f"{i}", 1_000_000, 10.0 * i) for i in range(3))
    old = make(tmp_path / "old", 1, 1000.0)
    prune(tmp_path, 500.0, 2_500_000)
    assert [path.exists() for path in (new, second, third, old)] == [True, True, False, False]
    prune(tmp_path, 500.0, 10)
    assert [path.exists() for path in (new, second)] == [True, False], "the newest is in use"
    assert 1_000_000 <= size_bytes(tmp_path) < 1_200_000


def test_a_cache_that_has_grown_too_large_is_not_kept(
    caches: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox_caches, "kept_each_bytes", 100_000)
    folder = Path(variables("a = 1\n", tmp_path)["XDG_CACHE_HOME"])
    (folder / "small").write_bytes(bytes(10_000))
    trim(folder)
    assert (folder / "small").exists()
    (folder / "large").write_bytes(bytes(200_000))
    variables("a = 1\n", tmp_path)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("depth", [100, 2000])
def test_folders_that_are_nested_too_deep_are_deleted_and_stop_nobody(
    caches: Path, tmp_path: Path, depth: int
) -> None:
    deep = Path(variables("a = 1\n", tmp_path)["XDG_CACHE_HOME"])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(deep)
        for _ in range(depth):
            os.mkdir("d" * 20)
            os.chdir("d" * 20)
        Path("file").write_text("deep")
    assert size_bytes(deep) > 1 << 60
    variables("a = 2\n", tmp_path)
    trim(deep)
    assert not deep.exists()


def test_the_folder_of_the_judgement_stays_whatever_others_take_or_date(tmp_path: Path) -> None:
    others = [make(tmp_path / f"{i}", 100_000, age_s) for i, age_s in enumerate((0.0, 0.0, -1e9))]
    own = make(tmp_path / "own", 1_000, 10.0)
    prune(tmp_path, 500.0, 50_000, own)
    assert [path.exists() for path in (*others, own)] == [False, False, False, True]


def test_a_folder_that_nobody_may_list_is_deleted(caches: Path, tmp_path: Path) -> None:
    folder = Path(variables("a = 1\n", tmp_path)["XDG_CACHE_HOME"])
    (folder / "locked").mkdir()
    (folder / "locked" / "file").write_bytes(bytes(10_000))
    (folder / "locked").chmod(0)
    prune(folder.parent, kept_s := -1.0, 1 << 30)
    assert kept_s < 0 and folder.exists(), "the newest is in use"
    clear(folder)
    assert not folder.exists()


def test_a_wait_for_the_lock_has_a_limit_and_says_so(
    caches: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(sandbox_caches, "lock_s", 0.2)
    variables("a = 1\n", tmp_path)
    with open(caches / "submissions" / "lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert variables("a = 2\n", tmp_path)["XDG_CACHE_HOME"] == str(tmp_path / "cache")
    said = capsys.readouterr().err
    assert said.startswith("nvfp4: another process has held the lock")
    assert said.count("\n") == 1


# Machine code of the emulator's loops: executors load it before they know of a submission.

GATHER = "nvfp4.emulator.state.native.gather"


@pytest.fixture
def trusted(caches: Path) -> Path:
    return caches / "trusted" / "numba_cache_dir"


def missed_by_an_executor(folder: Path, line: str) -> list[str]:
    """What a process has compiled for this line after it has loaded all but the usual loops."""
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from nvfp4.emulator.loops import COMPILED\n"
        "from nvfp4.executor import machine_code\n"
        "machine_code.USUAL = ''\n"
        "machine_code.load(Path(sys.argv[1]))\n"
        "machine_code.keep_no_more()\n"
        "number = len(COMPILED)\n"
        "machine_code.compile_line(sys.argv[2])\n"
        "print(*machine_code.compiled_since(number), sep='\\n', end='')\n"
    )
    variables = {"PYTHONPATH": with_the_judge["PYTHONPATH"], "NUMBA_CACHE_DIR": str(folder)}
    found = run_python("-c", code, str(folder), line, env={**os.environ, **variables}, check=True)
    return found.stdout.splitlines()


def compiled_in(folder: Path) -> list[str]:
    return sorted(path.name.split("-")[0] for path in folder.glob("*/*.nbc"))


def test_what_an_executor_was_missing_the_next_one_compiles_for_all(trusted: Path) -> None:
    line = f"{GATHER} uint64[1] uint8[2]"
    keep_missed([])
    assert missed_by_an_executor(trusted, line) != []
    assert compiled_in(trusted) == [], "it ran what a submission handed over"
    keep_missed([line, "", "os.system uint64[1]", f"{GATHER} uint64[1] Path", f"{GATHER} uint8"])
    assert missed_by_an_executor(trusted, line) == []
    assert compiled_in(trusted) == ["native.gather"]
    assert (trusted / "missed.txt").read_text().split("\n") == [line, ""], "others cost time"


def compiled_ahead() -> list[str]:
    lines = machine_code.lines_of(machine_code.USUAL, "nvfp4.emulator")
    return [*lines, *machine_code.lines_of(machine_code.SIMULATION, "nvfp4.model")]


def test_loops_that_are_compiled_ahead_are_those_that_are_called() -> None:
    """Another number of parameters would compile what nobody calls, and the rest twice."""
    of_tests = (root / "tests" / "loops.txt").read_text().splitlines()
    for name, *given in map(str.split, [*compiled_ahead(), *of_tests]):
        importlib.import_module(name.rpartition(".")[0])
        assert LOOPS[name].py_func.__code__.co_argcount == len(given), name
    lines = machine_code.lines_of(machine_code.SIMULATION, "nvfp4.model")
    assert {line.split()[0] for line in lines} == {
        f"{multiprocessor.__name__}.{name}" for name in ("simulate", "memory_cycles")
    } & set(LOOPS)


@pytest.mark.corpus
def test_an_eval_of_our_submission_needs_no_more_than_the_usual_loops(trusted: Path) -> None:
    run_python("-m", "nvfp4", "eval", str(root / "submission.py"), check=True)
    file = trusted / "missed.txt"  # a slow machine may not have had the time for all of them
    assert not file.exists() or {*file.read_text().splitlines()} <= {*compiled_ahead()}


def test_what_executors_tell_is_kept_once_and_takes_little(trusted: Path) -> None:
    for _ in range(3):
        keep_missed(["one uint8[1]", "two\ud800"])
    file = trusted / "missed.txt"
    assert file.read_text() == "one uint8[1]\ntwo?\n"
    for number in range(20):
        keep_missed([f"{number} " + "x" * 10_000])
    assert file.stat().st_size < 1 << 16


def test_no_process_follows_a_link_in_a_submission_s_cache_before_it_is_confined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache_below(tmp_path / "caches", monkeypatch)
    submission, outside = tmp_path / "submission.py", tmp_path / "outside"
    submission.write_text("def custom_kernel(data):\n    return data[6]\n")
    outside.mkdir()
    Path(cache_variables(submission, tmp_path)["NUMBA_CACHE_DIR"]).symlink_to(outside)
    with SubmissionProcess(submission, Options()) as process:
        process.load(120)
    assert list(outside.iterdir()) == []


def test_a_relative_name_of_the_folder_of_caches_counts_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert caches_home() == Path.home() / ".cache"


def test_nobody_waits_for_pipes_in_the_place_of_files(tmp_path: Path) -> None:
    for name in ("lock", sandbox_caches.MISSED_LOOPS, "history.sqlite3-journal"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "history.sqlite3").touch()
    with pytest.raises(OSError, match="No such device"), sandbox_caches.locked(tmp_path / "lock"):
        pass
    machine_code.compile_missed(tmp_path)
    with pytest.raises(HistoryError, match="journal is no file"):
        History(tmp_path / "history.sqlite3").entries()
