"""Each kernel, emulated as sm_100a, passes the contest's tests on tame and on full-range inputs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from importlib import import_module

import pytest
import torch

from nvfp4.emulation import Emulation, install
from reference import check_implementation, generate_full_range_input, generate_input, ref_kernel

pytest.importorskip("cutlass")

KERNELS = ("plain", "shared_memory", "warp_per_row", "cp_async", "tma", "packed")
# (m, k, l) of the contest's tests, without repetition.
SHAPES = (
    (128, 256, 1),
    (128, 1536, 1),
    (128, 3072, 1),
    (256, 7168, 1),
    (2432, 4608, 2),
    (384, 7168, 2),
    (512, 512, 2),
    (512, 4096, 2),
    (512, 1536, 2),
)

Data = tuple[torch.Tensor, ...]


@lru_cache(maxsize=1)
def case(shape: tuple[int, int, int], full_range: bool) -> tuple[Data, torch.Tensor]:
    """The contest's tuple and the expected result, made once for all kernels."""
    data = (generate_full_range_input if full_range else generate_input)(*shape, seed=1111)
    return data, ref_kernel(data)


@pytest.fixture(scope="module", autouse=True)
def emulation() -> Iterator[Emulation]:
    with install() as active:
        yield active


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("full_range", [False, True], ids=["contest", "full-range"])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
def test_a_kernel_passes(
    kernel: str, shape: tuple[int, int, int], full_range: bool, emulation: Emulation
) -> None:
    data, expected = case(shape, full_range)
    emulation.clear()
    data[-1].fill_(torch.nan)
    output = import_module(f"kernels.{kernel}").custom_kernel(data)
    passed, message = check_implementation(data, output, expected)
    assert passed, message
    assert [report.ctas_run for report in emulation.launches] == [
        report.ctas_total for report in emulation.launches
    ]
    assert len(emulation.launches) == 1
