"""Where `nvfp4 batch` judges: never two at once on one GPU, a process for each submission."""

import os
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from batches import verdict_of
from bot import root
from started import wait_until_gone

from nvfp4.cli.batch import eval_process, this_machine
from nvfp4.cli.batch.eval_process import BatchOptions, Candidate, EvalProcesses, Stopped, TakeTurn
from nvfp4.cli.errors import SetupError
from nvfp4.cli.judging import build_ahead
from nvfp4.cli.judging.bot import Bot
from nvfp4.cli.judging.build_ahead import BuildAhead, room
from nvfp4.cli.main import eval_command, main
from nvfp4.cli.problem import load_problem
from nvfp4.records.options import Options
from nvfp4.records.processes import Turn, end_last_turn, wait_for_another_turn, wait_for_turn
from nvfp4.worker.building import _on_host


def test_a_place_judges_one_at_a_time() -> None:
    on = this_machine.gpu_places(dict.fromkeys(["0", "3", "GPU-1f"], "9.0"))
    assert [each.environment["CUDA_VISIBLE_DEVICES"] for each in on] == ["0", "3", "GPU-1f"]
    running: dict[str, int] = dict.fromkeys((each.name for each in on), 0)
    together, lock, told = set(), threading.Lock(), []

    def judge(job: int, place: this_machine.Place) -> str:
        with lock:
            running[place.name] += 1
            assert running[place.name] == 1
            together.add(sum(running.values()))
        time.sleep(0.002 * (job % 5))
        with lock:
            running[place.name] -= 1
        return f"{job} on {place.device}"

    this_machine.judge_on(on, range(60), judge, lambda: None, lambda *each: told.append(each))
    assert sorted(told) == [(job, f"{job} on cuda") for job in range(60)]
    assert max(together) == 3


@pytest.mark.parametrize("error", [KeyboardInterrupt, SetupError("no room", "")])
def test_what_was_judged_when_an_interrupt_came_is_told(error: BaseException) -> None:
    stopped, told = threading.Event(), []
    slow_runs = threading.Event()

    def judge(job: str, place: this_machine.Place) -> str:
        if job == "slow":
            slow_runs.set()
            assert stopped.wait(10)
            raise Stopped
        slow_runs.wait(10)
        return job

    def tell(job: str, said: str) -> None:
        told.append(said)
        if job == "first":
            time.sleep(0.1)  # the second is ready by then
            raise error

    jobs = ["slow", "first", "second", "third", "fourth"]
    with pytest.raises((KeyboardInterrupt, SetupError)):
        this_machine.judge_on(this_machine.cpu_places(2), jobs, judge, stopped.set, tell)
    assert stopped.is_set()
    on_interrupt = ["first", "second", "third", "fourth"]
    assert sorted(told) == (sorted(on_interrupt) if error is KeyboardInterrupt else ["first"])


def test_the_time_of_gpus_is_told_by_what_they_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(this_machine.time, "monotonic", lambda: now)
    spent = this_machine.GpuTime(["cuda:0", "cuda:1"])
    course = [
        # seconds later, what begins or ends, for which GPU
        (0, "", "building", 2),
        (10, "cuda:0", "loading", 1),  # both waited for builds
        (4, "cuda:0", "judging", 1),  # the one loaded, the other waited
        (6, "", "building", -2),  # the one judged, the other waited
        (10, "cuda:1", "loading", 1),  # and then had nothing to do
        (2, "cuda:1", "judging", 1),
        (8, "cuda:0", "judging", -1),
        (10, "cuda:0", "loading", -1),
    ]
    for later, gpu, what, more in course:
        now += later
        spent.count(gpu, what, more)
    # 100 s: judging 6 + 10 + 2 + 8 and 8 + 10; building 20 + 4 + 6; idle 4 + 10 + 2 + 10.
    assert spent.in_words() == "2 GPUs: judging 44.0%, waiting for builds 30.0%, idle 26.0%"
    assert this_machine.GpuTime([]).in_words() is None


