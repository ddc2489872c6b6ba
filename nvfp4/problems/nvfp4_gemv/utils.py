"""The helpers that the contest puts beside a submission."""

import os
import random
from collections.abc import Callable
from typing import Any

import torch


def set_seed(seed: int = 42) -> None:
    random.seed(seed)
    torch.manual_seed(seed)


def get_device(use_cuda: bool = True) -> torch.device:
    return torch.device("cuda" if use_cuda and torch.cuda.is_available() else "cpu")


def verbose_allclose(
    received: torch.Tensor,
    expected: torch.Tensor,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    max_print: int = 5,
) -> tuple[bool, list[str]]:
    """Return whether ``|received - expected| <= atol + rtol * |expected|``, NaN and infinity
    matching, and the first differences."""

    def wrong() -> torch.Tensor:
        differ = (received - expected).abs() > atol + rtol * expected.abs()
        for kind in (torch.isnan, torch.isposinf, torch.isneginf):
            differ |= kind(received) != kind(expected)
        return differ

    return _compare(received, expected, wrong, max_print)


def verbose_allequal(
    received: torch.Tensor, expected: torch.Tensor, max_print: int = 5
) -> tuple[bool, list[str]]:
    """Return whether two tensors are equal, and the first differences."""
    return _compare(received, expected, lambda: received != expected, max_print)


def _compare(
    received: torch.Tensor,
    expected: torch.Tensor,
    wrong: Callable[[], torch.Tensor],
    max_print: int,
) -> tuple[bool, list[str]]:
    if received.shape != expected.shape:
        return False, [f"shapes differ: {list(received.shape)} and {list(expected.shape)}"]
    places = wrong().nonzero().tolist()
    if not places:
        return True, []
    lines = [f"{len(places)} elements differ"]
    for place in places[:max_print]:
        got, want = received[tuple(place)].item(), expected[tuple(place)].item()
        lines.append(f"at {tuple(place)}: {got}, expected {want}")
    return False, lines


def match_reference(
    data: Any,
    output: torch.Tensor,
    reference: Callable[[Any], torch.Tensor],
    rtol: float = 1e-5,
    atol: float = 1e-8,
) -> tuple[bool, str]:
    passed, lines = verbose_allclose(output, reference(data), rtol, atol)
    return passed, "\n".join(lines)


def make_match_reference(
    reference: Callable[[Any], torch.Tensor], **tolerances: float
) -> Callable[[Any, torch.Tensor], tuple[bool, str]]:
    return lambda data, output: match_reference(data, output, reference, **tolerances)


class DeterministicContext:
    """Inside a with block torch and cuBLAS are deterministic."""

    def __enter__(self) -> "DeterministicContext":
        self._before = (
            torch.are_deterministic_algorithms_enabled(),
            torch.backends.cudnn.deterministic,
            os.environ.get("CUBLAS_WORKSPACE_CONFIG", ""),
        )
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.deterministic = True
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        return self

    def __exit__(self, *error: object) -> None:
        algorithms, cudnn, workspace = self._before
        torch.use_deterministic_algorithms(algorithms)
        torch.backends.cudnn.deterministic = cudnn
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = workspace


def clear_l2_cache() -> None:
    if torch.cuda.is_available():
        torch.empty(256 << 20, dtype=torch.uint8, device="cuda").fill_(1)
