"""`nvfp4 ladder`: what is judged, what is known already, and how it is shown."""

from __future__ import annotations

import json
import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from nvfp4.cli.errors import SetupError
from nvfp4.cli.judging.assess import Observer, Plan
from nvfp4.cli.judging.bot import Bot
from nvfp4.cli.ladder import command
from nvfp4.cli.ladder import measuring as judging
from nvfp4.cli.ladder.measuring import Climber, warps_per_sm
from nvfp4.cli.ladder.results import (
    Counts,
    Judged,
    Rung,
    Step,
    find_rungs,
    no_gpu,
    read_steps,
    rung_text,
    write_steps,
)
from nvfp4.cli.ladder.tables import climb_columns
from nvfp4.cli.main import main
from nvfp4.cli.problem import load_problem
from nvfp4.cli.verdict import BenchmarkResult, TestResult, Verdict
from scripts.ladder_page import correlations, draw_climb, markdown, spearman, with_tables

climb = find_rungs(["cute", "cuda"])
published = [rung for rung in climb if rung.published_us]
counts = Counts(2.5, 2.0, 0, 40, 0, 48)


def run(*arguments: str) -> tuple[int, str]:
    """The exit code of a command and its output."""
    ended = CliRunner().invoke(main, arguments)
    return ended.exit_code, ended.output


@pytest.mark.parametrize(
    ("xs", "ys", "expected"),
    [
        ([1, 2, 3], [10, 20, 30], 1.0),
        ([1, 2, 3], [30, 20, 10], -1.0),
        ([1, 2, 3, 4, 5], [5, 6, 7, 8, 7], 0.8207826816681233),  # scipy.stats.spearmanr
        ([1, 2, 3, 4], [2, 1, 4, 3], 0.6),
        ([1, 2], [1, 2], None),
        ([1, 2, 3], [5, 5, 5], None),
    ],
)
def test_rank_correlation(xs: list[float], ys: list[float], expected: float | None) -> None:
    found = spearman(xs, ys)
    assert found == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(
    ("threads", "registers", "shared_bytes", "warps"),
    [
        (256, 32, 0, 64),
        (512, 40, 0, 48),
        (256, 33, 0, 48),
        (256, 255, 0, 8),
        (128, 64, 0, 32),
        (32, 32, 0, 32),  # no more than 32 CTAs
        (128, 32, 100 << 10, 8),
        (1024, 65, 0, 0),
    ],
)
def test_occupancy(threads: int, registers: int, shared_bytes: int, warps: int) -> None:
    assert warps_per_sm(threads, registers, shared_bytes) == warps


