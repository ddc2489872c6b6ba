"""Sets of addresses."""

from __future__ import annotations

import random

from nvfp4.records.ranges import Ranges


def test_ranges_are_what_sets_of_numbers_would_be() -> None:
    draw = random.Random(7)
    for _ in range(200):
        ranges, numbers = Ranges(), set()
        for _ in range(draw.randrange(12)):
            start = draw.randrange(40)
            end = start + 1 + draw.randrange(9)
            if draw.random() < 0.7:
                ranges.add(start, end)
                numbers |= set(range(start, end))
            else:
                ranges.remove(start, end)
                numbers -= set(range(start, end))
        assert [n for a, b in ranges for n in range(a, b)] == sorted(numbers)
        assert all(b < c for (_, b), (c, _) in zip(list(ranges), list(ranges)[1:], strict=False))
        start = draw.randrange(30)
        asked = set(range(start, start + 15))
        inside = {n for a, b in ranges.within(start, start + 15) for n in range(a, b)}
        outside = {n for a, b in ranges.outside(start, start + 15) for n in range(a, b)}
        assert inside == asked & numbers
        assert outside == asked - numbers
