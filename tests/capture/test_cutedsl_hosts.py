"""Host code of CuTe DSL: what it may call, how arguments arrive, what the PTX says about lines."""

import ctypes
import re

import pytest

pytest.importorskip("cutlass")

import cutlass
import cutlass.cute as cute
import torch
from cuda.bindings import driver
from cutlass.cute.runtime import from_dlpack

from nvfp4.capture.cutedsl import intercept
from nvfp4.capture.cutedsl.callbacks import make_callbacks
from nvfp4.capture.cutedsl.host import LAUNCH_FAILURE, HostRuntime
from nvfp4.emulation import install
from nvfp4.records.launch import Launch
from nvfp4.records.launch_errors import LaunchRefused


@cute.kernel
def double_kernel(source: cute.Tensor, target: cute.Tensor) -> None:
    tidx, _, _ = cute.arch.thread_idx()
    target[tidx] = source[tidx] + source[tidx]  # the line that is looked for


@cute.jit
def double(source: cute.Tensor, target: cute.Tensor, stream: driver.CUstream) -> None:
    double_kernel(source, target).launch(grid=(1, 1, 1), block=(32, 1, 1), stream=stream)


def arguments() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(32.0), torch.zeros(32)


def test_the_first_failure_is_raised_not_the_assertion_that_follows_it() -> None:
    runtime = HostRuntime()
    callbacks = make_callbacks(runtime, ("",), ["cuda_dialect_assert_success", "_cudaMalloc"])
    assert callbacks["cuda_dialect_assert_success"](0) == 0
    runtime.raise_pending()
    assert callbacks["cuda_dialect_assert_success"](2) == LAUNCH_FAILURE
    with pytest.raises(LaunchRefused, match="error 2"):
        runtime.raise_pending()
    callbacks["cuda_dialect_assert_success"](callbacks["_cudaMalloc"]())
    with pytest.raises(Exception, match="cudaMalloc, which is not captured"):
        runtime.raise_pending()


def test_what_a_call_after_the_end_left_is_not_raised_in_the_next_interception() -> None:
    source, target = arguments()
    with install():
        tensors = from_dlpack(source), from_dlpack(target), driver.CUstream(0)
        compiled = cute.compile(double, *tensors)
        compiled(*tensors)
    with pytest.raises(Exception, match=r"cudaErrorLaunchFailure|driver"):
        compiled(*tensors)
    with install():
        target.zero_()
        compiled(*tensors)
        assert torch.equal(target, 2 * source)


def test_packed_arguments_launch_like_a_call() -> None:
    source, target = arguments()
    with install() as emulated:
        tensors = from_dlpack(source), from_dlpack(target), driver.CUstream(0)
        executor = cute.compile(double, *tensors).to(None)
        values, _kept = executor.generate_execution_args(*tensors)
        executor.run_compiled_program(values)
        assert torch.equal(target, 2 * source)
        target.zero_()
        error = ctypes.c_int32()
        addresses = [getattr(value, "value", value) for value in values]
        packed = (ctypes.c_void_p * (len(values) + 1))(*addresses, ctypes.addressof(error))
        executor.jit_module.capi_func(packed)
        assert error.value == 0
        assert torch.equal(target, 2 * source)
        assert len(emulated.launches) == 2


@pytest.mark.parametrize("stream", [0, 0x1230])
def test_a_stream_is_an_argument_that_changes_nothing(stream: int) -> None:
    source, target = arguments()
    with install():
        double(from_dlpack(source), from_dlpack(target), driver.CUstream(stream))
        assert torch.equal(target, 2 * source)


def test_the_ptx_names_file_and_line_of_the_users_python() -> None:
    caught: list[Launch] = []
    with intercept(caught.append):
        source, target = arguments()
        double(from_dlpack(source), from_dlpack(target), driver.CUstream(0))
    ptx = caught[0].ptx
    with open(__file__) as file:
        wanted = 1 + next(n for n, line in enumerate(file) if "the line that is looked for" in line)
    files = re.findall(r'\.file\s+(\d+) "([^"]*)"', ptx)
    (number,) = [number for number, name in files if name == __file__]
    assert re.search(rf"\.loc\s+{number} {wanted} [1-9]", ptx)


def test_an_int64_parameter_keeps_all_bits() -> None:
    @cute.jit
    def by_address(address: cutlass.Int64) -> None:
        layout = cute.make_layout(32)
        pointer = cute.make_ptr(cutlass.Float32, address, cute.AddressSpace.gmem, assumed_align=4)
        tensor = cute.make_tensor(pointer, layout)
        double_kernel(tensor, tensor).launch(grid=(1, 1, 1), block=(32, 1, 1))

    source, _ = arguments()
    with install():
        by_address(cutlass.Int64(source.data_ptr()))
        assert torch.equal(source, 2 * torch.arange(32.0))
