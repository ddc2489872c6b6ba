"""The judge under the contest's bot: folder, pipe, seeds, exit codes, limits."""

import base64
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from bot import Bot, Ended, case, pipe_bytes, problem, root
from conftest import processes_naming, submissions

from nvfp4.records.options import VARIABLE, Options

Stage = Callable[[Path | bytes], Bot]

small = [case(), case(m=200, k=128, l=2, seed=5)]
statistics = ("runs", "mean", "std", "err", "best", "worst")
plain_torch = root / "nvfp4" / "selftest" / "honest" / "chunked_torch.py"
"""It is timed on a CPU, too."""


def hijacked(bot: Bot) -> Bot:
    """With modules beside the judge's files, of which none may be imported."""
    for name in ("torch", "random", "typing_extensions", "sitecustomize", "re", "importlib"):
        (bot.folder / f"{name}.py").write_text(f"raise SystemExit('{name} hijacked')\n")
    for name in ("stats", "json"):
        (bot.folder / name).mkdir()
        (bot.folder / name / "__init__.py").write_text(f"raise SystemExit('{name} hijacked')\n")
    return bot


@pytest.fixture(scope="module")
def wrong(stage: Stage) -> Bot:
    return stage(b"def custom_kernel(data):\n    return data[6]\n")


def test_the_folder_holds_what_task_yml_names_and_nothing_else(stage: Stage) -> None:
    assert {path.name for path in stage(root / "submission.py").folder.iterdir()} == {
        entry["name"] for entry in problem()["files"]
    }


def test_the_submission_runs_by_itself(honest: Bot) -> None:
    ended = honest.run_submission()
    assert (ended.exit_code, ended.stdout, ended.stderr) == (0, b"", "")


def test_without_nvfp4_the_judge_says_what_it_needs(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "from importlib.machinery import PathFinder\n"
        "find = PathFinder.find_spec\n"
        "def find_spec(name, path=None, target=None):\n"
        "    return None if name == 'nvfp4' else find(name, path, target)\n"
        "PathFinder.find_spec = find_spec\n"
    )
    ended = stage(plain_torch).run("test", small, PYTHONPATH=str(tmp_path))
    assert ended.exit_code == 2
    assert ended.stderr == "eval.py needs nvfp4 installed: pip install nvfp4\n"
    assert ended.written == b""


def test_tests_that_pass_end_with_0_and_check_pass_whatever_lies_beside_the_judge(
    stage: Stage,
) -> None:
    tested = hijacked(stage(root / "submission.py")).run("test", small)
    assert tested.exit_code == 0, tested.stderr
    assert tested.values["test-count"] == "2"
    for index, spec in enumerate(small):
        assert tested.values[f"test.{index}.spec"] == spec
        assert tested.values[f"test.{index}.status"] == "pass"
    assert tested.written.decode().splitlines()[-1] == "check: pass"


@pytest.mark.alone  # the judge's own clock must agree with the submission's
@pytest.mark.parametrize("ranked", [False, True])
def test_benchmarks_report_statistics_in_nanoseconds(ranked: bool, stage: Stage) -> None:
    if ranked:
        ended = hijacked(stage(plain_torch)).run("leaderboard", small, secret_seed=42)
    else:
        ended = stage(plain_torch).judge("benchmark", small)
    assert ended.exit_code == 0, ended.stderr
    assert ended.values["benchmark-count"] == "2"
    for index, spec in enumerate(small):
        key = f"benchmark.{index}"
        assert ended.values[f"{key}.spec"] == spec
        runs, mean, std, err, best, worst = (
            float(ended.values[f"{key}.{name}"]) for name in statistics
        )
        assert runs >= 2
        assert runs.is_integer()
        assert 1000 < best <= mean <= worst < 10e9
        assert err == pytest.approx(std / runs**0.5)
        assert f"{key}.status" not in ended.values
    assert ended.values["check"] == "pass"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, so nothing is emulated")
def test_an_emulated_kernel_fails_under_the_bot(stage: Stage) -> None:
    pytest.importorskip("cutlass")
    ended = stage(root / "ladder" / "cute" / "03_block_sum.py").judge("leaderboard", [case()])
    assert ended.exit_code == 112
    assert ended.values["benchmark.0.status"] == "fail"
    assert "there is no GPU here" in ended.values["benchmark.0.error"]
    assert ended.values["check"] == "fail"


def test_a_profile_run_reports_a_table_that_can_be_decoded(stage: Stage) -> None:
    ended = stage(plain_torch).judge("profile", small)
    assert ended.exit_code == 0, ended.stderr
    for index in range(2):
        table = base64.b64decode(ended.values[f"benchmark.{index}.report"]).decode()
        assert "custom_kernel" in table
    assert ended.values["check"] == "pass"
    assert len(ended.written) < pipe_bytes


