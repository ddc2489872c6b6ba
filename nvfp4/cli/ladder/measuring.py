"""Judges rungs of the ladder, one after the other; counts the warps that an SM of a B200 holds."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace

from nvfp4.cli.explain.command import ExplainOptions, explain
from nvfp4.cli.judging.assess import Observer, Plan, assess
from nvfp4.cli.judging.bot import Bot
from nvfp4.cli.judging.build_ahead import BuildAhead
from nvfp4.cli.judging.check import contest_shape
from nvfp4.cli.judging.info import capability_of, inspect
from nvfp4.cli.ladder.results import Counts, Judged, Rung, Step, Steps, counted_shape, no_gpu
from nvfp4.cli.problem import Problem, case_line
from nvfp4.cli.verdict import BenchmarkResult, Submission, Verdict
from nvfp4.records.options import Options
from nvfp4.records.prediction import geometric_mean

_arch = "sm_100a"
_seed = 1111


@dataclass(frozen=True)
class Climber:
    """Judges rungs on a device. quick: one test of each kind instead of all. capability: of the
    GPU, None without one. observed: tells a person what happens while a rung is judged.
    """

    problem: Problem
    device: str
    flush: str
    quick: bool
    label: str
    capability: str | None
    observed: Callable[[], AbstractContextManager[Observer]]

    @property
    def on_gpu(self) -> bool:
        return self.capability is not None

    def climb(self, rungs: Sequence[Rung], known: Steps) -> Generator[Step]:
        """A step for each rung; what is known of the same file is not judged again. The next ones
        are built meanwhile.

        Raises SetupError, and KeyboardInterrupt where the user stops it.
        """
        begun: dict[str, Future[None]] = {}
        with BuildAhead([self.capability]) as ahead:
            for rung in rungs:
                if not self._is_judged(_step_so_far(rung, known)):
                    bot = self._bot(rung, rung.path.read_bytes(), self.device)
                    begun[rung.name] = ahead.begin(bot)
            for rung in rungs:
                if rung.name in begun:
                    begun[rung.name].result()
                yield self._step(rung, known)

    def _is_judged(self, step: Step) -> bool:
        found = step.on.get(self.label)
        wanted = len(self._plan().all_tests)
        return found is not None and not found.unclear and found.tests >= wanted

    def _step(self, rung: Rung, known: Steps) -> Step:
        content = rung.path.read_bytes()
        step, plan = _step_so_far(rung, known), self._plan()
        if not self._is_judged(step):
            verdict = self._judge(rung, content, plan, self.device)
            if not self.on_gpu:
                step = replace(step, counts=_counts(verdict.benchmarks))
            step = replace(step, on={**step.on, self.label: _judged(verdict)})
        if step.counts is None and step.on[self.label].passed:
            verdict = self._judge(rung, content, Plan([], [_counted()]), "cpu")
            step = replace(step, counts=_counts(verdict.benchmarks))
        if step.counts is not None and step.counts.registers is None:
            step = replace(step, counts=_with_registers(step.counts, content))
        return step

    def _plan(self) -> Plan:
        m, k, l = contest_shape
        small = case_line({"m": m, "k": k, "l": l, "seed": _seed})
        tests = [small] if self.quick else self.problem.tests
        benchmarks = self.problem.benchmarks
        if not self.on_gpu:
            benchmarks = [_counted(), *benchmarks]
        return Plan(tests, benchmarks, run_alone=False, repeat=False)

    def _judge(self, rung: Rung, content: bytes, plan: Plan, device: str) -> Verdict:
        bot = self._bot(rung, content, device)
        verdict = Verdict(Submission(str(rung.path), rung.sha256))
        with self.observed() as observer:
            assess(bot, plan, verdict, observer)
        if verdict.interrupted:
            raise KeyboardInterrupt
        return verdict

    def _bot(self, rung: Rung, content: bytes, device: str) -> Bot:
        options = Options(device=device, flush=self.flush, name=rung.path.name)
        return Bot(self.problem, content, options)


def _step_so_far(rung: Rung, known: Steps) -> Step:
    """What is known of the same file, or an empty step."""
    found = known.get(rung.name)
    return found if found and found.sha256 == rung.sha256 else Step(rung.name, rung.sha256)


def climber(
    problem: Problem,
    device: str,
    flush: str,
    quick: bool,
    observed: Callable[[], AbstractContextManager[Observer]],
) -> Climber:
    """One for the GPU, or for the emulator where there is none. Raises SetupError."""
    capability = capability_of(device)
    label = no_gpu
    if capability:
        label = inspect(problem, device, flush).device.name
        label += ", clean flush" if flush == "clean" else ""
    return Climber(problem, device, flush, quick, label, capability, observed)


def _counted() -> str:
    return case_line({**asdict(counted_shape), "seed": _seed})


def _judged(verdict: Verdict) -> Judged:
    why = verdict.mistake or verdict.decider
    full = [each for each in verdict.tests if each.inputs == "full"]
    means = {each.spec: each.mean_us for each in verdict.benchmarks if each.mean_us}
    ranked = [each.predicted for each in verdict.benchmarks if each.spec != _counted()]
    predicted = geometric_mean(ranked)
    return Judged(
        passed=verdict.passed,
        tests=len(verdict.tests),
        full_range=bool(full) and all(each.status == "pass" for each in full),
        message=why.message if why else None,
        geomean_us=verdict.score.geomean_us,
        mean_us=means or None,
        retargeted=bool(verdict.device and verdict.device.retargeted),
        unclear=verdict.unclear,
        predicted_us=predicted.us if predicted else None,
        predicted_low_us=predicted.low_us if predicted else None,
        predicted_high_us=predicted.high_us if predicted else None,
    )


def _counts(benchmarks: list[BenchmarkResult]) -> Counts | None:
    """Of the one benchmark, None where it was not emulated to its end."""
    found = benchmarks[0].emulation if benchmarks else None
    if found is None:
        return None
    elements = counted_shape.m * counted_shape.k * counted_shape.l
    return Counts(
        instructions=32 * found["warp_instructions_total"] / elements,
        sectors=found["sectors_requested"] / max(found["sectors_distinct"], 1),
        bank_conflicts=found["bank_conflicts"],
        tensor_instructions=found.get("tensor_instructions", 0),
        tensor_cycles=found.get("tensor_cycles", 0),
        tensor_bytes=found.get("tensor_bytes_read", 0) + found.get("tensor_bytes_written", 0),
    )


def _with_registers(counts: Counts, content: bytes) -> Counts:
    (explained,) = explain(content, [_counted()], ExplainOptions(arch=_arch))
    if not explained.kernels:
        return counts
    kernel = max(explained.kernels, key=lambda each: each.slots)
    registers = kernel.assembled_registers
    if registers is None:
        return counts
    x, y, z = kernel.block
    return replace(
        counts,
        registers=registers,
        spilled_bytes=kernel.spilled_bytes,
        warps_per_sm=warps_per_sm(x * y * z, registers, kernel.shared_bytes),
    )


most_warps = 64
_most_ctas = 32
_registers = 64 << 10
_shared_bytes = 228 << 10
_reserved_bytes = 1 << 10
"""Of shared memory, which the system takes from each CTA."""

_warp_registers = 256
"""Registers are given to a warp in multiples of these."""

_quarters = 4
"""An SM's registers are in four parts, and a warp has all its own in one."""

_shared_unit_bytes = 128


def warps_per_sm(threads: int, registers: int, shared_bytes: int) -> int:
    """Warps that an SM holds of CTAs with so many threads and shared bytes; registers: a thread's.

    0 where not even one CTA fits.
    """
    warps = _rounded_up(threads, 32) // 32
    by_registers = _registers // _quarters // _rounded_up(32 * max(registers, 1), _warp_registers)
    shared = _rounded_up(shared_bytes + _reserved_bytes, _shared_unit_bytes)
    ctas = min(
        _most_ctas,
        most_warps // warps,
        _quarters * by_registers // warps,
        _shared_bytes // shared,
    )
    return ctas * warps


def _rounded_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
