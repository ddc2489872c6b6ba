"""Tuning as people write it: each configuration runs at most once, the first that works is kept."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("cutlass")

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute import testing
from cutlass.cute.runtime import from_dlpack

from nvfp4 import emulation
from nvfp4.emulator.errors import OutOfBounds
from nvfp4.records.launch_errors import NeedsGpu

# Later versions want the functions of cutlass.testing to be used.
pytestmark = pytest.mark.filterwarnings("ignore:cute.testing:DeprecationWarning")

N = 128


@pytest.fixture
def emulated() -> Iterator[emulation.Emulation]:
    with emulation.install() as active:
        yield active


@cute.kernel
def add_one_kernel(x: cute.Tensor, y: cute.Tensor, shift: cutlass.Constexpr) -> None:
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    bdim, _, _ = cute.arch.block_dim()
    i = bidx * bdim + tidx
    y[i + shift] = x[i] + 1


@cute.jit
def add_one(
    x: cute.Tensor, y: cute.Tensor, threads: cutlass.Constexpr, shift: cutlass.Constexpr
) -> None:
    add_one_kernel(x, y, shift).launch(grid=(N // threads, 1, 1), block=(threads, 1, 1))


def tensors() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(float(N)), torch.zeros(N)


def tried(runs: list[dict[str, Any]]) -> Callable[..., Callable[[], Any]]:
    """A function for `tune` that remembers what it was given."""

    def make(x: Any, y: Any, threads: int, shift: int = 0) -> Callable[[], Any]:
        compiled = cute.compile(add_one, x, y, threads, shift)
        runs.append({"threads": threads, "shift": shift})
        return lambda: compiled(x, y)

    return make


def test_tune_keeps_the_first_configuration_that_works(emulated: emulation.Emulation) -> None:
    x, y = tensors()
    runs: list[dict[str, Any]] = []
    config = testing.tune(
        tried(runs),
        params_dict={"threads": [2048, 64, 32]},  # a block has at most 1024 threads
        kernel_arguments=testing.JitArguments(from_dlpack(x), from_dlpack(y)),
    )
    assert config == {"threads": 64}
    assert [run["threads"] for run in runs] == [2048, 64]
    assert torch.equal(y, x + 1)
    assert emulated.launches == []


def test_the_next_launch_says_what_tune_chose(emulated: emulation.Emulation) -> None:
    x, y = (from_dlpack(each) for each in tensors())
    arguments = testing.JitArguments(x, y)
    config = testing.tune(tried([]), params_dict={"threads": [64]}, kernel_arguments=arguments)
    compiled = cute.compile(add_one, x, y, config["threads"], 0)
    compiled(x, y)
    compiled(x, y)
    first, second = emulated.launches
    (finding,) = first.findings
    assert finding.code == "autotune"
    assert "first configuration that works (threads=64)" in finding.message
    assert finding.file
    assert finding.file.endswith("test_cutedsl_tuning.py")
    assert second.findings == []


def test_a_configuration_with_a_fault_fails_as_it_would_lose_the_gpu(
    emulated: emulation.Emulation,
) -> None:
    x, y = (from_dlpack(each) for each in tensors())
    with pytest.raises(OutOfBounds):
        testing.tune(
            tried([]),
            params_dict={"threads": [64], "shift": [1, 0]},
            kernel_arguments=testing.JitArguments(x, y),
        )


def test_no_configuration_that_works_is_an_error(emulated: emulation.Emulation) -> None:
    x, y = (from_dlpack(each) for each in tensors())
    with pytest.raises(ValueError, match="No best kernel found: grid"):
        testing.tune(
            tried([]),
            params_dict={"threads": [2048]},
            kernel_arguments=testing.JitArguments(x, y),
        )


def test_benchmark_runs_once_and_the_first_of_a_loop_wins(emulated: emulation.Emulation) -> None:
    x, y = tensors()
    best, best_us = None, float("inf")
    for threads in (64, 32):
        arguments = testing.JitArguments(from_dlpack(x), from_dlpack(y))
        compiled = cute.compile(add_one, *arguments.args, threads, 0)
        y.zero_()
        time_us = testing.benchmark(compiled, kernel_arguments=arguments, iterations=50)
        assert torch.equal(y, x + 1)
        assert f"{time_us:.1f} us" == "not timed us"
        with pytest.raises(NeedsGpu, match="no time can be measured"):
            float(time_us)
        if time_us < best_us:
            best, best_us = compiled, time_us
            chosen = threads
    assert best is not None
    best(from_dlpack(x), from_dlpack(y))
    assert chosen == 64
    (launch,) = emulated.launches
    assert {finding.code for finding in launch.findings} == {"autotune"}


def test_benchmark_takes_a_workspace_from_a_generator(emulated: emulation.Emulation) -> None:
    x, y = tensors()
    compiled = cute.compile(add_one, from_dlpack(x), from_dlpack(y), 64, 0)
    testing.benchmark(
        compiled,
        workspace_generator=lambda: testing.JitArguments(from_dlpack(x), from_dlpack(y)),
        workspace_count=4,
    )
    assert torch.equal(y, x + 1)


def test_the_decorator_launches_the_first_configuration(emulated: emulation.Emulation) -> None:
    @testing.autotune_jit(params_dict={"threads": [64, 32]})
    @cute.jit
    def tuned(x: cute.Tensor, y: cute.Tensor, threads: cutlass.Constexpr = 128) -> None:
        add_one_kernel(x, y, 0).launch(grid=(N // threads, 1, 1), block=(threads, 1, 1))

    x, y = tensors()
    tuned(from_dlpack(x), from_dlpack(y))
    tuned(from_dlpack(x), from_dlpack(y))
    first, second = emulated.launches
    assert first.block == second.block == (64, 1, 1)
    assert [finding.code for finding in first.findings] == ["autotune"]
    assert torch.equal(y, x + 1)


def test_the_functions_are_put_back() -> None:
    before = testing.tune, testing.benchmark
    with emulation.install():
        assert testing.tune is not before[0]
    assert (testing.tune, testing.benchmark) == before
