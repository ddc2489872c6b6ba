"""The history of judgements: what is kept, listed, shown again and deleted."""

import hashlib
import io
import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bot import case, root
from conftest import right_source, start_python
from kept import Judge, content, invoke, is_error, kept_in, named, refused, succeeds
from recorded_verdicts import (
    every_verdict,
    hostile,
    no_prediction,
    predicted_verdict,
    prediction,
    timed_verdict,
    verdict_with,
)
from rich.console import Console
from screens.verdicts import verdicts

from nvfp4.cli.display.render import is_brief, show_verdict
from nvfp4.cli.errors import json_schema
from nvfp4.cli.history.database import History, HistoryError, recorded, version
from nvfp4.cli.history.judgements import keep, kept_verdict, show_source
from nvfp4.cli.text import visible
from nvfp4.cli.verdict import Submission, Verdict, read_benchmark


def in_words(verdict: Verdict) -> str:
    page = io.StringIO()
    show_verdict(Console(file=page, width=100, highlight=False), verdict)
    return page.getvalue()


@pytest.mark.parametrize("name", every_verdict())
def test_a_verdict_comes_back_as_it_was(history: History, name: str) -> None:
    verdict = named(every_verdict()[name])
    verdict.elapsed_s = 12.5
    record = history.find(kept_in(history, verdict))
    assert record.content == content
    assert record.verdict_object == json.loads(json.dumps(verdict.as_json()))
    again = kept_verdict(record)
    assert again == verdict
    assert in_words(again) == in_words(verdict)


@pytest.mark.parametrize("name", verdicts())
def test_show_prints_what_the_command_printed(data: Path, judge: Judge, name: str) -> None:
    done = judge("bench" if name.startswith("timed") else "eval", found=verdicts()[name])
    heading, shown = invoke("show").output.split("\n", 1)
    assert shown == done.output
    assert heading.startswith("judgement 1: mine.py, ")
    assert invoke("show", "1", COLUMNS="0").output == invoke("show").output


def test_show_has_the_object_of_the_command_and_the_source(data: Path, judge: Judge) -> None:
    done = judge("eval", "--json", found=verdicts()["timed-passed"])
    assert json.loads(invoke("show", "1", "--json").output) == json.loads(done.output)
    kept_in(History(data), named(timed_verdict()))
    assert invoke("show", "2", "--source").stdout_bytes == content
    with redirect_stdout(None):  # as Python does where it is closed
        show_source(History(data).newest())
    assert "a file that nvfp4 keeps" in refused("report", "2", "-o", str(data))


