"""`nvfp4 batch`: what is judged, what is known already, and what the file holds."""

import io
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from batches import no_options, verdict_of
from bot import root
from jsonschema import Draft202012Validator
from kept import invoke, refused
from problem_folder import make_problem
from rich.console import Console

from nvfp4.cli.batch import lines as batch_lines
from nvfp4.cli.batch import progress
from nvfp4.cli.batch.eval_process import Candidate, EvalProcesses, Stopped, find_files
from nvfp4.cli.batch.lines import BatchFile, batch_codes, failure_of, line_of
from nvfp4.cli.batch.progress import Tally, figures, result_line, summarise
from nvfp4.cli.errors import error_object
from nvfp4.cli.history import judgements
from nvfp4.cli.history.database import History

schema = json.loads((root / "docs" / "verdict.schema.json").read_text(encoding="utf-8"))


named = '{"passed": 1, "submission": {"path": "a", "sha256": "b"}, "same_as": "", "options": {}}'


class Fake:
    """Stands for the processes: notes whom it judges. interrupted_at: the file at which the user
    stops the batch. Files that say "crash" crash the judge, "late" ones take longer than they may.
    """

    def __init__(self) -> None:
        self.judged: list[str] = []
        self.interrupted_at, self.interrupted = "", False

    def judge(self, candidate: Candidate, device: str, *_: object) -> dict[str, Any]:
        if candidate.name == self.interrupted_at:
            self.interrupted = True
            raise KeyboardInterrupt
        if self.interrupted:
            raise Stopped
        self.judged.append(candidate.name)
        if candidate.content.startswith(b"crash"):
            raise OSError(12, "Cannot allocate memory")
        if candidate.content.startswith(b"late"):
            return error_object("batch.limit", "it was not judged in time", "--limit-s allows more")
        return verdict_of(candidate.content, device)


@pytest.fixture(autouse=True)
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """What judges in the folder that commands run in, which has kernels."""
    made = Fake()
    monkeypatch.setattr(EvalProcesses, "_judge", made.judge)
    monkeypatch.chdir(tmp_path)
    contents = {
        **{"kernels/a.py": "passes", "kernels/b.py": "wrong"},
        **{"kernels/deep/a.py": "passes", "kernels/deep/c.py": "mistaken"},
        **{"kernels/.hidden/d.py": "passes too", "kernels/notes.txt": "passes"},
    }
    for name, text in contents.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return made


def run(*arguments: str, into: tuple[str, ...] = ("--jsonl", "out.jsonl")) -> tuple[int, str]:
    """The exit code of a batch of the folder kernels into out.jsonl, and its output."""
    ended = invoke("batch", "kernels", *into, "--device", "cpu", *arguments)
    assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
    return ended.exit_code, ended.output


def lines() -> list[dict[str, Any]]:
    """What out.jsonl holds, which must be whole lines that are as the schema says."""
    text = Path("out.jsonl").read_text()
    assert text.endswith("\n") or not text
    found = [json.loads(line) for line in text.splitlines()]
    validator = Draft202012Validator(schema)
    for line in found:
        validator.validate(line)
    return found


def paths() -> list[str]:
    """Of the lines."""
    return [line["submission"]["path"] for line in lines()]


def test_equal_files_are_judged_once_and_each_has_its_line(fake: Fake) -> None:
    code, output = run("--jobs", "1")
    assert code == 1
    assert fake.judged == ["a.py", "b.py", "c.py"]
    by_path = {line["submission"]["path"]: line for line in lines()}
    names = {name.removeprefix("kernels/") for name in by_path}
    assert names == {"a.py", "b.py", "deep/a.py", "deep/c.py"}
    one, other = by_path["kernels/a.py"], by_path["kernels/deep/a.py"]
    assert (one["same_as"], other["same_as"]) == (None, "kernels/a.py")
    assert one["submission"]["sha256"] == other["submission"]["sha256"]
    same = set(one) - {"submission", "same_as"}
    assert {name: one[name] for name in same} == {name: other[name] for name in same}
    own = {"submission", "elapsed_s"}
    judged = {name: each for name, each in verdict_of(b"passes").items() if name not in own}
    assert {name: one[name] for name in judged} == judged
    assert "pass  kernels/deep/a.py  same as kernels/a.py\n" in output
    assert "fail  kernels/b.py  output.mismatch: 3 of 128 elements are wrong  in " in output
    assert output.splitlines()[-1].startswith("4 files: 2 passed, 2 failed, in ")


