"""The command: what it prints, how it ends, what it leaves behind.

The flows have small cases. Most run in this process, where the judges of all of them are forked
from one server.
"""

import hashlib
import importlib.metadata
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
from bot import case, root
from click.testing import Result
from conftest import right_source, run_python
from jsonschema import Draft202012Validator
from kept import Judge, invoke, refused
from recorded_verdicts import recorded_verdict
from small_cases import small, use_small_cases, with_small_cases

import nvfp4
from nvfp4.cli.display.render import plain_text

timed = pytest.mark.alone  # the judge's own clock must agree with the submission's

Invoke = Callable[..., Result]

sources = {
    "right.py": f"{right_source}\ncustom_kernel = gemv\n",
    "full_range.py": right_source
    + "\ndef custom_kernel(data):\n"
    + "    a, b, *rest = data\n"
    + "    low = [(each.view(torch.uint8) & 15).view(each.dtype) for each in (a, b)]\n"
    + "    return gemv((*low, *rest))\n",
    "unwritten.py": "def custom_kernel(data):\n    return data[6]\n",
    "fails_alone.py": right_source
    + "\ncustom_kernel = gemv\nif __name__ == '__main__':\n    raise SystemExit(3)\n",
    "float32.py": right_source + "\ndef custom_kernel(data):\n    return gemv(data).float()\n",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the submissions."""
    folder = tmp_path_factory.mktemp("folder")
    for name, source in sources.items():
        (folder / name).write_text(source, encoding="utf-8")
    return folder


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Runs a command in this process."""
    monkeypatch.chdir(folder)
    use_small_cases(monkeypatch, **small)
    return invoke


@pytest.fixture(scope="module")
def evaluated(folder: Path) -> dict[str, Any]:
    """A right submission judged with --json and --output; nothing else may be on stdout."""
    words = ("eval", "right.py", "--json", "--output", "verdict.json", "--seed", "7")
    variables = {**os.environ, **with_small_cases(folder, **small)}
    done = run_python("-m", "nvfp4", *words, cwd=folder, env=variables)
    assert done.returncode == 0, done.stderr
    content: dict[str, Any] = json.loads(done.stdout)
    assert json.loads((folder / "verdict.json").read_text()) == content
    return content


@pytest.mark.alone  # a limit of time
def test_help_answers_at_once_and_loads_nothing_heavy() -> None:
    times = []
    for _ in range(3):
        before = os.times()
        done = run_python("-X", "importtime", "-m", "nvfp4", "--help", cwd=root)
        after = os.times()
        used = (after.children_user, after.children_system)
        times.append(sum(used) - before.children_user - before.children_system)
    assert min(times) < 0.3  # of the CPU, which others may use as well
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "click" in loaded
    assert not loaded & {"torch", "cutlass", "yaml", "numpy", "rich", "emulator"}
    assert re.search(r"^  bench\b", done.stdout, re.MULTILINE)


@timed
def test_a_right_submission_passes_with_the_documented_object(
    evaluated: dict[str, Any], folder: Path
) -> None:
    assert evaluated["passed"] is True
    digest = hashlib.sha256((folder / "right.py").read_bytes()).hexdigest()
    assert evaluated["submission"] == {"path": "right.py", "sha256": digest}
    schema = json.loads((root / "docs" / "verdict.schema.json").read_text(encoding="utf-8"))
    Draft202012Validator(schema).validate(evaluated)
    tests = evaluated["tests"]
    assert [(each["spec"], each["inputs"], each["status"]) for each in tests] == [
        (case(m=m, l=2), inputs, "pass") for inputs in ("contest", "full") for m in (128, 256)
    ]
    assert all(each["error_share"] < 1 for each in tests)


@timed
def test_every_benchmark_has_its_statistics_in_microseconds(evaluated: dict[str, Any]) -> None:
    [benchmark] = evaluated["benchmarks"]
    assert benchmark["spec"] == case(256, 512)
    assert [benchmark[each] for each in ("status", "timed", "message")] == ["pass", True, None]
    assert benchmark["bytes"] == 256 * 512 * 9 // 16 + 512 * 9 // 16 + 2 * 256
    assert 0 < benchmark["best_us"] <= benchmark["median_us"] <= benchmark["worst_us"]
    score = evaluated["score"]
    assert score["geomean_us"] == pytest.approx(benchmark["mean_us"])
    assert score["floor_geomean_us"] == pytest.approx(benchmark["floor_us"])
    assert score["sol_geomean_us"] == pytest.approx(benchmark["sol_us"])


@timed
def test_warnings_say_what_happened_and_what_to_do(evaluated: dict[str, Any]) -> None:
    codes = {warning["code"] for warning in evaluated["warnings"]}
    assert "full_range" not in codes
    assert ("cpu_times" in codes) is (evaluated["device"]["kind"] == "cpu")


@pytest.mark.parametrize(
    ("arguments", "exit_code", "tests", "benchmarks", "warning", "words"),
    [
        (
            ("test", "full_range.py"),
            *(0, ["pass", "pass", "fail", "fail"], []),
            *("full_range", "high nibbles are skipped"),
        ),
        (
            ("eval", "unwritten.py"),
            *(1, ["fail"] * 4, [("skipped", False, None)]),
            *(None, "c was not written"),
        ),
        (
            ("test", "fails_alone.py"),
            *(0, ["pass"] * 4, []),
            *("fails_alone", "python submission.py ended with exit code 3"),
        ),
    ],
    ids=["a warning for full-range inputs", "wrong, not benchmarked", "a warning of exit code 3"],
)
def test_a_verdict_has_its_exit_code_its_statuses_and_its_reasons(
    run: Invoke,
    arguments: tuple[str, ...],
    exit_code: int,
    tests: list[str],
    benchmarks: list[Any],
    warning: str | None,
    words: str,
) -> None:
    done = run(*arguments, "--json")
    content = json.loads(done.stdout)
    assert (done.exit_code, content["passed"]) == (exit_code, exit_code == 0), done.output
    assert [test["status"] for test in content["tests"]] == tests
    keys = ("status", "timed", "mean_us")
    assert [tuple(each[key] for key in keys) for each in content["benchmarks"]] == benchmarks
    assert content["score"]["geomean_us"] is None
    assert warning is None or warning in [each["code"] for each in content["warnings"]]
    assert words in done.stdout
    assert "process of its own" not in done.stdout  # what is wrong is so in any


def test_no_color_is_respected_where_colour_is_forced(run: Invoke) -> None:
    forced = run("info", FORCE_COLOR="1")
    plain = run("info", FORCE_COLOR="1", NO_COLOR="1")
    assert plain.exit_code == forced.exit_code == 0, plain.stderr
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", plain.stdout)
    judged = run("test", "right.py", FORCE_COLOR="1")
    assert "\x1b[32mpass" in judged.stdout
    assert "\x1b[?25l" not in judged.stdout  # a pipe has no cursor
    assert len([line for line in judged.stdout.splitlines() if line.startswith("test ")]) == 4


def test_what_only_we_refuse_is_a_finding_and_fails_with_strict(run: Invoke) -> None:
    done = run("test", "float32.py")
    assert done.exit_code == 0, done.stderr
    assert "finding: the output: custom_kernel returned float32" in done.stdout
    strict = run("test", "float32.py", "--strict")
    assert strict.exit_code == 1
    assert "returned float32, which the contest takes for float16 (--strict)" in strict.stdout


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_a_verdict_that_finds_no_room_in_its_file_is_still_shown(judge: Judge) -> None:
    done = judge("test", "-o", "/dev/full", found=recorded_verdict("passed"))
    assert done.exit_code == 2
    assert done.stdout.splitlines()[-1].startswith("passed: 2 tests")
    assert done.stderr.splitlines()[0] == "error: cannot write /dev/full: No space left on device"


@pytest.mark.parametrize("name", ["fault", "passed"])
def test_a_verdict_is_printed_and_written_in_the_format_that_is_asked_for(
    name: str, judge: Judge
) -> None:
    found = recorded_verdict(name)
    done = judge("test", "--json", "-o", "out.TXT", found=found)
    assert done.exit_code == (0 if found.passed else 1), done.output
    shown = json.loads(done.stdout)
    text = Path("out.TXT").read_text()
    assert text == plain_text(found) + "\n"
    assert text.splitlines()[-1].startswith("passed" if found.passed else "failed")
    assert "\x1b" not in text
    for file in ("verdict.json", "verdict"):
        done = judge("test", "-o", file, found=found)
        assert json.loads(Path(file).read_text()) == shown
        assert done.stdout.splitlines()[-1] == text.splitlines()[-1]


before_a_long_word = "report ;tune ;problems add ;test --case ;info --device cuda:;batch --ray x:"
before_a_long_word += ";check --problem ;check --output "


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["eval", "\x1b[2J\npassed: 20.py"], r"error: cannot read \x1b[2J passed: 20.py: No"),
        (["eval", "missing.py"], "cannot read missing.py: No such file or directory"),
        (["eval", "--flush", "fast"], "'fast' is not one of"),
        (["eval", "--device", "tpu"], "'tpu' is not auto"),
        (["eval", "--device", "cuda:x"], "'cuda:x' is not auto"),
        (["eval", "--seed", "-1"], "-1 is not in the range"),
        (["eval", "--output", "nowhere/verdict.json"], "cannot write nowhere/verdict.json"),
        (["bench", "--shape", "128"], "there is no case 128"),
        (["bench", "--shape", "128,100,1"], "k must be a positive multiple of 64"),
        (["bench", "--shape", "0,64,1"], "m and l must be at least 1"),
        (["bench", "--shape", "a,b"], "'a,b' is no case of nvfp4_gemv"),
        (["judge"], "No such command"),
        (["test", "--case", "7x7"], "error: '7x7' is no case of nvfp4_gemv"),
        (["test", "--case", "10"], "error: there is no case 10"),
        *(
            (["check", "--timeout", seconds], "Invalid value for '--timeout'")
            for seconds in ("nan", "inf", "-inf", "0", "1e9", "soon")
        ),
        (["check", "folder"], "folder is a folder, not a file"),
        (["check", "pipe"], "pipe is a pipe, not a file"),
        (["check", "/dev/zero"], "/dev/zero is a device, not a file"),
        (["check", "--output", "pipe"], "pipe is a pipe, not a file"),
        (["check", "missing", "--output", "submission.py"], "submission.py is a submission"),
        (["report", "pipe", "--output", "folder/../pipe"], "pipe is a submission"),
        (["report", "submission.py", "--output", "hard"], "hard is a submission"),
        (["report", "--output", "page.html"], "page.html is a submission"),
        (["selftest", "--list", "--json"], "--list and --json exclude each other"),
        (["tune", "folder"], "folder is a folder, not a file"),
        (["problems", "del"], "for '[add]': 'del' is not 'add'"),
        (["problems", "add", ""], "Name the folder to add"),
        (["log", "-n", "9" * 20], "is not in the range"),
        *((f"{words}{'9' * 5000}".split(), "rror: ") for words in before_a_long_word.split(";")),
        (["tune", "--device", "cpu"], "only a GPU can say what is fast"),
        (["tune", "--shape", "64,100"], "'64,100' is no case of nvfp4_gemv"),
    ],
)
def test_wrong_usage_ends_with_2_and_one_reason(arguments: list[str], why: str, cwd: Path) -> None:
    (cwd / "submission.py").write_text(sources["unwritten.py"])
    (cwd / "folder").mkdir()
    os.link("submission.py", "hard")
    (cwd / "page.html").symlink_to("submission.py")
    os.mkfifo("pipe")
    output = refused(*arguments)
    assert why in output
    assert "Traceback" not in output


def test_the_version_is_known_where_nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> NoReturn:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert invoke("--version").output == f"nvfp4, version {nvfp4.__version__}\n"
