"""When `nvfp4 compare` says faster, slower, same or unclear, and when it has rounds enough."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nvfp4.cli.compare.decision import (
    Change,
    Limits,
    Round,
    Waves,
    Word,
    change_of,
    compared,
    comparisons_of,
    in_all,
    mean_times_us,
    word_of,
)
from nvfp4.cli.compare.results import CountChange, count_changes

threshold = 0.005
swapped: dict[Word, Word] = {"faster": "slower", "slower": "faster"}
times_us = st.floats(1.0, 1e5)
rounds_of_two = st.lists(
    st.tuples(st.tuples(times_us, times_us), st.tuples(times_us, times_us)), min_size=3, max_size=6
)


def in_percent(*shares: float) -> Change:
    return Change(*(math.log1p(share / 100) for share in shares))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (in_percent(0, -0.49, 0.49), "same"),
        (in_percent(0.4, 0.3, 0.49), "same"),
        (in_percent(0, -0.6, 0.4), "unclear"),
        (in_percent(0.4, 0.1, 0.7), "unclear"),  # above zero, but not beyond the threshold
        (in_percent(0.6, 0.1, 1.1), "slower"),
        (in_percent(0.6, -0.1, 1.3), "unclear"),
        (in_percent(-0.6, -1.1, -0.1), "faster"),
        (in_percent(-0.4, -0.7, -0.1), "unclear"),
    ],
)
def test_the_word_of_an_interval(change: Change, word: str) -> None:
    assert word_of(change, threshold) == word


def test_the_change_is_a_share_of_the_baselines_time() -> None:
    found = compared([[10.0, 40.0]] * 3, [[11.0, 40.0]] * 3, threshold)
    assert [each.change.shares for each in found.shapes] == [
        pytest.approx((0.1, 0.1, 0.1)),
        pytest.approx((0.0, 0.0, 0.0)),
    ]
    assert found.total.change.shares[0] == pytest.approx(math.sqrt(1.1) - 1)
    assert (found.total.baseline_us, found.total.file_us) == pytest.approx((20.0, math.sqrt(440)))
    assert [each.word for each in (*found.shapes, found.total)] == ["slower", "same", "slower"]


@settings(max_examples=60, deadline=None)
@given(rounds_of_two)
def test_swapping_the_files_swaps_faster_and_slower(
    rounds: list[tuple[tuple[float, float], tuple[float, float]]],
) -> None:
    one, other = [row[0] for row in rounds], [row[1] for row in rounds]
    ahead, back = compared(one, other, threshold), compared(other, one, threshold)
    for a, b in zip((*ahead.shapes, ahead.total), (*back.shapes, back.total), strict=True):
        assert b.word == swapped.get(a.word, a.word)
        assert b.change.log == pytest.approx(-a.change.log)
        assert b.change.log_low == pytest.approx(-a.change.log_high, abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(rounds_of_two, st.floats(0.1, 10.0))
def test_what_slows_a_whole_round_down_changes_nothing(
    rounds: list[tuple[tuple[float, float], tuple[float, float]]], factor: float
) -> None:
    one, other = [row[0] for row in rounds], [row[1] for row in rounds]
    slow = [[tuple(us * factor for us in times[0]), *times[1:]] for times in (one, other)]
    found = compared(one, other, threshold).total.change
    drifted = compared(slow[0], slow[1], threshold).total.change
    assert drifted.shares == pytest.approx(found.shares)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1.0, 1.0), min_size=3, max_size=8))
def test_the_interval_is_around_the_estimate(logs: list[float]) -> None:
    found = change_of(logs)
    assert found.log_low <= found.log <= found.log_high
    assert found == change_of(logs)


def test_the_interval_has_the_truth_nine_times_of_ten() -> None:
    draw = random.Random(1)
    for count in (3, 5, 10):
        found = [change_of([draw.gauss(0, 1) for _ in range(count)]) for _ in range(400)]
        held = sum(each.log_low <= 0 <= each.log_high for each in found)
        assert 0.86 <= held / 400 <= 0.95, count


@pytest.mark.parametrize(
    ("words", "word"),
    [
        (["faster", "slower", "unclear"], "slower"),
        (["faster", "unclear", "same"], "unclear"),
        (["faster", "same"], "same"),
        (["faster", "faster"], "faster"),
    ],
)
def test_one_word_for_several_files(words: list[Word], word: str) -> None:
    assert in_all(words) == word


class Machine:
    """Times files in waves, with a clock of its own. factors: how long each takes. scatter: of a
    process, a standard deviation; all shapes of a process share half of it in variance.
    """

    def __init__(
        self, factors: Sequence[float], scatter: float, seed: int, at_once: int = 8
    ) -> None:
        self.now_s = 0.0
        self._factors, self._scatter, self._at_once = factors, scatter, at_once
        self._draw = random.Random(seed)

    def wave(self) -> list[list[list[float]]]:
        self.now_s += 20.0
        drift = self._draw.gauss(0, 0.01)
        return [
            [self._process(factor, drift) for factor in self._factors] for _ in range(self._at_once)
        ]

    def _process(self, factor: float, drift: float) -> list[float]:
        deviation = self._scatter / math.sqrt(2)
        common = drift + self._draw.gauss(0, deviation)
        return [
            us * factor * math.exp(common + self._draw.gauss(0, deviation))
            for us in (25.1, 45.5, 14.7)
        ]

    def compare(self, limits: Limits) -> Waves:
        waves = Waves(limits, threshold, clock=lambda: self.now_s)
        while waves.end is None:
            waves.add(self.wave())
        return waves


def words_of(factor: float, count: int, first_seed: int) -> Counter[str]:
    """The verdicts of so many comparisons of a file with one that takes a factor of its time, on a
    machine with a process scatter of 0.4 %.
    """
    words: Counter[str] = Counter()
    for seed in range(first_seed, first_seed + count):
        machine = Machine([1.0, factor], 0.004, seed)
        waves = machine.compare(Limits(80.0))
        words[comparisons_of(waves.rounds, threshold)[0].total.word] += 1
        assert machine.now_s <= 80.0
    return words


def test_a_copy_is_the_same_in_nineteen_of_twenty_comparisons() -> None:
    words = words_of(1.0, 100, 0)
    assert words["same"] >= 95
    assert words["faster"] + words["slower"] <= 1


def test_what_is_one_per_cent_slower_is_slower_in_nine_of_ten() -> None:
    assert words_of(1.01, 50, 1000)["slower"] >= 45
    assert words_of(1 / 1.01, 50, 2000)["faster"] >= 45


@pytest.mark.parametrize(
    ("scatter", "at_once", "limits", "count", "end"),
    [
        (0.0, 8, Limits(90.0), 16, "clear"),  # the same verdict twice in a row
        (0.0, 1, Limits(90.0), 4, "clear"),  # the first time it has three rounds
        (0.2, 8, Limits(70.0), 24, "limit"),
        (0.2, 1, Limits(0.0), 3, "limit"),
        (0.2, 2, Limits(0.0), 4, "limit"),
        (0.0, 8, Limits(0.0), 8, "limit"),
        (0.0, 1, Limits(0.0, rounds=7), 7, "rounds"),
        (0.2, 4, Limits(90.0, rounds=8), 8, "rounds"),
    ],
)
def test_when_the_rounds_end(
    scatter: float, at_once: int, limits: Limits, count: int, end: str
) -> None:
    waves = Machine([1.0, 1.0], scatter, 5, at_once).compare(limits)
    assert (len(waves.rounds), waves.end) == (count, end)
    assert [each.wave for each in waves.rounds] == [1 + n // at_once for n in range(count)]


@pytest.mark.parametrize(("waves_before", "enough"), [(0, False), (1, False), (2, True)])
def test_an_interrupt_leaves_whole_rounds_if_they_are_enough(
    waves_before: int, enough: bool
) -> None:
    waves = Waves(Limits(1e9), threshold)
    machine = Machine([1.0, 1.0], 0.2, 5, at_once=2)
    for _ in range(waves_before):
        waves.add(machine.wave())
    assert waves.cut_short("interrupted") is enough
    assert waves.end == "interrupted"


def test_the_mean_of_a_wave_is_over_its_rounds_and_shapes() -> None:
    rounds = [Round(1, ((10.0, 40.0), (5.0, 5.0))), Round(1, ((20.0, 20.0), (5.0, 20.0)))]
    assert mean_times_us(rounds) == pytest.approx([20.0, (5 * 5 * 5 * 20) ** 0.25])


def test_counts_that_both_have_are_compared() -> None:
    one = {"warp_instructions_total": 200, "bank_conflicts": 0, "divergent_branches": 4}
    other = {"warp_instructions_total": 150, "bank_conflicts": 8, "divergent_branches": 4}
    assert count_changes(one, {**other, "sectors_requested": 7}) == {
        "warp_instructions_total": CountChange(200, 150, -0.25),
        "bank_conflicts": CountChange(0, 8, None),
        "divergent_branches": CountChange(4, 4, 0.0),
    }
