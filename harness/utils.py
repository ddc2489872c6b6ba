"""The helpers that lie beside a submission in the contest, under the contest's names."""

import os
import random
from collections.abc import Callable
from typing import Any

import torch


def set_seed(seed: int = 42) -> None:
    """Seeds Python's and torch's generators."""
    random.seed(seed)
    torch.manual_seed(seed)


def get_device(use_cuda: bool = True) -> torch.device:
    """CUDA where it is there and wanted, else the CPU."""
    return torch.device("cuda" if use_cuda and torch.cuda.is_available() else "cpu")


def verbose_allclose(
    received: torch.Tensor,
    expected: torch.Tensor,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    max_print: int = 5,
) -> tuple[bool, list[str]]:
    """Whether ``|received - expected| <= atol + rtol * |expected|`` everywhere, NaN and infinity
    only where expected; if not, what differs, ``max_print`` places of it.
    """
    if received.shape != expected.shape:
        return False, [f"shapes differ: {list(received.shape)} and {list(expected.shape)}"]
    wrong = (received - expected).abs() > atol + rtol * expected.abs()
    for kind in (torch.isnan, torch.isposinf, torch.isneginf):
        wrong |= kind(received) != kind(expected)
    return _described(received, expected, wrong, max_print)


def verbose_allequal(
    received: torch.Tensor, expected: torch.Tensor, max_print: int = 5
) -> tuple[bool, list[str]]:
    """Whether two tensors are equal; if not, what differs, ``max_print`` places of it."""
    if received.shape != expected.shape:
        return False, [f"shapes differ: {list(received.shape)} and {list(expected.shape)}"]
    return _described(received, expected, received != expected, max_print)


def _described(
    received: torch.Tensor, expected: torch.Tensor, wrong: torch.Tensor, max_print: int
) -> tuple[bool, list[str]]:
    places = wrong.nonzero().tolist()
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
    """Whether an output is close to that of a reference, and what differs."""
    passed, lines = verbose_allclose(output, reference(data), rtol, atol)
    return passed, "\n".join(lines)


def make_match_reference(
    reference: Callable[[Any], torch.Tensor], **tolerances: float
) -> Callable[[Any, torch.Tensor], tuple[bool, str]]:
    """``match_reference`` with a reference and tolerances."""
    return lambda data, output: match_reference(data, output, reference, **tolerances)


class DeterministicContext:
    """Deterministic algorithms of torch and cuBLAS inside a with block."""

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
    """Replaces what the L2 cache holds."""
    if torch.cuda.is_available():
        torch.empty(256 << 20, dtype=torch.uint8, device="cuda").fill_(1)
