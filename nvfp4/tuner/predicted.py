"""A search without a GPU: a model says what a call of a configuration would take on one.

A prediction takes seconds, so that not the whole space is predicted: the search goes from the best
configuration to those that differ in one field, until none is better.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from nvfp4.emulation import install_stand_in
from nvfp4.emulator import Launch
from nvfp4.model.counting import Samples, accesses_of, sampled
from nvfp4.model.prediction import GPUS, predict
from nvfp4.problems.nvfp4_gemv import reference
from nvfp4.tuner.space import Key, Shape, name_of, sentence
from nvfp4.tuner.table import Choice

_SEED = 1111
_WARP_INSTRUCTIONS = 50_000
"""Executed of a launch; the CTAs that did not run count as those that did."""

_SHOWN = 8


@dataclass(frozen=True)
class Ranked:
    """A configuration whose output is right, and the microseconds predicted for a call."""

    name: str
    configuration: Any
    us: float
    low_us: float
    high_us: float


class ModelBench:
    """Kernels are compiled for the model's GPU and emulated. A with block; it must begin before the
    submission is imported."""

    def __init__(self, model: str, submission: Path) -> None:
        self._gpu = GPUS[model]
        self.name = f"{model}, predicted"
        self.capability = int("".join(filter(str.isdigit, self._gpu.arch)))
        self.memory_gbps = max(gbps for _, gbps in self._gpu.clean) / self._gpu.sms
        self._emulation = install_stand_in(submission, self._gpu.arch, check=False)
        self._gemv: Callable[..., Any] = lambda *_: None
        self._data: Any = None
        self._expected: Any = None

    def __enter__(self) -> ModelBench:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._emulation.uninstall()

    def open(self, submission: Any, shape: Shape) -> None:
        """Makes full-range inputs of a shape."""
        self._data = reference.generate_full_range_input(*shape, _SEED)
        self._expected = None
        self._gemv = submission.gemv

    def predicted_us(self, configuration: Any) -> float:
        """Of one call. Raises what the submission or the emulator does."""
        asked: list[Samples] = []

        def look(launch: Launch) -> None:
            asked.append(accesses_of(launch))

        self._emulation.count_by_line(_WARP_INSTRUCTIONS, look)
        try:
            self._gemv(self._data, configuration)
            costs = list(self._emulation.costs)
        finally:
            self._emulation.count_by_line(None)
        return predict(self._gpu, list(map(sampled, costs, asked))).us

    def refusal(self, configuration: Any) -> str | None:
        """Why a configuration cannot be ranked: it fails, or its output is wrong."""
        if self._expected is None:
            self._expected = reference.ref_kernel(self._data)
        self._data[6].fill_(float("nan"))
        self._emulation.begin_call()
        try:
            output = self._gemv(self._data, configuration)
            self._emulation.output(output)
        except Exception as error:
            return sentence(error)
        right, message = reference.check_implementation(self._data, output, self._expected)
        return None if right else str(message).splitlines()[0]

    def ranked(self, name: str, configuration: Any, us: float) -> Ranked:
        """With the interval that holds the truth in four cases of five."""
        return Ranked(name, configuration, us, us * self._gpu.low, us * self._gpu.high)


def neighbours(space: dict[str, Any], name: str) -> list[str]:
    """Those that differ from a configuration in one field."""
    own = dataclasses.astuple(space[name])

    def differences(other: Any) -> int:
        return sum(a != b for a, b in zip(own, dataclasses.astuple(other), strict=True))

    return [each for each, other in space.items() if differences(other) == 1]


def climb(
    bench: ModelBench,
    space: dict[str, Any],
    first: list[str],
    times: dict[str, list[float]],
    say: Callable[[str], None],
) -> None:
    """Predicts the first configurations, then the neighbours of the best one so far, until none of
    them is better. times: by name, what is known already and what is found."""
    failed: set[str] = set()
    wanted = first
    while True:
        for name in wanted:
            if name in failed or times.get(name):
                continue
            try:
                times[name] = [bench.predicted_us(space[name])]
            except Exception as error:
                failed.add(name)
                say(f"{name} left out: {sentence(error)}")
        known = [name for name in space if times.get(name)]
        if not known:
            return
        best = min(known, key=lambda each: times[each][0])
        say(f"{len(known)} of {len(space)} predicted, the best {best}, {times[best][0]:.2f} us")
        wanted = [name for name in neighbours(space, best) if name not in {*known, *failed}]
        if not wanted:
            return


def right_ones(
    bench: ModelBench,
    space: dict[str, Any],
    times: dict[str, list[float]],
    say: Callable[[str], None],
) -> list[Ranked]:
    """The best configurations whose output is right, the fastest first."""
    found: list[Ranked] = []
    known = [name for name in space if times.get(name)]
    for name in sorted(known, key=lambda each: times[each][0]):
        why = bench.refusal(space[name])
        if why is not None:
            say(f"{name} left out: {why}")
            continue
        found.append(bench.ranked(name, space[name], times[name][0]))
        if len(found) == _SHOWN:
            break
    return found


def lines_of(ranking: list[Ranked]) -> list[str]:
    """The ranking as a table."""
    best = ranking[0]
    width = max(len("configuration"), *(len(each.name) for each in ranking))
    lines = [f"  {'configuration':{width}}  predicted     four cases in five  to the best"]
    for each in ranking:
        interval = f"[{each.low_us:.2f}, {each.high_us:.2f}]"
        tied = " not told apart" if each is not best and each.low_us <= best.high_us else ""
        ratio = each.us / best.us
        lines.append(f"  {each.name:{width}}  {each.us:9.2f}  {interval:>21}  x {ratio:.3f}{tied}")
    return lines


def choose(
    bench: ModelBench,
    submission: Any,
    table: Key,
    shape: Shape,
    say: Callable[..., None],
) -> Choice | None:
    """What the model says of one shape. None if no configuration is right. The table should change
    only where the gain is larger than the model's error."""
    listed = list(submission.configurations(*shape, bench.capability))
    present = submission.tables[table].get(shape, listed[0])
    space = {name_of(each): each for each in [present, *listed]}
    bench.open(submission, shape)
    times: dict[str, list[float]] = {}
    climb(bench, space, [name_of(present), name_of(listed[0])], times, say)
    ranking = right_ones(bench, space, times, say)
    if not ranking:
        return None
    best, lines = ranking[0], lines_of(ranking)
    us = times.get(name_of(present), [math.inf])[0]
    gains = best.high_us < bench.ranked("", present, us).low_us
    if not gains:
        lines.append(f"  {name_of(present)}, as today: {us:.2f}; the gain is within the error")
    return Choice(lines, best.name, best.configuration, gains)
