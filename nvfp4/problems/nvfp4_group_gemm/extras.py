"""Facts about nvfp4_group_gemm that the contest's files lack; see docs/problems.md."""

from nvfp4.problems.fp4_gemm import Product, dimensions, figures_of, least_bytes_of

__all__ = ["dimensions"]

emulated_per_s = 1.3e9
"""About how many of its elements are emulated in a second: two cores of an AMD EPYC."""


def names(g: int, **_: object) -> list[str]:
    """Return the tensors of every group, in their order."""
    parts = (("a", "b", "c"), ("sfa", "sfb"), ("sfa_permuted", "sfb_permuted"))
    return [f"{name}[{group}]" for part in parts for group in range(g) for name in part]


def _products(m: list[int], n: list[int], k: list[int]) -> list[Product]:
    return [(*sizes, 1) for sizes in zip(m, n, k, strict=True)]


def least_bytes(m: list[int], n: list[int], k: list[int], **_: int) -> int:
    """Return the least a kernel must move: every a, b, their scales, and c."""
    return least_bytes_of(_products(m, n, k))


def figures(m: list[int], n: list[int], k: list[int], **_: int) -> dict[str, float]:
    """Return the contest's speed of light, and the number of elements that instructions are divided
    by."""
    return figures_of(_products(m, n, k))
