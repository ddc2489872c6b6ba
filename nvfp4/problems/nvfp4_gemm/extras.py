"""Facts about nvfp4_gemm that the contest's files lack; see docs/problems.md."""

from nvfp4.problems.fp4_gemm import dimensions, figures_of, least_bytes_of

__all__ = ["dimensions"]

names = ("a", "b", "sfa", "sfb", "sfa_permuted", "sfb_permuted", "c")

check_case = {"m": 128, "n": 3072, "k": 1536, "l": 1, "seed": 1111}
"""The smallest test of the contest with several tiles of n and of k."""

emulated_per_s = 1.2e9
"""Rough number of elements that are emulated in a second, on two cores of an AMD EPYC."""


def least_bytes(m: int, n: int, k: int, l: int, **_: int) -> int:
    """Return the least a kernel must move: a, b, their scales, and c."""
    return least_bytes_of([(m, n, k, l)])


def figures(m: int, n: int, k: int, l: int, **_: int) -> dict[str, float]:
    """Return the contest's speed of light, and the number of elements that instructions are divided
    by."""
    return figures_of([(m, n, k, l)])
