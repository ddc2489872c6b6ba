"""GEMVs in CuTe DSL, an idea each: submissions that are right on both kinds of inputs.

Each file of kernels/ is loaded by its path, as a copy of it would be, and its launches are emulated
as sm_100a.
"""

import ast
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch
from corpus import load
from imports import packages_of

from nvfp4.contract.reference import (
    check_implementation,
    generate_full_range_input,
    generate_input,
    ref_kernel,
)
from nvfp4.emulation import Emulation, install
from nvfp4.tuner.space import load_submission

pytest.importorskip("cutlass")

kernels = {case.name: case for case in load(Path(__file__).resolve().parent / "kernels")}
# What a submission may import: packages that the contest's machines have, and the task.
public = {"functools", "typing", "torch", "cutlass", "cuda", "task"}
# Kernels that a call launches, where it is not one.
launches = {"split_k": 2}
# (m, k, l) of the contest's tests, without repetition.
shapes = (
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


@pytest.fixture(scope="module")
def module_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """Loads each file once: a module compiles its kernel when it is first called."""
    folder = tmp_path_factory.mktemp("kernels")
    return cache(lambda name: load_submission(kernels[name].write(folder)))


@pytest.fixture(scope="module")
def emulation() -> Iterator[Emulation]:
    with install() as active:
        yield active


@pytest.mark.parametrize("name", kernels)
@pytest.mark.parametrize("full_range", [False, True], ids=["contest", "full-range"])
@pytest.mark.parametrize("shape", shapes, ids=lambda shape: "x".join(map(str, shape)))
def test_a_kernel_passes(
    name: str,
    shape: tuple[int, int, int],
    full_range: bool,
    emulation: Emulation,
    module_of: Callable[[str], Any],
) -> None:
    data, expected = case(shape, full_range)
    emulation.clear()
    data[-1].fill_(torch.nan)
    output = module_of(name).custom_kernel(data)
    passed, message = check_implementation(data, output, expected)
    assert passed, message
    assert len(emulation.launches) == launches.get(name, 1)
    assert all(report.ctas_run == report.ctas_total for report in emulation.launches)


@pytest.mark.parametrize("name", kernels)
def test_a_kernel_is_a_complete_submission(name: str) -> None:
    source = kernels[name].source
    assert source.startswith("#!POPCORN leaderboard nvfp4_gemv\n#!POPCORN gpu NVIDIA\n")
    assert ast.get_docstring(ast.parse(source))
    assert packages_of(source) <= public