def test_a_profile_run_under_ncu_calls_once_and_passes(stage: Stage) -> None:
    source = (submissions / "right.py").read_text() + (
        "\nimport os\ncalls = 0\n"
        "def custom_kernel(data):\n"
        "    global calls\n"
        "    calls += 1\n"
        "    assert calls == 1 and os.environ['POPCORN_NCU'] == '1'\n"
        "    return gemv(data)\n"
    )
    ended = stage(source.encode()).judge("profile", small[:1], POPCORN_NCU="1")
    assert ended.exit_code == 0, ended.values
    assert ended.values["benchmark.0.report"] == ""


@pytest.mark.parametrize("mode", ["test", "benchmark", "leaderboard", "profile"])
def test_a_wrong_submission_ends_with_112_in_every_mode(mode: str, wrong: Bot) -> None:
    ended = wrong.judge(mode, small)
    assert ended.exit_code == 112
    key = "test" if mode == "test" else "benchmark"
    for index in range(2):
        assert ended.values[f"{key}.{index}.status"] == "fail"
        assert "elements are wrong" in ended.values[f"{key}.{index}.error"]
    assert ended.values["check"] == "fail"


def test_a_kernel_that_is_right_only_on_the_first_contents_fails_the_leaderboard(
    stage: Stage,
) -> None:
    source = (submissions / "right.py").read_text() + (
        "\nanswers = {}\n"
        "def custom_kernel(data):\n"
        "    key = data[0].data_ptr()\n"
        "    if key not in answers:\n"
        "        answers[key] = gemv(data)\n"
        "    return answers[key]\n"
    )
    ended = stage(source.encode()).judge("leaderboard", small[:1])
    assert ended.exit_code == 112
    assert "elements are wrong" in ended.values["benchmark.0.error"]


def test_a_secret_seed_changes_the_inputs_and_not_the_spec(stage: Stage) -> None:
    """The seed is s + (s + S) (s + S + 1) / 2, so a public run of that seed shows the same."""
    bot = stage(
        b"import torch\n"
        b"def custom_kernel(data):\n"
        b"    raise ValueError(str(data[0].view(torch.uint8).long().sum().item()))\n"
    )
    secret, public = 77, 1111
    combined = public + (public + secret) * (public + secret + 1) // 2
    hidden = bot.judge("test", [case(seed=public)], secret_seed=secret)
    shown = bot.judge("test", [case(seed=public), case(seed=combined)])
    assert hidden.values["test.0.spec"] == shown.values["test.0.spec"] == case(seed=public)
    assert hidden.values["test.0.error"] == shown.values["test.1.error"]
    assert hidden.values["test.0.error"] != shown.values["test.0.error"]
    assert str(combined) not in hidden.written.decode()


@pytest.mark.parametrize(
    ("cases", "why"),
    [(b"m: 128; k: 100; l: 1; seed: 1", "multiple of 64"), (None, "cannot read the case file")],
)
def test_a_bad_case_file_ends_with_113_and_one_sentence(
    cases: bytes | None, why: str, stage: Stage
) -> None:
    ended = stage(root / "submission.py").judge("test", cases)
    assert ended.exit_code == 113
    assert why in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    assert "check" not in ended.values


def test_without_a_pipe_it_ends_with_111(honest: Bot) -> None:
    ended = honest.run_raw(["test", "cases.txt"], fd=False)
    assert (ended.exit_code, len(ended.stderr.splitlines())) == (111, 1)


test = ["test", "cases.txt"]


@pytest.mark.parametrize(
    ("arguments", "environment", "code", "said"),
    [
        *((test, {"POPCORN_FD": fd}, 111, "POPCORN_FD") for fd in ("999", "-1", "pipe", "")),
        *((words, {}, 2, "usage: eval.py ") for words in ([], ["test"], ["best", "cases.txt"])),
        ([*test, "more"], {}, 2, "usage: eval.py "),
        (test, {"POPCORN_SEED": "secret"}, 2, "POPCORN_SEED"),
        (test, {VARIABLE: json.dumps({"device": "tpu"})}, 2, "device"),
    ],
)
def test_a_wrong_call_ends_with_its_code_and_a_sentence(
    arguments: list[str], environment: dict[str, str], code: int, said: str, honest: Bot
) -> None:
    ended = honest.run_raw(arguments, environment=environment)
    assert ended.exit_code == code
    assert said in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    assert ended.written == b""


