"""Common parts of the extras of nvfp4_gemm, nvfp4_dual_gemm and nvfp4_group_gemm.

A product is (m, n, k, l): a [m, k, l] times b [n, k, l], both FP4 with an E4M3 scale for every 16
elements of k, into c [m, n, l] of float16.
"""

from collections.abc import Iterable, Sequence

Product = tuple[int, int, int, int]

_bytes_per_us = 7.68e6
"""7.68 TB/s: with `_flop_per_us`, this reproduces every time of the contests' tables for a B200."""

_flop_per_us = 6.9e9
"""6.9 PFLOP/s, FP4 with block scales at 1.5 GHz."""


def least_bytes_of(products: Iterable[Product], factors: int = 1) -> int:
    """Return the least bytes that the products must move, each with `factors` matrices b."""
    return sum(l * ((m + factors * n) * (k // 2 + k // 16) + 2 * m * n) for m, n, k, l in products)


def figures_of(products: Sequence[Product], factors: int = 1) -> dict[str, float]:
    """Return the speed of light of a B200 in microseconds, and the number of the products'
    elements."""
    elements = factors * sum(m * n * k * l for m, n, k, l in products)
    moved_us = least_bytes_of(products, factors) / _bytes_per_us
    return {"sol_us": max(moved_us, 2 * elements / _flop_per_us), "elements": float(elements)}


def _scales(rows: str, tiles: str) -> tuple[tuple[str, str], ...]:
    return (
        *((f"{rows} % 32", "32"), (f"{rows} // 32 % 4", "4"), (f"{rows} // 128", tiles)),
        *(("k block % 4", "4"), ("k block // 4", "rest_k"), ("batch", "l")),
    )


dimensions = {
    "a": (("row", "m"), ("byte of k", "k/2"), ("batch", "l")),
    "b": (("column", "n"), ("byte of k", "k/2"), ("batch", "l")),
    "sfa": (("row", "m"), ("k block", "k/16"), ("batch", "l")),
    "sfb": (("column", "n"), ("k block", "k/16"), ("batch", "l")),
    "sfa_permuted": _scales("row", "rest_m"),
    "sfb_permuted": _scales("column", "rest_n"),
    "c": (("row", "m"), ("column", "n"), ("batch", "l")),
}
"""Dimensions by the tensor's name, for messages."""
