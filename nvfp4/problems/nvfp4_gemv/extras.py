"""Facts about NVFP4 GEMV that the contest's files lack; see docs/problems.md."""

names = ("a", "b", "sfa", "sfb", "sfa_permuted", "sfb_permuted", "c")
"""Names of the tensors, in the order of ``custom_kernel``."""

check_case = {"m": 512, "k": 512, "l": 2, "seed": 1111}
"""The smallest test of the contest with several batches and more than one tile of 128 rows."""

awkward_case = {"m": 384, "k": 640, "l": 2, "seed": 1111}
"""A case that is not one of the contest's.

It has several batches; three tiles of 128 rows; ten groups of four scales and 2.5 blocks of 256
elements, so that power-of-two tiles do not divide it; c and the scales fill no whole page.
"""

_speed_of_light_us = {(7168, 16384, 1): 8.622, (4096, 7168, 8): 17.275, (7168, 2048, 4): 4.317}
"""The contest's published times of its benchmarks on a B200 at 1.5 GHz."""

_contest_floor_us = {(7168, 16384, 1): 14.9, (4096, 7168, 8): 27.2, (7168, 2048, 4): 8.7}
"""About the least that the contest's clock can show: measured by others on a B200, as reads after a
flush that leaves the L2 to be written back (5.35 TB/s), plus an empty kernel."""

_bytes_per_us = 8e6
"""8 TB/s, the memory bandwidth of a B200 by its datasheet."""

emulated_per_s = 5e7
"""About how many of its elements are emulated in a second: two cores of an AMD EPYC."""


def least_bytes(m: int, k: int, l: int, **_: int) -> int:
    """Return the least a kernel must move: a, row 0 of b, their scales, and c."""
    return l * ((m + 1) * (k // 2 + k // 16) + 2 * m)


def figures(m: int, k: int, l: int, **_: int) -> dict[str, float]:
    """Return the figures of a case: sol_us, b200_floor_us, and elements, by which instructions are
    divided."""
    known = {"sol_us": least_bytes(m, k, l) / _bytes_per_us, "elements": float(m * k * l)}
    if (m, k, l) in _contest_floor_us:
        known["sol_us"] = _speed_of_light_us[m, k, l]
        known["b200_floor_us"] = _contest_floor_us[m, k, l]
    return known
