"""The search for the fastest configuration and the table it is written to, without a GPU."""

# mypy: allow-untyped-defs

import random
import statistics
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nvfp4.tuner.search import Search, median_interval
from nvfp4.tuner.table import with_entry


@dataclass
class Configuration:
    """As the submission's."""

    threads_k: int
    groups: int
    rows: int
    pieces: int
    bytes: int
    resident: int


source = """\
import x

# kept
tables = {
    80: {
        (1, 64, 1): Configuration(8, 4, 1, 1, 16, 1024),
        (2, 64, 1): Configuration(
            8, 4, 1, 1, 16, 1024
        ),
    },
    100: {},
}
after = 1
"""


def noisy(true_us: dict[str, float], seed: int = 1):
    """A timer whose samples are the true time and up to 10 % more."""
    draw = random.Random(seed)
    counts = dict.fromkeys(true_us, 0)

    def time_us(candidate: str) -> float:
        counts[candidate] += 1
        return true_us[candidate] * (1 + 0.1 * draw.random())

    return time_us, counts


def test_a_search_ends_when_one_contender_is_left():
    time_us, counts = noisy({"best": 10.0, "far": 20.0})
    Search(time_us, calls=1000).run(counts)
    assert counts == {"best": 3, "far": 3}


def test_progress_reports_every_round_and_who_is_left():
    time_us, counts = noisy({"best": 10.0, "near": 10.05, "hopeless": 20.0})
    seen = []
    Search(time_us, calls=12).run(counts, lambda done, alive, times: seen.append((done, *alive)))
    assert [done for done, *_ in seen] == [3, 6, 12]
    assert all("hopeless" not in alive for _, *alive in seen)


def test_an_empty_space_is_refused():
    with pytest.raises(ValueError, match="no candidate"):
        Search(lambda _: 1.0).run([])


@given(st.lists(st.floats(0.1, 1e6), min_size=1, max_size=200))
def test_the_interval_of_a_median_holds_the_median(samples):
    low, high = median_interval(samples)
    assert min(samples) <= low <= statistics.median(samples) <= high <= max(samples)


def test_the_interval_of_a_median_covers_it_about_95_times_in_100():
    draw = random.Random(3)
    covered = 0
    for _ in range(1000):
        low, high = median_interval(draw.random() for _ in range(40))
        covered += low <= 0.5 <= high
    assert 930 <= covered <= 985


def test_an_entry_of_several_lines_is_replaced_by_one():
    changed = with_entry(source, 80, (2, 64, 1), Configuration(16, 2, 1, 1, 16, 1024))
    assert "        (2, 64, 1): Configuration(16, 2, 1, 1, 16, 1024),\n    },\n" in changed


@pytest.mark.parametrize(
    ("table", "text", "reason"),
    [(90, source, "no table 90"), (80, "a = 1\n", "must assign"), (100, source, "line of its own")],
)
def test_a_table_that_cannot_be_written_says_why(table, text, reason):
    with pytest.raises(ValueError, match=reason):
        with_entry(text, table, (9, 64, 1), Configuration(8, 4, 1, 1, 16, 1024))


@pytest.mark.parametrize(
    "entries",
    [
        "        (1, 64, 1): C(1), (2, 64, 1): C(2),\n",
        "        (2, 64, 1): C(2)\n",
        "        (2, 64, 1): C(2), (1, 64,\n            1): C(1),\n",
    ],
)
def test_entries_that_share_a_line_are_not_lost(entries):
    text = f"tables = {{\n    80: {{\n{entries}    }},\n}}\n"
    with pytest.raises(ValueError, match="lines of its own"):
        with_entry(text, 80, (1, 64, 1), Configuration(8, 4, 1, 1, 16, 1024))
