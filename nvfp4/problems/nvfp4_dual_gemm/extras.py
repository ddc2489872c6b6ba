"""Facts about nvfp4_dual_gemm that the contest's files lack; see docs/problems.md."""

from nvfp4.problems.fp4_gemm import dimensions, figures_of, least_bytes_of

__all__ = ["dimensions"]

_scales = ("sfa", "sfb1", "sfb2")
names = ("a", "b1", "b2", *_scales, *(f"{each}_permuted" for each in _scales), "c")

check_case = {"m": 512, "n": 768, "k": 7168, "l": 1, "seed": 1111}
"""The smallest test of the contest with several tiles of every dimension."""

emulated_per_s = 8e8
"""Rough number of elements that are emulated in a second, on two cores of an AMD EPYC."""


def least_bytes(m: int, n: int, k: int, l: int, **_: int) -> int:
    """Return the least a kernel must move: a, both b, their scales, and c."""
    return least_bytes_of([(m, n, k, l)], factors=2)


def figures(m: int, n: int, k: int, l: int, **_: int) -> dict[str, float]:
    """Return the contest's speed of light, and the number of elements that instructions are divided
    by."""
    return figures_of([(m, n, k, l)], factors=2)