def test_as_many_are_judged_on_a_cpu_as_cores_and_memory_allow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def count(cores: int, gigabytes: int, jobs: int | None = None) -> int:
        monkeypatch.setattr(this_machine, "core_count", lambda: cores)
        monkeypatch.setattr(this_machine, "free_bytes", lambda: gigabytes << 30)
        return len({place.name for place in this_machine.cpu_places(jobs)})

    assert [count(1, 100), count(2, 100), count(16, 100), count(64, 31)] == [1, 1, 8, 10]
    assert [count(64, 1), count(64, 1, 7)] == [1, 7]
    monkeypatch.undo()
    assert 1 << 20 < this_machine.free_bytes() < 1 << 50


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({}, ["cuda:0", "cuda:1", "cuda:2"]),
        ({"device": "cuda:2"}, ["cuda:2"]),
        ({"device": "cpu", "jobs": 2}, ["cpu 0", "cpu 1"]),
        ({"jobs": 4}, "a GPU judges one submission at a time"),
    ],
)
def test_gpus_are_chosen(
    options: dict[str, Any], named: list[str] | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(this_machine, "visible_gpus", lambda: dict.fromkeys("012", "9.0"))
    chosen = BatchOptions(Path("out.jsonl"), **options)
    if isinstance(named, str):
        with pytest.raises(SetupError, match=named):
            this_machine.ThisMachine(chosen)
    else:
        judges = this_machine.ThisMachine(chosen)
        assert [place.name for place in judges._places] == named
        assert judges.kind == named[0][:4].rstrip(" 0")


def test_without_a_gpu_none_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(this_machine, "visible_gpus", dict)
    with pytest.raises(SetupError, match="no GPU"):
        this_machine.ThisMachine(BatchOptions(Path("out.jsonl"), device="cuda"))


def test_eval_gets_the_options_of_the_batch() -> None:
    chosen = ["--seed", "7", "--timeout", "20", "--arch", "sm_90a", "--retarget", "never"]
    chosen += ["--flush", "clean", "--no-check", "--strict"]
    for given in (chosen, []):
        batch = main.commands["batch"].make_context(
            "batch", [str(root), "--jsonl", "out", "--stop", *given]
        )
        assert batch.params.pop("names") == (root,)
        options = BatchOptions.of(batch.params)
        wanted = eval_command.make_context("eval", ["--stop", *given]).params
        assert eval_command.make_context("eval", options.arguments).params == wanted
        judged = {"seed", "timeout_s", "arch", "retarget", "flush", "check", "strict"}
        judged |= {"model", "problem"}
        assert set(options.judging) == judged


Script = Callable[[str], None]


@pytest.fixture
def instead_of_eval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    """Lets a shell script, which gets the arguments of Python, be run instead of `nvfp4 eval`."""

    def make(script: str) -> None:
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setattr(eval_process.sys, "executable", str(path))

    monkeypatch.setattr(eval_process, "_stop_s", 1.0)
    return make


candidate = Candidate("0", b"content", [Path("folder/mine.py")])


def judged_by(script: str, make: Script, limit_s: float | None = None) -> dict[str, Any]:
    """What comes of a submission with a script instead of `nvfp4 eval`."""
    make(script)
    found = EvalProcesses(["--strict"], limit_s).judge(candidate, "cpu", {"PLACE": "here"})
    assert found["elapsed_s"] >= 0
    return found


def test_a_process_gets_a_copy_the_options_and_the_place(instead_of_eval: Script) -> None:
    script = """printf '{"schema": 4, "said": "%s %s %s %s"}' "$*" $PLACE $(cat $4)"""
    said = judged_by(script, instead_of_eval)["said"].split()
    assert said[:3] == ["-m", "nvfp4", "eval"]
    assert said[3].endswith("/mine.py")
    assert not Path(said[3]).parent.exists()
    assert " ".join(said[4:]) == "--json --no-log --device cpu --strict here content"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            "echo 'Segmentation \033[31mfault' >&2; kill -SEGV $$",
            r"code -11: Segmentation \x1b[31mfault",
        ),
        ("echo '{}'", "code 0"),
        ("echo '[2]'", "code 0"),
        ("""echo '{"schema": 4}'; exit 143""", "code 143"),
    ],
)
def test_a_crash_of_the_judge_says_how_it_ended(
    script: str, message: str, instead_of_eval: Script
) -> None:
    error = judged_by(script, instead_of_eval)["error"]
    assert error["code"] == "batch.crashed"
    assert error["message"].endswith(message)


