"""cuda.bindings.runtime in host code: memory, streams, events and the device, as on a GPU."""

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from nvfp4 import emulation
from nvfp4.emulation import Emulation
from nvfp4.emulator.errors import OutOfBounds
from nvfp4.records.launch_errors import NeedsGpu, UnsupportedCall

pytest.importorskip("cuda.bindings.runtime")
pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="there is a real CUDA device"),
    pytest.mark.usefixtures("toolchain"),
]

CUDA = r"""
extern "C" __global__ void twice(float *data, int from) { data[from + threadIdx.x] *= 2.f; }
"""


@pytest.fixture(scope="module")
def emulated() -> Iterator[Emulation]:
    with emulation.install_stand_in() as installed:
        yield installed


@pytest.fixture
def runtime(emulated: Emulation) -> Any:
    return importlib.import_module("cuda.bindings.runtime")


def check(results: tuple[Any, ...]) -> Any:
    """What a function returns after its error, which must be none."""
    error, *values = results
    assert int(error) == 0, error
    return values[0] if len(values) == 1 else values


def test_memory_goes_there_and_back(runtime: Any) -> None:
    kinds = runtime.cudaMemcpyKind
    own, back = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
    address = check(runtime.cudaMalloc(own.nbytes))
    check(runtime.cudaMemcpy(address, own, own.nbytes, kinds.cudaMemcpyHostToDevice))
    check(runtime.cudaMemset(address + 8, 0, 4))
    check(runtime.cudaMemcpy(back.ctypes.data, address, 64, kinds.cudaMemcpyDeviceToHost))
    assert back.tolist() == [0, 1, 0, *range(3, 16)]
    too_much = runtime.cudaMemcpy(address, own, 6400, kinds.cudaMemcpyHostToDevice)
    assert too_much == (runtime.cudaError_t.cudaErrorInvalidValue,)
    assert b"past the 64 bytes" in check(runtime.cudaGetErrorString(too_much[0]))
    assert check(runtime.cudaGetErrorName(too_much[0])) == b"cudaErrorInvalidValue"
    assert runtime.cudaGetLastError() == (runtime.cudaError_t.cudaErrorInvalidValue,)
    check(runtime.cudaFree(address))
    assert int(runtime.cudaFree(address)[0])


def test_kernels_and_tensors_share_that_memory(runtime: Any) -> None:
    address = check(runtime.cudaMalloc(128))
    tensor = torch.arange(32, dtype=torch.float32, device="cuda")
    stream = check(runtime.cudaStreamCreate())
    kind = runtime.cudaMemcpyKind.cudaMemcpyDeviceToDevice
    check(runtime.cudaMemcpyAsync(address, tensor.data_ptr(), 128, kind, stream))
    twice = torch.cuda._compile_kernel(CUDA, "twice")
    twice((1, 1, 1), (32, 1, 1), (tensor, 0))
    check(runtime.cudaMemcpyAsync(tensor.data_ptr(), address, 64, kind, int(stream)))
    check(runtime.cudaStreamSynchronize(stream))
    assert tensor.tolist() == [*range(16), *range(32, 64, 2)]
    with pytest.raises(OutOfBounds):
        twice((1, 1, 1), (32, 1, 1), (tensor, 1))
    check(runtime.cudaFree(address))


def test_streams_and_events(runtime: Any) -> None:
    stream = check(runtime.cudaStreamCreateWithFlags(runtime.cudaStreamNonBlocking))
    events = [check(runtime.cudaEventCreate()), check(runtime.cudaEventCreateWithFlags(0))]
    for event in events:
        check(runtime.cudaEventRecord(event, stream))
    check(runtime.cudaStreamWaitEvent(0, events[1], 0))
    assert runtime.cudaEventQuery(events[1]) == (runtime.cudaError_t.cudaSuccess,)
    with pytest.raises(NeedsGpu, match="no time can be measured"):
        runtime.cudaEventElapsedTime(*events)
    check(runtime.cudaStreamDestroy(stream))
    assert int(runtime.cudaStreamSynchronize(stream)[0])


def test_the_device_is_a_b200(runtime: Any) -> None:
    assert check(runtime.cudaGetDeviceCount()) == 1
    assert check(runtime.cudaGetDevice()) == 0
    properties = check(runtime.cudaGetDeviceProperties(0))
    assert properties.name == b"NVIDIA B200"
    assert (properties.major, properties.multiProcessorCount) == (10, 148)
    assert list(properties.maxGridSize) == [2**31 - 1, 65535, 65535]
    which = runtime.cudaDeviceAttr.cudaDevAttrMaxSharedMemoryPerBlockOptin
    assert check(runtime.cudaDeviceGetAttribute(which, 0)) == properties.sharedMemPerBlockOptin
    assert check(runtime.cudaMemGetInfo())[1] == properties.totalGlobalMem
    assert int(runtime.cudaSetDevice(1)[0])


def test_an_address_is_known_for_device_memory(runtime: Any) -> None:
    tensor = torch.zeros(4, device="cuda")
    types = runtime.cudaMemoryType
    of_tensor = check(runtime.cudaPointerGetAttributes(tensor.data_ptr()))
    assert of_tensor.type == types.cudaMemoryTypeDevice
    own = np.zeros(4)
    of_own = check(runtime.cudaPointerGetAttributes(own.ctypes.data))
    assert of_own.type == types.cudaMemoryTypeUnregistered


def test_other_functions_are_refused_by_name(runtime: Any) -> None:
    with pytest.raises(UnsupportedCall, match=r"cudaIpcGetMemHandle of cuda\.bindings\.runtime"):
        runtime.cudaIpcGetMemHandle(0)
    with pytest.raises(TypeError, match=r"cudaFree\(\) takes 1 arguments, 2 are given"):
        runtime.cudaFree(0, 0)
