"""`nvfp4 batch`: what is judged, what is known already, and what the file holds."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from batches import no_options, verdict_of
from bot import root
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from nvfp4.cli.batch import lines as batch_lines
from nvfp4.cli.batch.eval_process import Candidate, EvalProcesses, Stopped, find_files
from nvfp4.cli.batch.lines import BatchFile, batch_codes, failure_of, line_of
from nvfp4.cli.errors import error_object
from nvfp4.cli.main import main

schema = json.loads((root / "docs" / "verdict.schema.json").read_text(encoding="utf-8"))


class Fake:
    """Stands for the processes: notes whom it judges. interrupted_at: the file at which the user
    stops the batch. Files that say "crash" crash the judge.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, interrupted_at: str = "") -> None:
        self.judged: list[str] = []
        self.interrupted_at, self.interrupted = interrupted_at, False
        monkeypatch.setattr(EvalProcesses, "_judge", self._judge)

    def _judge(
        self, candidate: Candidate, device: str, environment: Mapping[str, str], in_turn: object
    ) -> dict[str, Any]:
        if candidate.name == self.interrupted_at:
            self.interrupted = True
            raise KeyboardInterrupt
        if self.interrupted:
            raise Stopped
        self.judged.append(candidate.name)
        if candidate.content.startswith(b"crash"):
            raise OSError(12, "Cannot allocate memory")
        return verdict_of(candidate.content, device)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that commands run in, with kernels in it."""
    monkeypatch.chdir(tmp_path)
    contents = {
        "kernels/a.py": "passes",
        "kernels/b.py": "wrong",
        "kernels/deep/a.py": "passes",
        "kernels/deep/c.py": "mistaken",
        "kernels/.hidden/d.py": "passes too",
        "kernels/notes.txt": "passes",
    }
    for name, text in contents.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def run(*arguments: str) -> tuple[int, str]:
    """The exit code of a batch of the folder kernels into out.jsonl, and its output."""
    command = ["batch", "kernels", "--jsonl", "out.jsonl", "--device", "cpu", *arguments]
    ended = CliRunner().invoke(main, command)
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


def test_equal_files_are_judged_once_and_each_has_its_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = Fake(monkeypatch)
    code, output = run("--jobs", "1")
    assert code == 1
    assert fake.judged == ["a.py", "b.py", "c.py"]
    by_path = {line["submission"]["path"]: line for line in lines()}
    assert set(by_path) == {
        "kernels/a.py",
        "kernels/b.py",
        "kernels/deep/a.py",
        "kernels/deep/c.py",
    }
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


def test_all_passed_is_exit_code_0(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Fake(monkeypatch)
    (folder / "kernels/b.py").unlink()
    (folder / "kernels/deep/c.py").unlink()
    assert run()[0] == 0


def test_a_broken_submission_is_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Fake(monkeypatch)
    (folder / "kernels/b.py").write_text("crash")
    os.mkfifo(folder / "kernels/e.py")
    (folder / "kernels/f.py").symlink_to("nowhere")
    code, output = run()
    assert code == 1
    codes = {line["submission"]["path"]: (failure_of(line) or [None])[0] for line in lines()}
    assert codes == {
        "kernels/a.py": None,
        "kernels/b.py": "batch.crashed",
        "kernels/deep/a.py": None,
        "kernels/deep/c.py": "mistake.syntax",
        "kernels/e.py": "setup",
        "kernels/f.py": "setup.unreadable",
    }
    assert {line["passed"] for line in lines() if "error" in line} == {False}
    assert "nvfp4 eval could not be run: Cannot allocate memory" in output


def test_an_interrupt_keeps_what_was_judged_and_resume_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Fake(monkeypatch, interrupted_at="b.py")
    code, output = run("--jobs", "1")
    assert code == 130
    assert "interrupted: 2 passed, 0 failed" in output
    assert paths() == ["kernels/a.py", "kernels/deep/a.py"]
    fake = Fake(monkeypatch)
    code, output = run("--resume")
    assert (code, fake.judged) == (1, ["b.py", "c.py"])
    assert len(paths()) == len(set(paths())) == 4
    assert output.splitlines()[-1].startswith("4 files: 2 passed, 2 failed")


def test_resume_drops_an_incomplete_last_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Fake(monkeypatch)
    run("--jobs", "1")
    whole = Path("out.jsonl").read_bytes()
    kept = whole.splitlines(keepends=True)
    Path("out.jsonl").write_bytes(b"".join(kept[:-1]) + kept[-1][:-1])
    fake = Fake(monkeypatch)
    run("--resume")
    assert fake.judged == ["c.py"]
    assert Path("out.jsonl").read_bytes().splitlines()[:3] == whole.splitlines()[:3]
    assert len(set(paths())) == 4


def test_resume_judges_what_is_another_file_or_judged_otherwise(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = Fake(monkeypatch)
    run("--jobs", "1")
    (folder / "kernels/deep/c.py").write_text("passes now")
    (folder / "kernels/copy.py").write_text("passes")
    (folder / "kernels/g.py").write_text("wrong")
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
    assert fake.judged == ["a.py", "b.py", "c.py"]


def test_resume_judges_again_what_has_an_error_but_for_the_same_limit(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code_of = {"b.py": "batch.limit", "c.py": "batch.crashed"}
    fake = Fake(monkeypatch)

    def fails(candidate: Candidate, *where: Any) -> dict[str, Any]:
        if candidate.name not in code_of:
            return verdict_of(candidate.content)
        return error_object(code_of[candidate.name], "why", "what to do")

    monkeypatch.setattr(EvalProcesses, "_judge", staticmethod(fails))
    run("--limit-s", "5")
    fake = Fake(monkeypatch)
    run("--resume", "--limit-s", "5")
    assert fake.judged == ["c.py"]
    run("--resume", "--limit-s", "10")
    assert fake.judged == ["c.py", "b.py"]
    assert len(paths()) == len(set(paths())) == 4


def test_a_file_with_results_is_not_written_to_unless_they_are_to_go_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Fake(monkeypatch)
    Path("out.jsonl").touch()
    assert run()[0] == 1
    before = Path("out.jsonl").read_bytes()
    code, output = run()
    assert code == 2
    assert output.startswith(
        "error: out.jsonl is not empty\nhint: If a batch has written it, --res"
    )
    assert Path("out.jsonl").read_bytes() == before


@pytest.mark.parametrize("text", ["{}", "[]", "null", "\0", '{"passed": true, "submission": {}}'])
def test_a_file_of_something_else_is_refused(folder: Path, text: str) -> None:
    Path("out.jsonl").write_text(f"{text}\n")
    code, output = run("--resume")
    assert code == 2
    assert output.startswith("error: line 1 of out.jsonl is none of a batch")
    assert Path("out.jsonl").read_text() == f"{text}\n"


@pytest.mark.parametrize("text", ["my notes", "[1]", '{"passed": true}'])
def test_a_last_line_of_something_else_is_kept(folder: Path, text: str) -> None:
    Path("out.jsonl").write_text(text)
    code, output = run("--resume")
    assert code == 2
    assert output.startswith("error: line 1 of out.jsonl is none of a batch")
    assert Path("out.jsonl").read_text() == text


def test_what_is_unclear_has_not_failed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Fake(monkeypatch)
    (folder / "kernels/b.py").write_text("unclear")
    (folder / "kernels/deep/c.py").write_text("passes")
    code, output = run()
    assert code == 3
    assert "unclear  kernels/b.py  not_judged.not_emulated" in output
    assert "3 passed, 0 failed, 1 unclear" in output
    assert "Failures" not in output


def test_what_had_no_time_has_not_failed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Fake(monkeypatch)

    def over(candidate: Candidate, *where: Any) -> dict[str, Any]:
        return error_object("batch.limit", "it was not judged within 5 s", "--limit-s allows more.")

    monkeypatch.setattr(EvalProcesses, "_judge", staticmethod(over))
    code, output = run("--limit-s", "5")
    assert code == 3
    assert "0 failed, 4 unclear" in output


def test_one_batch_at_a_time_writes_to_a_file(folder: Path) -> None:
    file = BatchFile(Path("out.jsonl"), resume=True)
    assert run("--resume")[1].startswith("error: another batch writes to out.jsonl")
    line = line_of(verdict_of(b"passes"), Path("x.py"), "0", None, no_options)
    file.append([line, line])
    file.close()
    file = BatchFile(Path("out.jsonl"), resume=True)
    file.drop(lambda each: True)
    assert run("--resume")[1].startswith("error: another batch writes to out.jsonl")
    file.close()
    again = BatchFile(Path("out.jsonl"), resume=False)  # nothing is left of it
    assert run("--resume")[1].startswith("error: another batch writes to out.jsonl")
    again.close()


def test_a_full_disk_leaves_whole_lines(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Fake(monkeypatch)
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


def test_a_name_that_does_not_exist_is_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = Fake(monkeypatch)
    code, output = run("kernels/none.py", "--jobs", "1")
    assert code == 1
    assert fake.judged == ["a.py", "b.py", "c.py"]
    codes = {line["submission"]["path"]: (failure_of(line) or [None])[0] for line in lines()}
    assert codes["kernels/none.py"] == "setup.unreadable"
    assert "5 files: 2 passed, 3 failed" in output


@pytest.mark.parametrize("name", ["none", "kernels/empty"])
def test_there_must_be_something_to_judge(folder: Path, name: str) -> None:
    (folder / "kernels/empty").mkdir()
    ended = CliRunner().invoke(main, ["batch", name, "--jsonl", "out.jsonl"])
    assert ended.exit_code == 2
    assert not Path("out.jsonl").exists()


def test_files_are_found_once_in_any_depth(folder: Path) -> None:
    found = find_files([Path("kernels/b.py"), Path("kernels"), Path("./kernels/notes.txt")])
    assert list(map(str, found)) == [
        "kernels/b.py",
        "kernels/a.py",
        "kernels/deep/a.py",
        "kernels/deep/c.py",
        "kernels/notes.txt",
    ]


def test_every_code_of_a_batch_has_a_meaning() -> None:
    text = (root / "nvfp4" / "cli" / "batch" / "eval_process.py").read_text(encoding="utf-8")
    text += (root / "nvfp4" / "cli" / "batch" / "on_ray.py").read_text(encoding="utf-8")
    assert set(re.findall(r'"(batch\.\w+)"', text)) == set(batch_codes)