def test_a_mistake_is_kept_too(data: Path, tmp_path: Path, history: History) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def custom_kernel(data:\n")
    done = invoke("test", str(path))
    assert done.exit_code == 1
    assert history.find(1).content == path.read_bytes()
    assert done.output in invoke("show").output
    assert is_brief(kept_verdict(history.find(1)))


@pytest.mark.parametrize(
    ("command", "variable"),
    [
        *(("eval --no-log", "0"), ("test --no-log", "0"), ("bench --no-log", "0")),
        *(("test", "1"), ("check", "0")),
    ],
)
def test_nothing_is_kept_where_the_history_is_off(
    data: Path, judge: Judge, monkeypatch: pytest.MonkeyPatch, command: str, variable: str
) -> None:
    monkeypatch.setenv("NVFP4_NO_LOG", variable)
    found = every_verdict()["passed"]
    found.tests = found.tests[:1]
    assert judge(*command.split(), found=found).exit_code == 0
    assert not data.exists()
    monkeypatch.setenv("NVFP4_NO_LOG", "0")
    judge("test", found=found)
    assert data.exists()


def test_an_interrupt_before_any_result_is_not_kept(history: History) -> None:
    nothing = named(verdicts()["emulated-interrupted"])
    nothing.tests = [replace(test, status="skipped", failure=None) for test in nothing.tests]
    assert keep(nothing, content, history) is None
    assert history.entries() == []
    assert kept_in(history, named(verdicts()["emulated-interrupted"])) == 1
    assert history.entries()[0].outcome == "interrupted"


def test_a_judgement_that_nobody_reads_is_kept(data: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def custom_kernel(data:\n")
    command = f"{sys.executable} -m nvfp4 test mine.py | true"
    environment = {**os.environ, "PYTHONPATH": str(root)}
    subprocess.run(command, shell=True, cwd=tmp_path, env=environment, check=True)
    assert len(History(data).entries()) == 1


def timed(mean_us: float, device: str, flush: str = "contest") -> Verdict:
    """All three benchmarks, each with this mean."""
    verdict = named(verdicts()["timed-passed"])
    values = {"mean": mean_us * 1e3, "median": 1, "std": 1, "err": 1, "best": 1, "worst": 1}
    lines = {f"benchmark.0.{name}": str(value) for name, value in values.items()}
    lines |= {"benchmark.0.runs": "3", "benchmark.0.samples": "1000,2000,3000"}
    verdict.benchmarks = [read_benchmark(lines, 0, each.spec) for each in verdict.benchmarks]
    assert verdict.device
    verdict.device = replace(verdict.device, name=device, flush=flush)
    return verdict


def test_the_log_marks_the_best_on_each_device(history: History) -> None:
    first = timed(20, "H100")
    assert first.benchmarks[0].samples_us == [1.0, 2.0, 3.0]
    failed = timed(5, "B200")
    failed.benchmarks[2] = replace(failed.benchmarks[2], status="fail")
    one_shape = timed(1, "B200")
    one_shape.benchmarks = one_shape.benchmarks[:1]
    emulated = named(verdicts()["emulated-passed"], "other.py")
    clean = timed(9, "B200", "clean")
    all_of_h100 = (first, timed(30, "H100"))
    for verdict in (*all_of_h100, timed(10, "B200"), failed, one_shape, emulated, clean):
        kept_in(history, verdict)
    listed = json.loads(invoke("log", "--json").output)["judgements"]
    assert [each["id"] for each in listed] == [7, 6, 5, 4, 3, 2, 1]
    assert {each["id"] for each in listed if each["best"]} == {1, 3, 7}
    assert listed[0]["geomean_us"] == pytest.approx(9)
    assert listed[1]["bound_us"] > 0
    assert listed[1]["geomean_us"] is None
    assert listed[3]["outcome"] == "failed"
    lines = invoke("log", "-n", "3").output.splitlines()
    assert [line.split()[0] for line in lines[4:7]] == ["7", "6", "5"]
    assert lines[4].split()[6:] == ["9.000", "*", "B200"]
    assert "sm_100a, emulated" in lines[5]
    assert "7168 x 16384 x 1" in lines[6]


def test_the_last_benchmark_ranks_where_the_problem_says_so(history: History) -> None:
    told = [{**prediction, "us": us, "low_us": us, "high_us": us} for us in (80.0, 8.0)]
    predicted, quick = named(predicted_verdict(*told)), timed(50, "H100")
    quick.benchmarks[2] = replace(quick.benchmarks[2], mean_us=5.0)
    kept_in(history, timed(1, "H100"))
    for verdict in (predicted, timed(20, "H100"), quick):
        verdict.ranking_by = "last"
        kept_in(history, verdict)
    assert [each.best for each in history.entries()] == [True, False, False, True]
    assert history.entries()[2].predicted_us == 8.0
    assert "ranked by the last benchmark 8.0 us (8.0 to 8.0)" in in_words(predicted)


def test_the_log_shows_what_a_model_predicts(history: History) -> None:
    on_h100 = {**prediction, "gpu": "H100", "us": 41.0}
    for told in ([prediction, prediction], [on_h100], [prediction, no_prediction]):
        kept_in(history, named(predicted_verdict(*told)))
    kept_in(history, named(timed_verdict()))
    with sqlite3.connect(history.path) as database:
        database.execute("UPDATE judgements SET verdict = '{' WHERE id = 4")
    listed = json.loads(invoke("log", "--json").output)["judgements"]
    assert {each["id"]: (each["predicted_us"], each["predicted_gpu"]) for each in listed} == {
        1: (pytest.approx(28.9), "B200"),
        2: (pytest.approx(41.0), "H100"),
        3: (None, None),
        4: (None, None),
    }
    lines = {line.split()[0]: line for line in invoke("log").output.splitlines() if line}
    assert " 28.9 " in lines["1"]
    assert " 41.0 (H100) " in lines["2"]
    assert "not measured" in invoke("log").output


def test_an_empty_history_says_so(data: Path) -> None:
    assert "no judgement is kept" in invoke("log").output
    assert json.loads(invoke("log", "--json").output) == {"judgements": []}
    assert not data.exists()
    assert "no judgement is kept" in refused("show")


@pytest.mark.parametrize("number", ["7", "99999999999999999999999"])
def test_a_missing_number_is_one_sentence_and_a_hint(history: History, number: str) -> None:
    kept_in(history, named(timed_verdict()))
    error = f"error: no judgement {number} is kept\nhint: nvfp4 log lists those that are.\n"
    assert refused("show", number) == error
    assert json.loads(invoke("show", number, "--json").stdout)["error"]["code"] == "setup.not_kept"


@pytest.mark.parametrize("text", hostile)
def test_nothing_hostile_reaches_the_terminal(history: History, text: str) -> None:
    verdict = verdict_with(text)
    verdict.submission = Submission(text or "mine.py", "0" * 64)
    kept_in(history, verdict)
    for command in ("log", "show"):
        output = invoke(command).output
        assert output == visible(output)
    listing = invoke("log").output
    assert len(listing.splitlines()) == 6, listing
    exact = json.loads(invoke("show", "--json").output)["submission"]["path"]
    assert exact == verdict.submission.path


def test_equal_files_are_stored_once(history: History) -> None:
    numbers = [kept_in(history, named(timed_verdict())) for _ in range(3)]
    with sqlite3.connect(history.path) as database:
        assert database.execute("SELECT count(*) FROM sources").fetchone() == (1,)
    assert history.newest().id == numbers[-1] == 3


def test_a_whole_judgement_has_tests_and_benchmarks(history: History) -> None:
    digest = hashlib.sha256(content).hexdigest()
    assert history.whole(digest, None) is None
    names = ("timed-passed", "emulated-failed", "emulated-interrupted")
    for verdict in (*(verdicts()[name] for name in names), timed_verdict()):
        kept_in(history, named(verdict))
    unjudged = named(verdicts()["emulated-failed"])
    unjudged.tests = [replace(each, status="skipped") for each in unjudged.tests]
    kept_in(history, unjudged)
    unchecked = named(verdicts()["timed-passed"])
    unchecked.checked = False
    kept_in(history, unchecked)
    assert getattr(history.whole(digest, None), "id", None) == 2
    assert history.whole("0" * 64, None) is None


def test_a_number_names_a_judgement_unless_a_file_has_that_name(
    history: History, cwd: Path
) -> None:
    kept_in(history, named(timed_verdict()))
    assert getattr(recorded("1"), "content", None) == content
    assert recorded("mine.py") is None
    with pytest.raises(HistoryError, match="no judgement 2 is kept"):
        recorded("2")
    Path("2").write_text("")
    assert recorded("2") is None


def test_what_is_no_verdict_is_said_in_a_sentence(history: History) -> None:
    whole = json.dumps(named(verdicts()["emulated-passed"]).as_json())
    texts = whole.replace('"status": "pass"', '"status": 7'), whole.replace("m: 7", "m; 7")
    ranked = whole.replace('"ranking_by": "geom"', '"ranking_by": "median"')
    edits = [("verdict", each) for each in ('{"submission": 7}', "{", *texts, ranked)]
    for column, value in (*edits, ("environment", "7"), ("tests", "many"), ("judged_at", 1e300)):
        number = kept_in(history, named(timed_verdict()))
        with sqlite3.connect(history.path) as database:
            database.execute(f"UPDATE judgements SET {column} = ? WHERE id = ?", (value, number))
        assert is_error(refused("show", str(number)))
        succeeds("log")


@pytest.mark.alone  # the judge's own clock must agree with the submission's
def test_shapes_of_ones_own_are_timed_kept_and_shown_again(data: Path, cwd: Path) -> None:
    Path("mine.py").write_text(f"{right_source}\ncustom_kernel = gemv\n", encoding="utf-8")
    done = invoke("bench", "mine.py", "--shape", "64,128,1", "--shape", "200,64,2")
    assert done.exit_code == 0, done.output
    shown = invoke("show").stdout.split("\n", 1)[1]
    assert shown
    assert done.stdout.endswith(shown)
    assert invoke("show", "--source").stdout == Path("mine.py").read_text(encoding="utf-8")
    record: dict[str, Any] = json.loads(invoke("show", "--json").stdout)
    benchmarks = record["benchmarks"]
    assert [each["spec"] for each in benchmarks] == [case(64, 128), case(200, 64, 2)]
    assert record["tests"] == []
    for each in benchmarks:
        assert len(each["samples_us"]) == each["runs"]
        assert min(each["samples_us"]) == pytest.approx(each["best_us"], rel=1e-4)
        assert sum(each["samples_us"]) / each["runs"] == pytest.approx(each["mean_us"], rel=1e-4)
    means = [each["mean_us"] for each in benchmarks]
    assert record["score"]["geomean_us"] == pytest.approx((means[0] * means[1]) ** 0.5)


# The file of the history: many writers, a killed one, and what becomes of a bad file.

writer = """
import hashlib, os, sys
from pathlib import Path
sys.path[:0] = [{tests!r}]
from recorded_verdicts import timed_verdict
from nvfp4.cli.history.database import History
from nvfp4.cli.history.judgements import keep
from nvfp4.cli.verdict import Submission
history, times, size = History(Path(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
for number in range(times):
    text = os.urandom(size)
    verdict = timed_verdict()
    verdict.submission = Submission("mine.py", hashlib.sha256(text).hexdigest())
    assert keep(verdict, text, history)
    print(number, flush=True)
""".format(tests=str(root / "tests"))


@contextmanager
def writing(path: Path, times: int, size: int = 100) -> Iterator[subprocess.Popen[str]]:
    """A process that writes so many judgements once it is told to."""
    arguments = ("-c", writer, str(path), str(times), str(size))
    environment = {**os.environ, "PYTHONPATH": str(root)}
    with start_python(*arguments, stdin=subprocess.PIPE, env=environment) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        yield process


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin
    process.stdin.write("go\n")
    process.stdin.flush()


def test_many_write_at_once(history: History) -> None:
    """The first of them also make the file."""
    with ExitStack() as running:
        processes = [running.enter_context(writing(history.path, 25)) for _ in range(4)]
        for process in processes:
            go(process)
        for process in processes:
            _, errors = process.communicate(timeout=100)
            assert (process.returncode, errors) == (0, "")
    assert sorted(each.id for each in history.entries()) == list(range(1, 101))


def test_a_killed_writer_leaves_a_whole_file(history: History) -> None:
    told = 0
    for attempt in range(4):
        # So large that most of the time goes into writing.
        with writing(history.path, 1000, size=3_000_000) as process:
            go(process)
            assert process.stdout
            process.stdout.readline()
            time.sleep(0.005 * attempt)
            process.send_signal(signal.SIGKILL)
            rest, _ = process.communicate()
        told += 1 + len(rest.splitlines())
    with sqlite3.connect(history.path) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    entries = history.entries()
    assert told <= len(entries) <= told + 4  # one may be kept and not told
    assert all(history.find(each.id).verdict_object["schema"] == json_schema for each in entries)
    assert kept_in(history, named(timed_verdict())) > len(entries)


def make_damaged(path: Path) -> None:
    """The header is right, all pages behind it are not."""
    history = History(path)
    for number in range(9):
        kept_in(history, named(timed_verdict(), text=bytes(number)), bytes(number))
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + b"\xa5" * (len(whole) - 100))


def make_newer(path: Path) -> None:
    kept_in(History(path), named(timed_verdict()))
    with sqlite3.connect(path) as database:
        database.execute(f"PRAGMA user_version = {version + 1}")


def make_foreign(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE bookmarks (url TEXT)")


bad: list[Callable[[Path], object]] = [make_damaged, make_newer, make_foreign, Path.mkdir]
bad.append(lambda path: path.write_bytes(b"this is no database, it only lies there\n" * 99))


@pytest.mark.parametrize("make", bad)
def test_a_bad_file_neither_stops_a_judgement_nor_is_changed(
    data: Path, judge: Judge, make: Callable[[Path], None]
) -> None:
    data.parent.mkdir(parents=True)
    make(data)
    before = None if data.is_dir() else data.read_bytes()
    done = judge("test", found=every_verdict()["passed"])
    assert done.exit_code == 0
    (warning,) = done.stderr.splitlines()
    assert warning.startswith("warning: this judgement is not kept: ")
    assert str(data) in warning
    assert judge("test", "--json", found=every_verdict()["passed"]).exit_code == 0
    assert is_error(refused("log"))
    if before is not None:
        assert data.read_bytes() == before
    assert os.listdir(data.parent) == [data.name]


def test_an_empty_file_becomes_a_history(data: Path, judge: Judge) -> None:
    """As a process leaves it that is killed before it makes the tables."""
    data.parent.mkdir(parents=True)
    data.touch()
    assert "no judgement is kept" in invoke("log").output
    assert judge("test", found=every_verdict()["passed"]).stderr == ""
    assert len(History(data).entries()) == 1


def test_a_folder_that_cannot_be_made_neither(data: Path, judge: Judge) -> None:
    data.parent.parent.write_text("no folder")
    done = judge("test", found=every_verdict()["passed"])
    assert done.exit_code == 0
    assert "not kept" in done.stderr
    assert "no judgement is kept" in invoke("log").output


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_is_read_only_neither(data: Path, judge: Judge) -> None:
    kept_in(History(data), named(timed_verdict()))
    data.chmod(0o400)
    data.parent.chmod(0o500)
    try:
        done = judge("test", found=every_verdict()["passed"])
        assert done.exit_code == 0
        assert "readonly" in done.stderr
        assert len(History(data).entries()) == 1
    finally:
        data.parent.chmod(0o700)


def test_a_full_disk_neither(history: History, capfd: pytest.CaptureFixture[str]) -> None:
    """A limit on the size of files stands for it."""
    kept_in(history, named(timed_verdict()))
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
        assert keep(named(timed_verdict(), text=b"x"), bytes(1_000_000), history) is None
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert len(capfd.readouterr().err.splitlines()) == 1
    assert len(history.entries()) == 1
    assert kept_in(history, named(timed_verdict())) == 2


def test_a_locked_file_is_waited_for_and_then_given_up(
    history: History, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    kept_in(history, named(timed_verdict()))
    monkeypatch.setattr("nvfp4.cli.history.database.busy_s", 0.1)
    with sqlite3.connect(history.path, isolation_level=None) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert keep(named(timed_verdict()), content, history) is None
    assert "locked" in capfd.readouterr().err