@pytest.mark.parametrize("script", ["sleep 100", "trap '' TERM; while :; do sleep 1; done"])
def test_a_submission_over_the_limit_is_ended(script: str, instead_of_eval: Script) -> None:
    started = time.monotonic()
    error = judged_by(script, instead_of_eval, limit_s=0.3)["error"]
    assert (error["code"], error["message"]) == ("batch.limit", "it was not judged within 0.3 s")
    assert time.monotonic() - started < 30


def test_a_stop_ends_what_runs_and_starts_nothing_more(instead_of_eval: Script) -> None:
    instead_of_eval("sleep 100")
    processes = EvalProcesses([])
    threading.Timer(0.3, processes.stop).start()
    for _ in range(2):
        with pytest.raises(Stopped):
            processes.judge(candidate, "cpu", {})


def test_a_process_begins_before_its_turns_and_is_judged_in_them(
    instead_of_eval: Script, tmp_path: Path
) -> None:
    turn = f"{sys.executable} -c 'from nvfp4.records import processes as p; p.%s'"
    instead_of_eval(
        f"echo >{tmp_path}/loaded; {turn % 'wait_for_turn(bool)'}; sleep 0.1;"
        f"{turn % 'wait_for_another_turn()'}; sleep 0.1;"
        """printf '{"schema": 4, "said": "judged"}'"""
    )
    taken, held_s = [], 0.0

    @contextmanager
    def take_turn(alone: bool) -> Iterator[None]:
        nonlocal held_s
        deadline = time.monotonic() + 20
        while not (tmp_path / "loaded").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)
        taken.append(alone)
        began_s = time.monotonic()
        yield
        held_s += time.monotonic() - began_s

    found = EvalProcesses([], 10).judge(candidate, "cpu", {}, take_turn)
    assert found["said"] == "judged" and taken == [False, True]
    assert found["elapsed_s"] <= held_s + 0.001, "the wait counts"


def test_a_judgement_waits_for_its_turns_with_everything_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []
    assert wait_for_turn(lambda: done.append("prepared")) and wait_for_another_turn()
    assert done == [], "nobody gives turns"
    for given in (True, False):
        with Turn() as turn:
            monkeypatch.setenv("NVFP4_TURN", str(os.dup(turn.fd)))
            if given:
                threading.Timer(0.2, turn.give).start()
                assert wait_for_turn(lambda: done.append("prepared"))
                threading.Timer(0.2, turn.give).start()
                assert wait_for_another_turn() and turn.asked()
                with pytest.raises(TimeoutError):
                    turn.asked(0.01)
                end_last_turn()
                end_last_turn()
                assert not turn.asked()
        if not given:
            assert not wait_for_turn(lambda: done.append("prepared"))
            assert not wait_for_another_turn()
    assert done == ["prepared"] * 2


def test_a_gpu_tests_several_at_once_until_none_waits_and_times_one_alone() -> None:
    gpu, running, seen = this_machine._Gpu(), Counter[bool](), []
    most, tested = this_machine._TESTED_AT_ONCE, threading.Barrier(this_machine._TESTED_AT_ONCE)

    def judge() -> None:
        for alone in (False, True):
            with gpu.turn(alone):
                if not alone:
                    tested.wait(10)
                running[alone] += 1
                time.sleep(0.02)
                seen.append((alone, running[not alone], running[alone] <= (1 if alone else most)))
                running[alone] -= 1

    threads = [threading.Thread(target=judge) for _ in range(2 * most)]
    with gpu.turn(True):
        for each in threads:
            each.start()
        while gpu._waiting[False] < len(threads):
            time.sleep(0.01)
    for each in threads:
        each.join(20)
    assert seen == [(alone, 0, True) for alone in (False, True) for _ in threads]


# CUDA C++ that is built before its judgement: when, how much at once, and what it can spoil.

HANGS = b"""
import torch.utils.cpp_extension

open("started", "w").close()
while True:
    pass
"""


