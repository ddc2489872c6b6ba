"""A build that fails is tried with torch's own headers only where they may help."""

from __future__ import annotations

import pytest

from nvfp4.capture.cuda.headers_of_torch import torch_may_know


@pytest.mark.parametrize(
    ("error", "may"),
    [
        ('mine.py:12: error: identifier "totl" is undefined', False),
        ("mine.py:12: error: \u2018totl\u2019 was not declared in this scope", False),
        ("mine.py:3:10: fatal error: cute/tensor.hpp: No such file or directory", False),
        ("mine.py:3:10: fatal error: torch/nn.h: No such file or directory", True),
        ('mine.py:12: error: identifier "AT_DISPATCH_ALL_TYPES" is undefined', True),
        ('mine.py:12: error: namespace "at" has no member "softmax"', True),
        (
            "mine.py:12: error: \u2018class at::Tensor\u2019 has no member named \u2018fft\u2019",
            True,
        ),
        ('mine.py:12: error: expected a ";"', False),
        ('mine.py:1: error: identifier "x" is undefined\nmine.py:2: error: no operator "+"', True),
    ],
)
def test_what_torch_may_know(error: str, may: bool) -> None:
    assert torch_may_know(error, ["__global__ void k() {}"]) is may


def test_a_name_may_come_out_of_a_namespace_that_is_used() -> None:
    error = 'mine.py:12: error: identifier "empty_like" is undefined'
    assert torch_may_know(error, ["using namespace at;"])
    assert torch_may_know(error, ["using torch::empty_like;"])
    assert not torch_may_know(error, ["using namespace cooperative_groups;"])
