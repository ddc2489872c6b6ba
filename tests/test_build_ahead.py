"""CUDA C++ that is built before its judgement: when, how much at once, and what it can spoil."""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from batches import verdict_of
from started import wait_until_gone

from nvfp4.cli.batch import this_machine
from nvfp4.cli.batch.eval_process import Candidate, EvalProcesses
from nvfp4.cli.batch.options import BatchOptions, Busy
from nvfp4.cli.batch.this_machine import ThisMachine
from nvfp4.cli.judging import build_ahead
from nvfp4.cli.judging.bot import Bot
from nvfp4.cli.judging.build_ahead import BuildAhead, room
from nvfp4.cli.problem import load_problem
from nvfp4.records.options import Options

HANGS = b"""
import torch.utils.cpp_extension

open("started", "w").close()
while True:
    pass
"""


def bot_of(content: bytes, options: Options | None = None) -> Bot:
    return Bot(load_problem(), content, options or Options())


@pytest.mark.parametrize(
    ("cores", "gib", "gpus", "builds", "gib_each"),
    [
        (16, 128, 1, 6, 12),
        (16, 30, 1, 4, 6),
        (4, 128, 1, 1, 12),
        (1, 2, 1, 1, 5),
        (32, 128, 2, 12, 9),
    ],
)
def test_cores_and_memory_bound_how_many_are_built_at_once(
    cores: int, gib: int, gpus: int, builds: int, gib_each: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_ahead, "core_count", lambda: cores)
    monkeypatch.setattr(build_ahead, "free_bytes", lambda: gib << 30)
    assert room(gpus) == (builds, gib_each)


def test_a_build_has_the_options_of_the_judgement_and_less_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[Options, str]] = []
    monkeypatch.setattr(build_ahead, "room", lambda gpus: (1, 6))
    monkeypatch.setattr(
        Bot, "run_build", lambda bot, capability, limit_s: asked.append((bot.options, capability))
    )
    chosen = Options(arch="sm_90a", retarget="never")
    with BuildAhead(["9.0", None, "9.0", "10.0"]) as ahead:
        ahead.begin(bot_of(b"cpp_extension", chosen)).result(10)
        ahead.begin(bot_of(b"import cutlass", chosen)).result(10)
    assert [capability for _, capability in asked] == ["10.0", "9.0"]
    assert {options for options, _ in asked} == {
        Options(arch="sm_90a", retarget="never", limit_gib=6)
    }


def test_a_build_that_hangs_ends_and_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.setattr(build_ahead, "room", lambda gpus: (2, 6))
    monkeypatch.setattr(build_ahead, "_MOST_S", 2.0)
    started_s = time.monotonic()
    with BuildAhead(["9.0"]) as ahead:
        hangs = ahead.begin(bot_of(HANGS))
        ahead.begin(bot_of(b"# cpp_extension\nraise SystemExit(3)")).result(30)
        hangs.result(30)
    assert time.monotonic() - started_s < 20
    wait_until_gone(tmp_path)


def test_nothing_is_built_any_more_when_nobody_waits_for_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.setattr(build_ahead, "room", lambda gpus: (1, 6))
    with BuildAhead(["9.0"]) as ahead:
        begun = threading.Event()
        running = ahead.begin(bot_of(HANGS), begun.set)
        waiting = ahead.begin(bot_of(HANGS + b"# another"))
        assert begun.wait(10)
        time.sleep(0.5)
        started_s = time.monotonic()
    assert time.monotonic() - started_s < 10
    assert running.done()
    assert waiting.cancelled()
    wait_until_gone(tmp_path)


def test_a_batch_judges_what_is_ready_while_the_rest_is_built(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    events: list[str] = []
    first_judged = threading.Event()

    def build(bot: Bot, capability: str, limit_s: float) -> None:
        name = bot.submission.decode().split()[-1]
        events.append(f"built {name}")
        assert first_judged.wait(10)

    def judge(
        self: EvalProcesses,
        candidate: Candidate,
        device: str,
        environment: Mapping[str, str],
        in_turn: Callable[[], AbstractContextManager[None]],
    ) -> dict[str, Any]:
        with in_turn():
            events.append(f"judged {candidate.name}")
            first_judged.set()
            return verdict_of(b"25", device)

    monkeypatch.setattr(this_machine, "visible_gpus", lambda: {"0": "9.0"})
    monkeypatch.setattr(build_ahead, "room", lambda gpus: (2, 6))
    monkeypatch.setattr(Bot, "run_build", build)
    monkeypatch.setattr(EvalProcesses, "_judge", judge)
    texts = {"a": "cpp_extension a", "b": "cpp_extension b", "c": "cutlass c"}
    candidates = [Candidate(name, text.encode(), [Path(name)]) for name, text in texts.items()]
    told: list[str] = []
    busy = Busy()
    machine = ThisMachine(BatchOptions(tmp_path / "out.jsonl"))
    machine.judge(candidates, lambda candidate, _: told.append(candidate.name), busy)
    assert sorted(told) == ["a", "b", "c"]
    assert events.index("judged c") < min(events.index("judged a"), events.index("judged b"))
    assert busy == Busy()


NOSY = b"""# cpp_extension
import os
from pathlib import Path

mine = Path(os.environ["XDG_CACHE_HOME"])
for way in ("r", "w"):
    try:
        open(mine.parent / "of_another" / "kept", way)
        said = "reached"
    except OSError as error:
        said = "refused"
    (mine / f"said_{way}").write_text(said)
"""


def test_a_build_reaches_nothing_that_another_has_built(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept = tmp_path / "nvfp4/submissions/of_another/kept"
    kept.parent.mkdir(parents=True)
    kept.write_text("built")
    with BuildAhead(["9.0"]) as ahead:
        ahead.begin(bot_of(NOSY)).result(60)
    said = [path.read_text() for path in tmp_path.glob("nvfp4/submissions/*/said_*")]
    assert said == ["refused", "refused"]
    assert kept.read_text() == "built"


@pytest.mark.gpu
def test_a_build_cannot_reach_the_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = b"""# cpp_extension
import os
from pathlib import Path

try:
    os.close(os.open("/dev/nvidiactl", os.O_RDWR))
    said = "reached"
except OSError as error:
    said = "refused"
Path(os.environ["XDG_CACHE_HOME"], "said").write_text(said)
"""
    with BuildAhead(["9.0"]) as ahead:
        ahead.begin(bot_of(source)).result(60)
    (said,) = tmp_path.glob("nvfp4/submissions/*/said")
    assert said.read_text() == "refused"
