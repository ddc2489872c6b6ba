"""What is said of kernels that are broken at run time: tests/broken/faults/NAME.py and NAME.txt.

Each submission has one mistake. NAME.txt is the message of its first failed case, then what it had
printed. WRITE=1 writes the texts anew.
"""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import re
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from field.judged import InProcess, prepare

FOLDER = Path(__file__).parent / "broken" / "faults"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))
SHAPE = (256, 512, 2)
TIME_LIMIT_S = 240.0
ENDLESS_S = {"cute_counter_steps_over_its_end": 8.0}
"""When a kernel that does not end is given up."""


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    prepare()


def message_of(source: Path) -> str:
    """What the judge says of a submission, and what that has printed."""
    import torch

    from nvfp4.contract import reference
    from nvfp4.judge.cases import Case
    from nvfp4.judge.opened_case import OpenedCase, generate
    from nvfp4.judge.submission_process import SubmissionFailed
    from nvfp4.records.messages import Call, Called, Load
    from nvfp4.worker.tracebacks import plain

    reference.default_device = lambda: torch.device("cpu")
    case = Case("", *SHAPE, 1111, False)
    process, printed, said = InProcess(source), io.StringIO(), "passed"
    watch = process.runner.watch
    with contextlib.redirect_stdout(printed):
        try:
            request(process.runner.answer, Load())
            data = generate(case, case.seed)
            opened = OpenedCase(process, case, torch.device("cpu"), time.monotonic() + 600)  # type: ignore[arg-type]
            if source.stem in ENDLESS_S:
                watch.deadline = time.monotonic() + ENDLESS_S[source.stem]
            opened.fill(opened.buffers, data)
            assert isinstance(request(process.runner.answer, Call()), Called)
        except SubmissionFailed as failed:
            said = str(failed)
    output = plain(printed.getvalue(), source, source.name).strip()
    return f"{said}\n\noutput:\n{output}\n" if output else f"{said}\n"


def request(answer: Callable[[object, int | None], object], asked: object) -> object:
    """The answer of a runner. Raises SubmissionFailed."""
    from nvfp4.judge.submission_process import SubmissionFailed
    from nvfp4.records.messages import Failure

    given = answer(asked, None)
    if isinstance(given, Failure):
        raise SubmissionFailed(given.message)
    return given


def _work(sender: Any, source: Path) -> None:
    sys.modules.pop("submission", None)
    sender.send(message_of(source))


def normalised(text: str) -> str:
    """Without what depends on how fast this machine is."""
    text = re.sub(r"after \d+ s: [\d,]+ rounds", "after N s: N rounds", text)
    return re.sub(r"\b0x[0-9a-f]{9,}\b", "0x...", text)


@pytest.mark.parametrize("name", NAMES)
def test_the_message_shows_the_mistake(name: str, tmp_path: Path) -> None:
    source = tmp_path / f"{name}.py"
    shutil.copy(FOLDER / source.name, source)
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(False)
    process = context.Process(target=_work, args=(sender, source))
    process.start()
    sender.close()
    try:
        assert receiver.poll(TIME_LIMIT_S), "no answer in time"
        text = normalised(receiver.recv())
    finally:
        process.kill()
        process.join()
    kept = FOLDER / f"{name}.txt"
    if os.environ.get("WRITE"):
        kept.write_text(text, encoding="utf-8")
    assert text == kept.read_text(encoding="utf-8")


def test_there_are_faults_of_every_front_end() -> None:
    assert len(NAMES) >= 13
    assert {"cute", "cuda", "triton"} <= {name.partition("_")[0] for name in NAMES}
