"""`nvfp4 batch` as a process: verdicts of the real judge, and what is left however it ends."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from bot import root
from conftest import is_below, processes_naming, right_source, run_python, start_python
from kept import invoke
from small_cases import small, use_small_cases, with_small_cases
from started import ENDLESS, wait_until, wait_until_gone

sources = {
    "a_right.py": f"{right_source}\ncustom_kernel = gemv\n",
    "b_syntax.py": "def custom_kernel(:\n",
    "c_unwritten.py": "def custom_kernel(data):\n    return data[6]\n",
    "d_unwritten.py": "def custom_kernel(data):\n    return data[6]\n",
    "e_unreadable.py": None,
}


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Those of commands with small cases."""
    return {**os.environ, **with_small_cases(tmp_path_factory.mktemp("customized"), **small)}


def command(*arguments: str) -> list[str]:
    """A command on the CPU."""
    return ["-m", "nvfp4", *arguments, "--device", "cpu"]


def lines_of(out: Path) -> dict[str, Any]:
    """By the name of the file; each has one."""
    text = out.read_text(encoding="utf-8")
    assert text.endswith("\n") or not text
    lines = [json.loads(line) for line in text.splitlines()]
    found = {Path(line["submission"]["path"]).name: line for line in lines}
    assert len(found) == len(lines)
    return found


def test_lines_are_what_eval_prints(
    variables: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "kernels"
    folder.mkdir()
    for name, source in sources.items():
        if source is None:
            (folder / name).symlink_to("nowhere")
        else:
            (folder / name).write_text(source)
    out = tmp_path / "out.jsonl"
    batch = command("batch", str(folder), "--jsonl", str(out), "--stop")
    done = run_python(*batch, env=variables, cwd=folder)
    assert done.returncode == 1, done.stderr
    assert done.stderr == ""
    found = lines_of(out)
    assert set(found) == set(sources)
    passed = {name: line["passed"] for name, line in found.items() if line["passed"]}
    assert passed == {"a_right.py": True}
    assert found["b_syntax.py"]["mistake"]["file"] == "b_syntax.py"
    assert found["d_unwritten.py"]["same_as"] == str(folder / "c_unwritten.py")
    assert found["e_unreadable.py"]["error"]["code"] == "setup.unreadable"
    statuses = [test["status"] for test in found["c_unwritten.py"]["tests"]]
    assert statuses == ["fail", "skipped", "skipped", "skipped"]

    use_small_cases(monkeypatch, **small)
    monkeypatch.chdir(folder)
    alone = invoke(*("eval", str(folder / "c_unwritten.py"), "--json", "--stop", "--device", "cpu"))
    verdict = json.loads(alone.stdout)
    line = {name: found["c_unwritten.py"][name] for name in verdict}
    for each in (verdict, line, *verdict["tests"], *line["tests"]):
        each.pop("elapsed_s", None)
    assert line == verdict


class Batch:
    """A batch of files of one syntax error each, and one without end that comes fourth."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.scratch, self.out = folder / "scratch", folder / "out.jsonl"
        self.scratch.mkdir()
        (folder / "kernels").mkdir()
        for number in range(6):
            (folder / "kernels" / f"{number}.py").write_text(f"def custom_kernel(: # {number}\n")
        (folder / "kernels" / "3.py").write_text(ENDLESS)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """One submission at a time."""
        kernels, out = str(self.folder / "kernels"), str(self.out)
        started = command("batch", kernels, "--jsonl", out, "--jobs", "1", *arguments)
        variables = {**os.environ, "TMPDIR": str(self.scratch)}
        return start_python(*started, cwd=root, env=variables, start_new_session=True)

    def started(self) -> subprocess.Popen[str]:
        """The same, when the one without end runs."""
        process = self.start()
        wait_until(lambda: is_below(self.scratch, "started") or process.poll() is not None, process)
        assert process.poll() is None, process.communicate()
        assert list(lines_of(self.out)) == ["0.py", "1.py", "2.py"]
        return process

    def wait_until_gone(self) -> None:
        """Until neither a process nor a folder is left."""
        wait_until_gone(self.scratch, limit_s=100)
        wait_until(lambda: not processes_naming(f"{self.folder}/"), "processes are left")


@pytest.fixture
def batch(tmp_path: Path) -> Batch:
    return Batch(tmp_path)


def test_a_signal_keeps_what_was_judged_and_leaves_no_process(batch: Batch) -> None:
    process = batch.started()
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM
    assert errors == ""
    *_, last = output.splitlines()
    assert last.startswith("interrupted: 0 passed, 3 failed, in ")
    assert last.endswith(f"; 3 files left, which --resume judges: {batch.out}")
    assert list(lines_of(batch.out)) == ["0.py", "1.py", "2.py"]
    batch.wait_until_gone()


def test_a_killed_batch_leaves_no_process_and_goes_on(batch: Batch) -> None:
    process = batch.started()
    process.kill()
    process.wait()
    assert process.stdout
    assert process.stderr
    process.stdout.close()
    process.stderr.close()
    batch.wait_until_gone()
    before = batch.out.read_text()
    with batch.out.open("a") as file:
        file.write(before[:200])
    process = batch.start("--resume", "--limit-s", "3")
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (1, "")
    assert batch.out.read_text().startswith(before)
    found = lines_of(batch.out)
    assert list(found) == [f"{number}.py" for number in range(6)]
    assert found["3.py"]["error"]["message"] == "it was not judged within 3 s"
    assert "6 files: 0 passed, 5 failed, 1 unclear" in output
    batch.wait_until_gone()
