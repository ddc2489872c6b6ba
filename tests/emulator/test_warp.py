import numpy as np
import pytest
from ptx_harness import MINE, run


def ranges(*parts: tuple[int, int]) -> list[int]:
    """Consecutive lanes, from each first one up to the one before the last."""
    return [lane for first, last in parts for lane in range(first, last)]


# (mode, b, c) -> the lane that each lane reads, and the lanes whose source is out of range, which
# read their own. c has the clamp in bits 0-4 and the segment mask in bits 8-12.
SHUFFLES = [
    ("up", 1, 0, ranges((0, 1), (0, 31)), [0]),
    ("up", 31, 0, ranges((0, 31), (0, 1)), ranges((0, 31))),
    ("up", 4, 0x1800, ranges(*[(s, s + 4) for s in (0, 0, 8, 8, 16, 16, 24, 24)]),
     ranges((0, 4), (8, 12), (16, 20), (24, 28))),
    ("down", 1, 0x1F, ranges((1, 32), (31, 32)), [31]),
    ("down", 16, 0x1F, ranges((16, 32), (16, 32)), ranges((16, 32))),
    ("down", 4, 0x1807, ranges(*[(s, s + 4) for s in (4, 4, 12, 12, 20, 20, 28, 28)]),
     ranges((4, 8), (12, 16), (20, 24), (28, 32))),
    ("down", 2, 0x0F, ranges((2, 16), (14, 32)), ranges((14, 32))),
    ("bfly", 1, 0x1F, ranges(*[(s, s + 1) for pair in range(0, 32, 2) for s in (pair + 1, pair)]),
     []),
    ("bfly", 16, 0x1F, ranges((16, 32), (0, 16)), []),
    ("bfly", 16, 0x0F, ranges((0, 16), (0, 16)), ranges((0, 16))),
    ("bfly", 31, 0x1F, list(range(31, -1, -1)), []),
    ("idx", 0, 0x1F, [0] * 32, []),
    ("idx", 5, 0x1F, [5] * 32, []),
    ("idx", 9, 0x1807, [1] * 8 + [9] * 8 + [17] * 8 + [25] * 8, []),
    ("idx", 20, 0x0F, list(range(32)), list(range(32))),
]  # fmt: skip


@pytest.mark.parametrize(("mode", "b", "c", "source", "outside"), SHUFFLES)
def test_shfl_reads_the_lane_the_manual_says(
    mode: str, b: int, c: int, source: list[int], outside: list[int]
) -> None:
    """Worked out by hand from the PTX ISA, shfl.sync."""
    got, valid = np.zeros(32, np.uint32), np.zeros(32, np.uint32)
    body = f"""{MINE} shfl.sync.{mode}.b32 %r5|%p1, %r0, {b}, {c}, -1; st.global.u32 [%d0], %r5;
    selp.u32 %r6, 1, 0, %p1; sub.u64 %d1, %d0, %q0; add.u64 %d1, %d1, %q1;
    st.global.u32 [%d1], %r6;"""
    run(body, got, valid)
    assert got.tolist() == source
    assert np.flatnonzero(valid == 0).tolist() == outside
