"""One element of an output: what its sum says, and who wrote it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from bot import root

from nvfp4.cli.judging.debug import notes, writer_lines
from nvfp4.emulator.state.watch import Watch, Writer, current, watching


def test_a_right_sum_has_no_remarks() -> None:
    assert notes([1.0, 2.0, 4.0], 7.0, 0.01) == {}


def test_a_missing_block_is_marked() -> None:
    found = notes([1.0, 2.0, 4.0, 8.0], 11.0, 0.01)
    assert found[2].startswith("missing, it would explain the output")


def test_a_block_that_is_there_twice_is_marked() -> None:
    assert "twice, it would explain the output" in notes([1.0, 2.0, 4.0], 9.0, 0.01)[1]


def test_the_end_of_a_sum_that_is_too_short_is_marked() -> None:
    found = notes([1.0, 2.0, 4.0, 8.0, 16.0], 7.0, 0.01)
    assert found[2] == "the sum so far is the output"
    assert "from here on the sum can no longer be the output" in found[4]


def test_nobody_wrote() -> None:
    assert "torch did, or nobody" in writer_lines([], "c[0, 0, 0]")[0]
    assert "--device emulate" in writer_lines(None, "c[0, 0, 0]")[0]


def test_a_watch_covers_what_touches_its_bytes() -> None:
    with watching(100, 2) as watch:
        assert current() is watch
        starts = np.array([96, 97, 100, 101, 102], np.uint64)
        assert watch.covers(starts, 4).tolist() == [False, True, True, True, False]
    assert current() is None


def test_the_last_writer_stands_last_and_once() -> None:
    def writer(thread: int) -> Writer:
        one = (1, 1, 1)
        return Writer("kernel", one, one, (0, 0, 0), (thread, 0, 0), "s.py", 3, "c[i] = x")

    watch = Watch(0, 2)
    for thread in (1, 2, 1):
        watch.note(writer(thread))
    assert [each.thread[0] for each in watch.writers] == [2, 1]
    lines = writer_lines([vars(each) for each in watch.writers], "c")
    assert lines[0] == (
        "written by kernel kernel, CTA (0, 0, 0) of (1, 1, 1), thread (1, 0, 0) of (1, 1, 1), "
        "s.py:3: c[i] = x"
    )
    assert lines[1].startswith("before that by kernel kernel")


def debug(*arguments: str) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "nvfp4", "debug", *arguments, "--json"]
    ended = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    return ended.returncode, json.loads(ended.stdout)


@pytest.mark.parametrize("row", [101])
def test_the_line_that_writes_an_element_is_found(row: int) -> None:
    arguments = ("--shape", "128x256x2", "--row", str(row), "--batch", "1", "--device", "cpu")
    code, found = debug("submission.py", *arguments)
    assert code == 0
    assert len(found["blocks"]) == 16
    assert sum(found["blocks"]) == float(found["exact"]) == float(found["got"])
    [writer] = found["writers"]
    assert writer["file"] == "submission.py"
    source = (root / "submission.py").read_text(encoding="utf-8").splitlines()
    assert writer["text"] == source[writer["line"] - 1].strip()


def test_an_element_outside_of_c_is_refused() -> None:
    command = [sys.executable, "-m", "nvfp4", "debug", "submission.py", "--shape", "128x256x1"]
    ended = subprocess.run([*command, "--row", "128"], cwd=root, capture_output=True, text=True)
    assert ended.returncode == 2
    assert "c[128, 0, 0] is outside of c" in ended.stderr