@pytest.fixture
def building(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BuildAhead]:
    """Builds for a GPU, two at once, in folders of the test's own."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.setattr(build_ahead, "room", lambda gpus: (2, 6))
    with BuildAhead(["9.0"]) as ahead:
        yield ahead


def bot_of(content: bytes, options: Options | None = None) -> Bot:
    return Bot(load_problem(), content, options or Options())


@pytest.mark.parametrize(
    ("cores", "gib", "gpus", "builds", "gib_each"),
    [
        *((16, 128, 1, 6, 12), (16, 30, 1, 6, 5), (4, 128, 1, 1, 12), (1, 2, 1, 1, 5)),
        (32, 128, 2, 12, 9),
    ],
)
def test_cores_and_memory_bound_how_many_are_built_at_once(
    cores: int, gib: int, gpus: int, builds: int, gib_each: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_ahead, "core_count", lambda: cores)
    monkeypatch.setattr(build_ahead, "free_bytes", lambda: gib << 30)
    assert room(gpus) == (builds, gib_each)


@pytest.mark.parametrize(("gib", "at_once"), [(10, 1), (20, 3)])
def test_a_build_begins_when_the_others_leave_it_memory(
    gib: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, most = [0], [0]

    def run_build(*_: object) -> None:
        running[0] += 1
        most[0] = max(most[0], running[0])
        time.sleep(0.4)
        running[0] -= 1

    monkeypatch.setattr(Bot, "run_build", run_build)
    monkeypatch.setattr(build_ahead, "core_count", lambda: 16)
    monkeypatch.setattr(build_ahead, "free_bytes", lambda: gib << 30)
    monkeypatch.setattr(build_ahead, "_RISE_S", 0.01)
    monkeypatch.setattr(build_ahead, "_LOOK_S", 0.01)
    with BuildAhead(["9.0"]) as ahead:
        for future in [ahead.begin(bot_of(b"cpp_extension %d" % n)) for n in range(3)]:
            future.result(10)
    assert most == [at_once]


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
    building: BuildAhead, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(build_ahead, "_MOST_S", 2.0)
    started_s = time.monotonic()
    hangs = building.begin(bot_of(HANGS))
    building.begin(bot_of(b"# cpp_extension\nraise SystemExit(3)")).result(30)
    hangs.result(30)
    assert time.monotonic() - started_s < 60
    building.stop()
    wait_until_gone(tmp_path)


def test_a_call_that_only_builds_has_its_tensors_on_a_gpu_that_is_not_there() -> None:
    with _on_host():
        made = torch.empty(2, device="cuda")
        assert made.is_cuda
        moved = made.cuda().to("cuda:0")
    assert moved.device.type == "cpu"


def test_nothing_is_built_any_more_when_nobody_waits_for_it(
    building: BuildAhead, tmp_path: Path
) -> None:
    begun = [threading.Event() for _ in range(2)]
    running = [building.begin(bot_of(HANGS + b"#" * n), each.set) for n, each in enumerate(begun)]
    waiting = building.begin(bot_of(HANGS + b"# another"))
    assert all(each.wait(10) for each in begun)
    started_s = time.monotonic()
    building.stop()
    assert time.monotonic() - started_s < 30
    assert all(each.done() for each in running)
    assert waiting.cancelled()
    wait_until_gone(tmp_path)


def test_a_batch_judges_what_is_ready_while_the_rest_is_built(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    events: list[str] = []
    first_judged = threading.Event()

    def build(bot: Bot, capability: str, limit_s: float) -> None:
        events.append(f"built {bot.submission.decode().split()[-1]}")
        assert first_judged.wait(10)

    def judge(
        self: EvalProcesses,
        candidate: Candidate,
        device: str,
        environment: Mapping[str, str],
        take_turn: TakeTurn,
        spent: object,
    ) -> dict[str, Any]:
        with take_turn(False):
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
    machine = this_machine.ThisMachine(BatchOptions(tmp_path / "out.jsonl"))
    said = machine.judge(candidates, lambda candidate, _: told.append(candidate.name))
    assert re.fullmatch(r"1 GPU: judging .*%, waiting for builds .*, idle .*%", said or "")
    assert sorted(told) == ["a", "b", "c"]
    assert events.index("judged c") < min(events.index("judged a"), events.index("judged b"))


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


def test_a_build_reaches_nothing_that_another_has_built(caches: Path) -> None:
    kept = caches / "submissions/of_another/kept"
    kept.parent.mkdir(parents=True)
    kept.write_text("built")
    with BuildAhead(["9.0"]) as ahead:
        ahead.begin(bot_of(NOSY)).result(60)
    said = [path.read_text() for path in caches.glob("submissions/*/said_*")]
    assert said == ["refused", "refused"]
    assert kept.read_text() == "built"


@pytest.mark.gpu
def test_a_build_cannot_reach_the_gpu(caches: Path) -> None:
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
    (said,) = caches.glob("submissions/*/said")
    assert said.read_text() == "refused"