@pytest.mark.skipif(torch.cuda.is_available(), reason="a real CUDA error needs no pretence")
def test_a_lost_cuda_device_ends_with_110_and_the_next_case_has_a_new_process(stage: Stage) -> None:
    """The worker is made to answer as it does where a CUDA context is lost."""
    source = (submissions / "right.py").read_text() + (
        "\nfrom nvfp4.records.messages import Failed\nfrom nvfp4.worker import runner\n"
        "def custom_kernel(data):\n"
        "    if data[6].shape[0] == 1:\n"
        "        lost = Failed('lost', {'code': 'cuda.error'})\n"
        "        runner.Runner._explain = lambda self, error, loads: lost\n"
        "        raise RuntimeError\n"
        "    return gemv(data)\n"
    )
    ended = stage(source.encode()).judge("test", [case(m=1), case(m=2)])
    assert ended.values["test.0.error"] == "lost"
    assert ended.stderr.strip() == "eval.py: test.0: lost"
    assert ended.values["test.1.status"] == "pass"
    assert ended.exit_code == 110


def test_many_long_failures_do_not_block_on_a_pipe_that_nobody_reads(stage: Stage) -> None:
    source = b"def custom_kernel(data):\n    raise ValueError('x' * 3000)\n"
    ended = stage(source).judge("test", [case(m=1, k=64)] * 100, timeout_s=60)
    assert not ended.killed
    assert ended.exit_code == 112
    assert pipe_bytes // 2 < len(ended.written) < pipe_bytes
    assert any(key.endswith(".dropped") for key in ended.values)
    assert ended.values["check"] == "fail"


def test_a_missing_submission_ends_with_2(stage: Stage) -> None:
    bot = stage(root / "submission.py")
    os.unlink(bot.folder / "submission.py")
    ended = bot.run("test", small)
    assert ended.exit_code == 2
    assert "submission.py" in ended.stderr


# Submissions that must fail do, with the right message, and honest ones pass.


on_cuda = torch.cuda.is_available()

rights = [
    "returns_c", "returns_a_fresh_tensor", "returns_a_strided_tensor", "prints_megabytes",
    "computes_in_threads", "leaves_a_fork_behind", "closes_standard_streams"
]  # fmt: skip

wrongs = {
    "computes_wrong_values": r"^1 of \d+ elements are wrong\n"
    r"  \(m=0, l=0\): got .+, expected .+, allowed error [^\n]+\nwrong: row 0 of batch 0; [^\n]+$",
    "skips_high_nibbles": r"elements are wrong\n(.+\n)+likely cause: high nibbles are skipped$",
    "leaves_c_unwritten": r"\nlikely cause: c was not written: \d+ elements",
    "returns_nan": r"^(\d+) of \1 elements are wrong\n.+ got nan, expected",
    "returns_inf": r"^(\d+) of \1 elements are wrong\n.+ got inf, expected",
    "returns_a_wrong_shape": r"returned shape \[\d+, 2\], expected a float16 tensor \[\d+, 1, 2\]",
    "returns_a_wrong_dtype": r"returned dtype torch\.bool, expected a float16 tensor",
    "returns_a_list": r"^custom_kernel returned a list, expected a float16 tensor",
    "returns_none": r"^custom_kernel returned None, expected .+: return c$",
    "returns_a_subclass": r"^custom_kernel returned a Lazy, expected",
    "returns_a_sparse_tensor": r"(?i)sparse",
    "changes_an_input": r"^custom_kernel changed its input sfb_permuted in place$",
    "raises": r"RuntimeError: .*size",
    "exits": r"^the submission called sys\.exit\(0\)$",
    "exits_at_once": r"^the submission's process ended with exit code 0\nlast words$",
    "crashes": r"^the submission's process was killed by SIGSEGV \(segmentation fault\)\nabout to",
    "is_killed_for_memory": r"^the submission's process was killed by SIGKILL \(killed\)$",
    "allocates_too_much": r"memory",
    "recurses_for_ever": r"RecursionError: maximum recursion depth exceeded",
    "crashes_beside_a_fork": r"^the submission's process ended with exit code 5$",
    "starts_many_processes": r"^the submission started more than 512 processes$",
    "writes_to_the_judge_s_socket": (
        r"^the submission's process sent an answer that nobody asked for$"
    ),
}

# A right submission stands after every wrong one, so that each failure is seen to do no more harm.
gallery = ["returns_c", *(name for each in wrongs for name in (each, "returns_c")), *rights]


def source_of(function: str) -> bytes:
    """A submission whose ``custom_kernel`` is what an expression with ``gallery`` and m names."""
    return f"""
import sys

sys.path.insert(0, {str(submissions)!r})
import gallery


def custom_kernel(data):
    m = data[6].shape[0]
    return ({function})(data)
""".encode()


@pytest.fixture(scope="module")
def staged_gallery(stage: Stage) -> Bot:
    return stage(source_of(f"getattr(gallery, {gallery}[m - 1])"))