def test_a_broken_submission_is_one_line() -> None:
    Path("kernels/b.py").write_text("crash")
    os.mkfifo("kernels/e.py")
    Path("kernels/f.py").symlink_to("nowhere")
    code, output = run("kernels/none.py")
    assert code == 1
    codes = {line["submission"]["path"]: (failure_of(line) or [None])[0] for line in lines()}
    assert codes.pop("kernels/a.py") is codes.pop("kernels/deep/a.py") is None
    assert (codes.pop("kernels/b.py"), codes.pop("kernels/e.py")) == ("batch.crashed", "setup")
    assert codes.pop("kernels/deep/c.py") == "mistake.syntax"
    assert codes == dict.fromkeys(("kernels/f.py", "kernels/none.py"), "setup.unreadable")
    assert {line["passed"] for line in lines() if "error" in line} == {False}
    assert "nvfp4 eval could not be run: Cannot allocate memory" in output
    assert "7 files: 2 passed, 4 failed, 1 unclear" in output


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the history."""
    data = tmp_path_factory.mktemp("data")
    monkeypatch.setenv("XDG_DATA_HOME", str(data))
    monkeypatch.setenv("NVFP4_NO_LOG", "0")
    return data


@pytest.mark.parametrize(
    ("texts", "code", "outcomes", "last"),
    [
        ((), 1, {"a": "passed", "b": "failed", "c": "failed"}, "4 files: 2 passed, 2 failed, in"),
        (("passes", "passes"), 0, {"a": "passed"}, "4 files: 4 passed, 0 failed, in"),
        (
            *(("crash", "unclear"), 3, {"a": "passed", "c": "unclear"}),
            "4 files: 2 passed, 0 failed, 2 unclear, in",
        ),
        (
            *(("unclear", "passes"), 3, {"a": "passed", "b": "unclear"}),
            "4 files: 3 passed, 0 failed, 1 unclear, in",
        ),
        (("late", "crash"), 3, {"a": "passed"}, "4 files: 2 passed, 0 failed, 2 unclear, in"),
    ],
)
def test_without_a_file_each_verdict_goes_into_the_history_and_nothing_else_is_written(
    texts: tuple[str, ...], code: int, outcomes: dict[str, str], last: str, kept: Path
) -> None:
    for name, content in zip(("b.py", "deep/c.py"), texts, strict=False):
        Path("kernels", name).write_text(content)
    before = sorted(Path().rglob("*"))
    found, output = run(into=())
    assert (found, sorted(Path().rglob("*"))) == (code, before)
    assert ("Failures" in output) is (code == 1)
    told = "unclear  kernels/b.py  not_judged.not_emulated: its own process says: not emulated"
    assert (told in output) is ("unclear" in texts[:1])
    assert [each for each in kept.rglob("*") if each.is_file()] == [kept / "nvfp4/history.sqlite3"]
    for name in ("a.py", "b.py", "deep/a.py", "deep/c.py"):
        assert f"  kernels/{name}  " in output, "each file has its row"
    assert re.fullmatch(re.escape(last) + r" [\d.]+ s", output.splitlines()[-1])
    entries = History().entries()
    assert {Path(each.path).stem: each.outcome for each in entries} == outcomes
    assert len(entries) == len(outcomes), "equal files are judged once"
    assert run()[0] == code, "with a file of results, too"
    for each in entries:
        record = History().find(each.id)
        own = {"submission", "elapsed_s"}
        judged = {**verdict_of(record.content), "submission": {"path": each.path}}
        assert record.content == Path(each.path).read_bytes()
        wanted = {name: value for name, value in judged.items() if name not in own}
        assert {name: record.verdict_object[name] for name in wanted} == wanted
        assert record.verdict_object["submission"]["path"] == each.path
        assert record.verdict_object["elapsed_s"] == each.elapsed_s is not None


@pytest.mark.parametrize("off", ["a file of results", "NVFP4_NO_LOG"])
def test_a_batch_keeps_nothing_in_the_history_where_it_is_not_to(
    off: str, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if off == "NVFP4_NO_LOG":
        monkeypatch.setenv("NVFP4_NO_LOG", "1")
        assert run(into=())[0] == 1
    else:
        assert run()[0] == 1
    assert not list(kept.rglob("*"))


def test_a_batch_that_keeps_its_verdicts_in_the_history_may_be_interrupted(
    fake: Fake, kept: Path
) -> None:
    fake.interrupted_at = "b.py"
    code, output = run("--jobs", "1", into=())
    assert code == 130
    assert re.search(r"interrupted: 2 passed, 0 failed, in [\d.]+ s; 2 files left\n$", output)
    assert [each.path for each in History().entries()] == ["kernels/a.py"]


def test_only_a_file_of_results_can_be_gone_on_with(kept: Path) -> None:
    assert run("--resume", into=()) == (
        2,
        "error: --resume needs --jsonl\n"
        "hint: Name the file of the batch that is to go on: --jsonl OUT --resume.\n",
    )
    assert not list(kept.rglob("*"))


def test_an_interrupt_keeps_what_was_judged_and_resume_goes_on(fake: Fake) -> None:
    fake.interrupted_at = "b.py"
    code, output = run("--jobs", "1")
    assert code == 130
    assert "interrupted: 2 passed, 0 failed" in output
    assert paths() == ["kernels/a.py", "kernels/deep/a.py"]
    fake.interrupted_at, fake.interrupted, fake.judged = "", False, []
    code, output = run("--resume")
    assert (code, fake.judged) == (1, ["b.py", "c.py"])
    assert len(paths()) == len(set(paths())) == 4
    assert output.splitlines()[-1].startswith("4 files: 2 passed, 2 failed")


def test_resume_drops_an_incomplete_last_line(fake: Fake) -> None:
    run("--jobs", "1")
    whole = Path("out.jsonl").read_bytes()
    kept = whole.splitlines(keepends=True)
    Path("out.jsonl").write_bytes(whole[:-1] + b"\n\n")  # as editors do
    fake.judged.clear()
    run("--resume")
    Path("out.jsonl").write_bytes(whole[:-1])
    run("--resume")
    assert fake.judged == []
    assert Path("out.jsonl").read_bytes() == whole
    Path("out.jsonl").write_bytes(b"".join(kept[:-1]) + kept[-1][:-2])
    run("--resume")
    assert fake.judged == ["c.py"]
    assert Path("out.jsonl").read_bytes().splitlines()[:3] == whole.splitlines()[:3]
    assert len(set(paths())) == 4


def test_resume_judges_what_is_another_file_or_judged_otherwise(fake: Fake) -> None:
    run("--jobs", "1")
    Path("kernels/deep/c.py").write_text("passes now")
    Path("kernels/copy.py").write_text("passes")
    Path("kernels/g.py").write_text("wrong")
    fake.judged.clear()
    run("--resume", "--limit-s", "60")  # what was judged in time is known with any limit
    assert fake.judged == ["c.py"]
    assert {line["submission"]["path"]: line["same_as"] for line in lines()} == {
        "kernels/a.py": None,
        "kernels/b.py": None,
        "kernels/copy.py": "kernels/a.py",
        "kernels/deep/a.py": "kernels/a.py",
        "kernels/deep/c.py": None,
        "kernels/g.py": "kernels/b.py",
    }
    assert len(lines()) == 7  # the verdict of the old c.py stays
    fake.judged.clear()
    code, output = run("--resume", "--limit-s", "60")
    assert (code, fake.judged) == (1, [])
    assert output.splitlines()[-1].startswith("6 files: 4 passed, 2 failed")
    run("--resume", "--strict", "--jobs", "1")
    known = Path("out.jsonl").read_text().replace('"problem_sha256":null', '"problem_sha256":"0"')
    Path("out.jsonl").write_text(known)  # as if by another problem of that name
    run("--resume", "--strict", "--jobs", "1")
    own = make_problem(Path())
    for changed in ("#", "#", "##"):
        (own / "reference.py").write_text(changed)
        run("--resume", "--strict", "--jobs", "1", "--problem", str(own))
    assert fake.judged == ["a.py", "b.py", "c.py"] * 4
    assert lines()[-1]["options"]["problem"] == os.path.abspath("problems/mine/scaled_py")


def test_resume_judges_again_what_has_an_error_but_for_the_same_limit(fake: Fake) -> None:
    Path("kernels/b.py").write_text("late")
    Path("kernels/deep/c.py").write_text("crash")
    run("--limit-s", "5")
    fake.judged.clear()
    run("--resume", "--limit-s", "5")
    run("--resume", "--limit-s", "10")
    assert fake.judged == ["c.py", "b.py", "c.py"]
    Path("kernels/deep/c.py").write_text("passes now")
    run("--resume", "--limit-s", "10")
    last = {line["submission"]["path"]: line for line in lines()}
    assert len(lines()) == 8, "a line with an error stays, and the last of a path counts"
    assert [line["passed"] for line in last.values()].count(True) == 3
    fake.judged.clear()
    assert (run("--resume", "--limit-s", "10")[0], fake.judged) == (3, [])


def test_a_file_with_results_is_not_written_to_unless_they_are_to_go_on() -> None:
    Path("out.jsonl").touch()
    assert run()[0] == 1
    before = Path("out.jsonl").read_bytes()
    code, output = run()
    assert code == 2
    assert output.startswith("error: out.jsonl is not empty\nhint: If a batch has written it, -")
    assert Path("out.jsonl").read_bytes() == before


foreign = '{"schema":"https://json-schema.org","title":"my settings"}'


@pytest.mark.parametrize("text", ["{}", "[]", "null", "\0", named, foreign, foreign[:-1]])
@pytest.mark.parametrize("end", ["\n", ""], ids=["a line", "an incomplete line"])
def test_a_file_of_something_else_is_refused(text: str, end: str) -> None:
    Path("out.jsonl").write_text(text + end)
    code, output = run("--resume")
    assert code == 2
    assert output.startswith("error: line 1 of out.jsonl is no line of a batch")
    assert Path("out.jsonl").read_text() == text + end


def test_one_batch_at_a_time_writes_to_a_file() -> None:
    file = BatchFile(Path("out.jsonl"), resume=True)
    assert run("--resume")[1].startswith("error: another batch writes to out.jsonl")
    line = line_of(verdict_of(b"passes"), Path("x.py"), "0", None, no_options)
    file.append([line, line])
    file.close()
    Path("out.jsonl").write_text(Path("out.jsonl").read_text() + '{"sch')  # it was killed
    file = BatchFile(Path("out.jsonl"), resume=True)
    assert run("--resume")[1].startswith("error: another batch writes to out.jsonl")
    file.close()
    assert Path("out.jsonl").read_bytes().count(b"\n") == 2
    assert Path("out.jsonl").read_bytes().endswith(b"}\n")


def test_a_full_disk_leaves_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    room = [3000]

    def short(fd: int, data: bytes) -> int:
        written = write(fd, data[: room[0]])
        room[0] -= written
        return written

    monkeypatch.setattr(batch_lines.os, "write", short)
    code, output = run("--jobs", "1")
    assert code == 2
    assert "error: cannot write out.jsonl: No space left on device" in output
    assert lines() == []  # the first content's two lines had no room together
    assert not Path("out.jsonl").read_bytes()


@pytest.mark.parametrize("named", ["none", "kernels/empty", "b --problem no", "b --problem ."])
def test_there_must_be_something_to_judge_and_a_problem(named: str) -> None:
    Path("kernels/empty").mkdir()
    Path("b").touch()
    refused("batch", *named.split(), "--jsonl", "out.jsonl")
    assert not Path("out.jsonl").exists()


def test_files_are_found_once_in_any_depth() -> None:
    found = find_files([Path("kernels/b.py"), Path("kernels"), Path("./kernels/notes.txt")])
    assert all(each.parts[0] == "kernels" for each in found)
    assert [each.name for each in found] == ["b.py", "a.py", "a.py", "c.py", "notes.txt"]


def test_every_code_of_a_batch_has_a_meaning() -> None:
    text = (root / "nvfp4" / "cli" / "batch" / "eval_process.py").read_text(encoding="utf-8")
    text += (root / "nvfp4" / "cli" / "batch" / "on_ray.py").read_text(encoding="utf-8")
    assert set(re.findall(r'"(batch\.\w+)"', text)) == set(batch_codes)


# What `nvfp4 batch` shows: the live table, a line for each file, the summary.


def tally_of(*judged: tuple[str, str]) -> Tally:
    """Of files and their texts for the fake judge, on a GPU; as many again are to come."""
    tally = Tally(2 * len(judged))
    tally.begin(2 * len(judged))
    for path, text in judged:
        tally.judged += 1
        tally.add(line_for(path, verdict_of(text.encode(), "cuda")))
    return tally


def line_for(path: str, verdict: dict[str, Any]) -> dict[str, Any]:
    return line_of(verdict, Path(path), "0", None, no_options)


def summary_of(tally: Tally) -> list[list[str]]:
    """The words of each line."""
    text = shown(lambda console: summarise(console, tally, Path("out.jsonl"), False))
    return [line.split() for line in text.splitlines()]


judged = [("a.py", "31.5"), ("b.py", "25.25"), ("c.py", "wrong"), ("d.py", "mistaken")]
judged.append(("e.py", "wrong"))


def shown(show: Callable[[Console], None], width: int = 80) -> str:
    """What a terminal shows."""
    console = Console(width=width, height=12, force_terminal=True, color_system=None)
    with console.capture() as capture:
        show(console)
    return capture.get()


def test_a_terminal_has_the_figures_below_the_lines() -> None:
    tally = tally_of(*judged)

    def show(console: Console) -> None:
        with progress.shown(console, tally) as show_line:
            show_line(line_for("d.py", verdict_of(b"mistaken")))
        console.print(*figures(tally), sep="\n")

    rows = [line.rstrip() for line in shown(show).splitlines()]
    assert any("fail  d.py  mistake.syntax: invalid syntax" in row for row in rows)
    assert "5 of 10 files: 2 passed, 3 failed; " in rows[-3]
    assert rows[-3].endswith(" left")
    assert rows[-2:] == ["failed: 2 output.mismatch, 1 mistake.syntax", "best: 25.250 us, b.py"]


def test_without_a_gpu_the_summary_ranks_by_predicted_times_then_by_bounds() -> None:
    tally, lines = Tally(2), {}
    bounds = (("a.py", 9.0, 0.0, "B200"), ("b.py", 4.0, 16.0, "H100"), ("c.py", 4.0, 4.0, None))
    for name, memory_us, tensor_us, gpu in bounds:
        verdict = verdict_of(b"passes")
        predicted = {"gpu": gpu, "us": 28.91 if name == "b.py" else 30.0}
        verdict["score"]["predicted"] = predicted if gpu else None
        for each in verdict["benchmarks"]:
            each["emulation"] = {"b200_memory_us": memory_us, "b200_tensor_us": tensor_us}
        verdict["tests"][-1]["unverified"] = "the same inputs each time" if name == "a.py" else None
        verdict["problem"] = "other_v2" if name == "a.py" else "nvfp4_gemv"
        lines[name] = line_for(name, verdict)
        tally.add(lines[name])
    rows = [row[:4] for row in summary_of(tally) if row and row[0].isdigit()]
    assert rows[:3] == [
        ["1", "b.py", "(nvfp4_gemv)", "28.9"],
        ["2", "a.py", "(other_v2)", "(unverified)"],
        ["3", "c.py", "(nvfp4_gemv)", "4.000"],
    ]
    assert "28.9 us predicted for a H100" in result_line(lines["b.py"]).plain
    assert "  by other_v2  unverified" in result_line(lines["a.py"]).plain


def test_the_summary_has_the_fastest_and_the_failures_by_cause() -> None:
    rows = summary_of(tally_of(*judged, *((f"slow{n}.py", "40") for n in range(12))))
    assert ["1", "b.py", "25.250", "79.2%"] in rows
    assert ["2", "a.py", "31.500", "63.5%"] in rows
    assert rows[12][:2] == ["10", "slow5.py"]
    assert rows[13] == []
    assert ["output.mismatch", "2", "c.py"] in rows
    assert ["mistake.syntax", "1", "d.py"] in rows


def test_the_last_benchmark_ranks_where_the_problem_says_so() -> None:
    tally = Tally(2)
    for name, mean_us, last_us in (("a.py", b"60", 25.0), ("b.py", b"30", 40.0)):
        found = verdict_of(mean_us, "cuda")
        found["score"]["ranking_by"], found["benchmarks"][-1]["mean_us"] = "last", last_us
        tally.add(line_for(name, judgements.verdict_of(found).as_json()))
    rows, how = summary_of(tally), "ranked by the last benchmark"
    assert rows[0] == f"The fastest, {how}".split()
    assert ["1", "a.py", "25.000", "80.0%"] in rows
    assert [*map(str, figures(tally))][-1] == f"best, {how}: 25.000 us, a.py"
    assert result_line(tally.timed[1][1]).plain == f"pass  b.py  40.000 us, {how}"


def test_times_of_a_cpu_are_no_ranking() -> None:
    tally = Tally(1)
    verdict = verdict_of(b"30", "cuda")
    verdict["device"]["kind"] = "cpu"
    tally.add(line_for("a.py", verdict))
    assert tally.passed == 1
    assert tally.timed == []


@pytest.mark.parametrize("name", ["\x1b[2J.py", "a\npass  b.py", "[bold]a[/bold].py"])
def test_a_name_is_shown_as_text_on_its_line(name: str) -> None:
    line = line_for(name, verdict_of(b"mistaken"))
    shown = name.replace("\x1b", r"\x1b").replace("\n", r"\n")
    assert result_line(line).plain == f"fail  {shown}  mistake.syntax: invalid syntax"
    tally, console = Tally(1), Console(file=io.StringIO(), width=200)
    tally.add(line)
    summarise(console, tally, Path(name), stopped=False)
    assert console.file.getvalue().count(shown) == 2  # type: ignore[attr-defined]
