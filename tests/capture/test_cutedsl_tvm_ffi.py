"""Functions compiled with --enable-tvm-ffi, which take tensors of torch directly."""

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("cutlass")
pytest.importorskip("tvm_ffi")

import cutlass
import cutlass.cute as cute
import torch
from cuda.bindings import driver
from cutlass.cute.runtime import from_dlpack, make_fake_compact_tensor, make_fake_stream

from nvfp4 import emulation
from nvfp4.emulator.errors import OutOfBounds

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a real CUDA device")

OPTIONS = "--enable-tvm-ffi"


@pytest.fixture(autouse=True)
def emulated() -> Iterator[emulation.Emulation]:
    with emulation.install_stand_in() as active:
        yield active


@cute.kernel
def shift_kernel(x: cute.Tensor, y: cute.Tensor, shift: cutlass.Int32) -> None:
    tidx, _, _ = cute.arch.thread_idx()
    y[tidx + shift] = x[tidx] + 1


@cute.jit
def shifted(x: cute.Tensor, y: cute.Tensor, shift: cutlass.Int32, stream: driver.CUstream) -> None:
    shift_kernel(x, y, shift).launch(grid=(1, 1, 1), block=(32, 1, 1), stream=stream)


def tensors() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(32.0, device="cuda"), torch.zeros(32, device="cuda")


def compiled_for_tensors() -> tuple[Any, torch.Tensor, torch.Tensor]:
    x, y = tensors()
    given = [from_dlpack(each, enable_tvm_ffi=True) for each in (x, y)]
    return cute.compile(shifted, *given, 0, driver.CUstream(0), options=OPTIONS), x, y


def test_tensors_of_the_stand_in_are_passed_directly(emulated: emulation.Emulation) -> None:
    compiled, x, y = compiled_for_tensors()
    for start in (0.0, 5.0):
        x = torch.arange(start, start + 32, device="cuda")
        compiled(x, y, 0, driver.CUstream(0))
        assert torch.equal(y, x + 1)
    assert len(emulated.launches) == 2


def test_a_function_compiled_for_fake_tensors_and_the_stream_of_the_call() -> None:
    size = cute.sym_int()
    given = [make_fake_compact_tensor(cutlass.Float32, (size,)) for _ in range(2)]
    stream = make_fake_stream(use_tvm_ffi_env_stream=True)
    compiled = cute.compile(shifted, *given, 0, stream, options=OPTIONS)
    x, y = tensors()
    compiled(x, y, 0)
    assert torch.equal(y, x + 1)


def test_a_fault_is_raised_where_the_function_is_called() -> None:
    compiled, x, y = compiled_for_tensors()
    with pytest.raises(OutOfBounds, match="past the end"):
        compiled(x, y, 1, driver.CUstream(0))
    compiled(x, y, 0, driver.CUstream(0))
    assert torch.equal(y, x + 1)


def test_what_tvm_ffi_refuses_stays_its_error() -> None:
    compiled, x, y = compiled_for_tensors()
    with pytest.raises(ValueError, match=r"Mismatched x.shape\[0\]"):
        compiled(x[1:], y, 0, driver.CUstream(0))
