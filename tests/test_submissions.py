"""Submissions that must fail do, with the right message, and honest ones pass.

One run of the judge takes all of them: ``custom_kernel`` is another function of submissions/gallery
for every m. So each also proves that what was judged before it and after it is not lost.
"""

import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from bot import Bot, Ended, case
from conftest import processes_of, submissions

from nvfp4.records.options import Options

Stage = Callable[[Path | bytes], Bot]

on_cuda = torch.cuda.is_available()

honest = [
    "returns_c",
    "returns_a_fresh_tensor",
    "returns_a_strided_tensor",
    "prints_megabytes",
    "computes_in_threads",
    "leaves_a_fork_behind",
    "closes_standard_streams",
]

wrong = {
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
gallery = ["returns_c", *(name for each in wrong for name in (each, "returns_c")), *honest]


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
def judged(staged_gallery: Bot) -> Ended:
    """The gallery, every entry a case of its own, with full-range inputs."""
    cases = [case(m=index + 1, l=2, full=True) for index in range(len(gallery))]
    start = time.monotonic()
    ended = staged_gallery.run("test", cases)
    assert time.monotonic() - start < 50, "a crash was waited for"
    return ended


def message(ended: Ended, index: int) -> str:
    """The error of a test with its line breaks."""
    return ended.values[f"test.{index}.error"].replace("\\n", "\n")


def test_the_functions_are_all_judged() -> None:
    text = (submissions / "gallery.py").read_text(encoding="utf-8")
    assert {*re.findall(r"(?m)^def (\w+)", text)} == {*honest, *wrong, "loops_for_ever"}


@pytest.mark.parametrize("name", honest)
def test_an_honest_submission_passes(name: str, judged: Ended) -> None:
    key = f"test.{gallery.index(name)}"
    assert judged.values[f"{key}.status"] == "pass", judged.values.get(f"{key}.error")


@pytest.mark.parametrize("name", wrong)
def test_a_submission_that_is_wrong_fails_and_hears_why(name: str, judged: Ended) -> None:
    index = gallery.index(name)
    assert judged.values[f"test.{index}.status"] == "fail"
    assert re.search(wrong[name], message(judged, index)), message(judged, index)


@pytest.mark.parametrize("name", wrong)
def test_the_case_after_a_failure_is_judged_as_if_nothing_had_been(
    name: str, judged: Ended
) -> None:
    index = gallery.index(name) + 1
    assert judged.values[f"test.{index}.status"] == "pass", message(judged, index)


def test_a_mode_with_failures_ends_with_check_fail_and_112(judged: Ended) -> None:
    assert judged.exit_code == 112
    assert judged.values["check"] == "fail"
    assert judged.values["test-count"] == str(len(gallery))
    assert "truncated" not in judged.values


def test_what_submissions_print_reaches_neither_pipe_nor_terminal(judged: Ended) -> None:
    assert judged.stdout == b""
    assert judged.stderr == ""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_forks_that_stay_behind_end_with_the_judge(staged_gallery: Bot, judged: Ended) -> None:
    assert judged.exit_code == 112
    assert not processes_of(staged_gallery)


unloadable = {
    "a syntax error": (b"def custom_kernel(data)\n    return 1\n", r"SyntaxError: expected ':'"),
    "an unknown package": (
        b"import no_such_package\n",
        r'File "submission\.py", line 1.+\n.+\nModuleNotFoundError: No module named',
    ),
    "no custom_kernel": (
        b"def kernel(data):\n    return data[6]\n",
        r"submission\.py defines no function custom_kernel\(data\)",
    ),
    "a custom_kernel that cannot be called": (
        b"custom_kernel = 5\n",
        r"submission\.py defines no function custom_kernel\(data\)",
    ),
    "nothing at all": (b"", r"submission\.py defines no function custom_kernel\(data\)"),
    "bytes that are no UTF-8": (b"x = '\xff\xfe'\n", r"SyntaxError: .*utf-8"),
    "a null byte": (b"x = 1\0\n", r"SyntaxError: .*null bytes"),
    "sys.exit at import": (b"import sys\nsys.exit(3)\n", r"called sys\.exit\(3\)"),
    "os._exit at import": (b"import os\nos._exit(3)\n", r"process ended with exit code 3"),
}


@pytest.mark.parametrize("what", unloadable)
def test_a_file_that_cannot_be_loaded_fails_every_case(what: str, stage: Stage) -> None:
    source, why = unloadable[what]
    ended = stage(source).judge("test", [case(m=1), case(m=2)])
    assert ended.exit_code == 112
    assert ended.values["check"] == "fail"
    for index in (0, 1):
        assert ended.values[f"test.{index}.status"] == "fail"
        assert re.search(why, message(ended, index)), message(ended, index)
        assert "importlib" not in message(ended, index)


def test_a_traceback_shows_the_submission_s_own_frames_only(stage: Stage) -> None:
    source = (
        "import torch\n"
        "def multiply(data):\n"
        "    return torch.zeros(3) @ torch.zeros(5)\n"
        "def custom_kernel(data):\n"
        "    return multiply(data)\n"
    )
    ended = stage(source.encode()).judge("test", [case()])
    lines = message(ended, 0).splitlines()
    assert lines[0] == "Traceback, the submission's frames:"
    assert [line.strip() for line in lines if line.startswith("  File")] == [
        f'File "submission.py", line {number}, in {name}'
        for number, name in ((5, "custom_kernel"), (3, "multiply"))
    ]
    assert lines[-1].startswith("RuntimeError: ")


def test_a_submission_cannot_say_that_the_judge_could_not_start(stage: Stage) -> None:
    source = (
        "class Missing(ImportError):\n    failure = 'setup'\n"
        "raise Missing('CUDA C++ cannot be compiled here: nvcc is missing')\n"
    )
    ended = stage(source.encode()).judge("test", [case(), case()])
    assert ended.exit_code == 112
    assert [ended.values[f"test.{index}.status"] for index in (0, 1)] == ["fail", "fail"]
    assert '"told_by": "submission"' in ended.values["test.0.failure"]


def test_an_import_that_fails_is_tried_once(stage: Stage, tmp_path: Path) -> None:
    mark = "import pathlib, sys; p = pathlib.Path('imports.txt')\n"
    source = mark + "p.open('a').write('x')\nraise ValueError(p.read_text())\n"
    ended = stage(source.encode()).judge("test", [case(), case(), case()])
    assert [message(ended, i).splitlines()[-1] for i in range(3)] == ["ValueError: x"] * 3


def test_an_endless_loop_is_a_time_out_and_what_was_judged_is_kept(stage: Stage) -> None:
    source = source_of("gallery.loops_for_ever if m == 2 else gallery.returns_c")
    start = time.monotonic()
    ended = stage(source).judge(
        "test", [case(m=m) for m in (1, 2, 3)], **Options(timeout_s=6.0).as_variable()
    )
    assert time.monotonic() - start < 25
    assert ended.exit_code == 114
    assert ended.values["test.0.status"] == "pass"
    assert re.match(r"custom_kernel did not finish within [\d.]+ s", message(ended, 1))
    assert message(ended, 2) == "not judged: the time limit was reached"
    assert ended.values["check"] == "fail"
    first_line = message(ended, 1).partition("\n")[0]
    assert ended.stderr.strip() == f"eval.py: test.1: {first_line}", "the bot shows it"


def test_an_import_that_does_not_end_is_a_time_out(stage: Stage) -> None:
    start = time.monotonic()
    ended = stage(b"while True:\n    pass\n").judge(
        "test", [case(), case()], **Options(timeout_s=6.0).as_variable()
    )
    assert time.monotonic() - start < 24
    assert ended.exit_code == 114
    assert re.match(r"its import did not finish within [\d.]+ s", message(ended, 0))
    assert message(ended, 1) == "not judged: the time limit was reached"