class Fake:
    """Stands for the judge: fills verdicts, and notes what was asked. interrupted_at: the name of
    the file at which the user stops it.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, interrupted_at: str = "") -> None:
        self.asked: list[tuple[str, str, int, int]] = []
        self._interrupted_at = interrupted_at
        monkeypatch.setattr(judging, "assess", self.assess)
        monkeypatch.setattr(judging, "_with_registers", lambda counts, _: counts)

    def assess(self, bot: Bot, plan: Plan, verdict: Verdict, observer: Observer) -> None:
        chosen = bot.options
        self.asked.append((chosen.name, chosen.device, len(plan.all_tests), len(plan.benchmarks)))
        verdict.interrupted = chosen.name == self._interrupted_at
        emulated = {"warp_instructions_total": 131072, "sectors_requested": 6}
        emulated |= {"sectors_distinct": 3, "bank_conflicts": 7}
        verdict.tests = [
            TestResult(line, inputs, "pass") for inputs in plan.inputs for line in plan.tests
        ]
        verdict.benchmarks = [
            BenchmarkResult(line, "pass", emulation=emulated)
            if chosen.device == "cpu"
            else BenchmarkResult(line, "pass", timed=True, mean_us=20.0)
            for line in plan.benchmarks
        ]


def nobody() -> AbstractContextManager[Observer]:
    """Watches nothing."""
    return nullcontext(Observer())


on_cpu = Climber(load_problem(), "cpu", "contest", False, no_gpu, None, nobody)
on_gpu = replace(on_cpu, device="cuda", label="NVIDIA H200", capability="9.0")


def test_counts_come_with_the_tests_where_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake(monkeypatch)
    (step,) = on_cpu.climb(climb[:1], {})
    assert fake.asked == [("01_template.py", "cpu", 20, 4)]
    assert step.counts == Counts(1.0, 2.0, 7)
    assert step.on == {no_gpu: Judged(True, 20, True)}


def test_a_gpu_adds_times_to_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake(monkeypatch)
    (emulated,) = on_cpu.climb(climb[:1], {})
    (step,) = on_gpu.climb(climb[:1], {emulated.name: emulated})
    assert fake.asked[1:] == [("01_template.py", "cuda", 20, 3)]
    assert set(step.on) == {no_gpu, "NVIDIA H200"}
    assert step.on["NVIDIA H200"].geomean_us == pytest.approx(20.0)
    (alone,) = on_gpu.climb(climb[:1], {})
    assert alone.counts == step.counts
    assert fake.asked[2:] == [("01_template.py", "cuda", 20, 3), ("01_template.py", "cpu", 0, 1)]


def test_nothing_known_is_judged_again_unless_the_file_or_the_tests_differ(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = Fake(monkeypatch)
    monkeypatch.setattr(judging, "_with_registers", lambda found, _: replace(found, registers=9))
    (quick,) = replace(on_cpu, quick=True).climb(climb[:1], {})
    assert quick.on[no_gpu].tests == 2
    (full,) = on_cpu.climb(climb[:1], {quick.name: quick})
    assert len(fake.asked) == 2
    assert list(on_cpu.climb(climb[:1], {full.name: full})) == [full]
    assert list(replace(on_cpu, quick=True).climb(climb[:1], {full.name: full})) == [full]
    assert len(fake.asked) == 2
    (changed,) = on_cpu.climb(climb[:1], {full.name: replace(full, sha256="0", counts=None)})
    assert changed == full
    assert len(fake.asked) == 3


def test_an_interrupted_run_keeps_what_it_has_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    state = tmp_path / "state.json"
    Fake(monkeypatch, interrupted_at="03_block_sum.py")
    arguments = ("ladder", "cute", "--device", "cpu", "--state", str(state))
    code, output = run(*arguments)
    assert code == 130
    assert "cute/02_scales_once" in output
    assert list(read_steps(state)) == ["cute/01_template", "cute/02_scales_once"]
    fake = Fake(monkeypatch)
    code, _ = run(*arguments)
    assert code == 0
    assert [name for name, *_ in fake.asked] == [rung.path.name for rung in climb[2:13]]


def step_of(rung: Rung, **times_us: float) -> Step:
    """A step with counts and a time on each device."""
    on = {
        f"NVIDIA {device}": Judged(True, 20, True, geomean_us=time_us, retargeted=True)
        for device, time_us in times_us.items()
    }
    return Step(rung.name, rung.sha256, counts, {no_gpu: Judged(True, 20, True), **on})


def test_tables_show_counts_times_and_the_correlation() -> None:
    steps = {
        rung.name: step_of(rung, H100=rung.published_us or 50.0, H200=1 / (rung.published_us or 1))
        for rung in climb
    }
    found = correlations(climb, steps)
    assert {device: (round(value, 6), n) for device, (value, n) in found.items()} == {
        "NVIDIA H100": (1.0, 14),
        "NVIDIA H200": (-1.0, 14),
    }
    text = markdown(climb, steps)
    row = "| [01_template](cute/01_template.py) | pass | 2.50 | 2.00 | 0 | 40 | 75% |  | 100.0* |"
    assert row in text
    assert "NVIDIA H100, us" in text
    assert "correlation of measured and published times 1.00, over 14 rungs." in text


def test_tensor_cores_are_counted_where_a_rung_has_them() -> None:
    one, other = climb[:2]
    with_cores = replace(
        counts, tensor_instructions=512, tensor_cycles=17408, tensor_bytes=2_098_176
    )
    plain = {one.name: Step(one.name, one.sha256, counts)}
    steps = plain | {other.name: Step(other.name, other.sha256, with_cores)}
    cells = {each.heading: each.cells for each in climb_columns([one, other], steps, no_gpu)}
    assert cells["tensor\ninstr"] == ["", "512"]
    assert cells["tensor\ncycles"] == ["", "17,408"]
    assert cells["tensor\nKB"] == ["", "2,098"]
    assert "tensor\nKB" not in {each.heading for each in climb_columns([one], plain, no_gpu)}
    assert "| 75% | 512, 17,408, 2,098 |" in markdown([one, other], steps)


def test_tables_are_put_between_their_marks() -> None:
    page = "before\n<!-- tables -->\nold\n<!-- end of tables -->\nafter\n"
    assert with_tables(page, "new") == page.replace("old", "new")
    with pytest.raises(ValueError, match="unpack"):
        with_tables("no marks\n", "new")


def test_the_climb_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture, again = tmp_path / "climb.svg", tmp_path / "again.svg"
    steps = {rung.name: step_of(rung, H200=30.0) for rung in climb}
    draw_climb(load_problem(), climb, steps, picture)
    draw_climb(load_problem(), climb, steps, again)
    assert picture.read_bytes() == again.read_bytes()
    text = picture.read_text()
    for shown in ("published, B200", "measured, NVIDIA H200", "speed of light", climb[-1].name):
        assert shown in text


def test_a_state_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    assert read_steps(state) == {}
    steps = {rung.name: step_of(rung, H100=math.pi) for rung in climb[:2]}
    write_steps(state, steps)
    assert read_steps(state) == steps


@pytest.mark.parametrize("text", ["", "[]", '{"schema": 2}', '{"schema": 1, "rungs": {"a": {}}}'])
def test_another_file_is_no_state(tmp_path: Path, text: str) -> None:
    state = tmp_path / "state.json"
    state.write_text(text)
    with pytest.raises(SetupError, match="does not hold"):
        read_steps(state)


def test_a_rung_is_a_start_of_one_s_own(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    assert run("new", "--from", "cute/split_k_warp", "-o", str(mine))[0] == 0
    assert mine.read_text() == rung_text("cute/07_split_k_warp")
    code, output = run("new", "--from", "cute/split_k", "-o", str(mine), "--force")
    assert code == 2
    assert "cute/split_k_warp" in output
    assert run("new", "cuda", "--from", "cute/split_k_warp", "-o", str(mine))[0] == 2


def test_a_rung_is_judged_and_known_afterwards(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("cutlass")
    small = replace(load_problem(), benchmarks=["m: 128; k: 256; l: 1; seed: 1"])
    monkeypatch.setattr(command, "load_problem", lambda: small)
    monkeypatch.setattr(judging, "_with_registers", lambda counts, _: counts)
    state = tmp_path / "state.json"
    arguments = ["ladder", "cute/one_asm", "--quick", "--device", "cpu", "--state", str(state)]
    code, output = run(*arguments)
    assert code == 0, output
    (step,) = read_steps(state).values()
    assert step.on[no_gpu].full_range
    assert step.counts
    assert 2.0 < step.counts.instructions < 3.5
    assert 2.0 < step.counts.sectors < 4.0
    before = state.read_bytes()
    code, output = run(*arguments, "--json")
    assert code == 0
    assert state.read_bytes() == before
    (row,) = json.loads(output[output.index("{") :])["rungs"]
    assert row["published_us"] == 21.6