@pytest.fixture(scope="module")
def judged(staged_gallery: Bot, without_end: Future[list[Ended]]) -> Ended:
    """The gallery, every entry a case of its own, with full-range inputs; the submissions without
    end wait for their limit meanwhile."""
    cases = [case(m=index + 1, l=2, full=True) for index in range(len(gallery))]
    ended = staged_gallery.run("test", cases)
    assert not ended.killed, "a crash was waited for"
    return ended


def message(ended: Ended, index: int) -> str:
    """The error of a test with its line breaks."""
    return ended.values[f"test.{index}.error"].replace("\\n", "\n")


def test_the_functions_are_all_judged() -> None:
    text = (submissions / "gallery.py").read_text(encoding="utf-8")
    assert {*re.findall(r"(?m)^def (\w+)", text)} == {*rights, *wrongs, "loops_for_ever"}


@pytest.mark.parametrize("name", rights)
def test_an_honest_submission_passes(name: str, judged: Ended) -> None:
    key = f"test.{gallery.index(name)}"
    assert judged.values[f"{key}.status"] == "pass", judged.values.get(f"{key}.error")


@pytest.mark.parametrize("name", wrongs)
def test_a_submission_that_is_wrong_fails_and_hears_why(name: str, judged: Ended) -> None:
    """The next case is judged as if nothing had been."""
    index = gallery.index(name)
    assert judged.values[f"test.{index}.status"] == "fail"
    assert re.search(wrongs[name], message(judged, index)), message(judged, index)
    assert judged.values[f"test.{index + 1}.status"] == "pass", message(judged, index + 1)


def test_a_mode_with_failures_ends_with_check_fail_and_112(judged: Ended) -> None:
    assert judged.exit_code == 112
    assert judged.values["check"] == "fail"
    assert judged.values["test-count"] == str(len(gallery))
    assert not any(key.endswith(".dropped") for key in judged.values)


def test_the_judge_says_how_submissions_are_confined(judged: Ended) -> None:
    confined = {key: value for key, value in judged.values.items() if key.startswith("confined.")}
    mechanisms = ("resources", "files", "namespaces", "system_calls")
    assert set(confined) == {f"confined.{each}" for each in mechanisms}
    own = confined["confined.namespaces"]
    assert own.startswith(("own pid, ipc, mount, network and user", "own ipc", "none: "))


def test_what_submissions_print_reaches_neither_pipe_nor_terminal(judged: Ended) -> None:
    assert judged.stdout == b""
    assert judged.stderr == ""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_forks_that_stay_behind_end_with_the_judge(staged_gallery: Bot, judged: Ended) -> None:
    assert judged.exit_code == 112
    assert not processes_naming(f"{staged_gallery.folder}/")


def test_an_import_that_fails_is_tried_once(stage: Stage, tmp_path: Path) -> None:
    mark = "import pathlib, sys; p = pathlib.Path('imports.txt')\n"
    source = mark + "p.open('a').write('x')\nraise ValueError(p.read_text())\n"
    ended = stage(source.encode()).judge("test", [case(), case(), case()])
    assert [message(ended, i).splitlines()[-1] for i in range(3)] == ["ValueError: x"] * 3


@pytest.fixture(scope="module")
def without_end(stage: Stage) -> Iterator[Future[list[Ended]]]:
    """Judgements of a submission that does not end on two rows, and of one whose import does not
    end."""
    sources = (
        source_of("gallery.loops_for_ever if m == 2 else gallery.returns_c"),
        b"import time\nwhile True:\n    time.sleep(0.1)\n",
    )
    cases = [case(m=m) for m in (1, 2, 3)]
    limit = Options(timeout_s=15.0).as_variable()
    bots = [stage(source) for source in sources]
    with ThreadPoolExecutor(3) as pool:
        begun = [pool.submit(bot.judge, "test", cases, **limit) for bot in bots]
        yield pool.submit(lambda: [each.result() for each in begun])


@pytest.fixture(scope="module")
def endless(without_end: Future[list[Ended]]) -> list[Ended]:
    """What has become of them."""
    return without_end.result()


def test_an_endless_loop_is_a_time_out_and_what_was_judged_is_kept(endless: list[Ended]) -> None:
    ended, _ = endless
    assert ended.exit_code == 114
    assert ended.values["test.0.status"] == "pass"
    assert re.match(r"custom_kernel did not finish within [\d.]+ s", message(ended, 1))
    assert message(ended, 2) == "not judged: the time limit was reached"
    assert ended.values["check"] == "fail"
    first_line = message(ended, 1).partition("\n")[0]
    assert ended.stderr.strip() == f"eval.py: test.1: {first_line}", "the bot shows it"


def test_an_import_that_does_not_end_is_a_time_out(endless: list[Ended]) -> None:
    _, ended = endless
    assert ended.exit_code == 114
    assert re.match(r"its import did not finish within [\d.]+ s", message(ended, 0))
    assert message(ended, 1) == "not judged: the time limit was reached"
