"""Modules of CuTe DSL that are translated as they are loaded, as far as that goes without a GPU."""

import ctypes
import ctypes.util

import pytest

pytest.importorskip("cutlass")

import cutlass.cute as cute
from cutlass import Int64, Uint32

from nvfp4.capture.cutedsl import loading
from nvfp4.records.launch_errors import UnsupportedCall


@cute.kernel
def write_kernel(address: Int64) -> None:
    pointer = cute.make_ptr(Uint32, address, cute.AddressSpace.gmem, assumed_align=4)
    cute.make_tensor(pointer, cute.make_layout(1))[0] = Uint32(7)


@cute.jit
def write(address: Int64) -> None:
    write_kernel(address).launch(grid=(1, 1, 1), block=(1, 1, 1))


def call_compiled() -> None:
    cute.compile(write, Int64(0))(0)


def test_what_translating_raises_comes_out_where_the_function_is_called(
    request: pytest.FixtureRequest,
) -> None:
    def translate(ptx: str) -> str:
        raise KeyError("no translation")

    request.addfinalizer(loading.start_loading(translate, "sm_100a"))
    with pytest.raises(KeyError, match="no translation"):
        call_compiled()


def test_without_a_driver_the_runtime_library_says_so(request: pytest.FixtureRequest) -> None:
    request.addfinalizer(loading.start_loading(lambda ptx: ptx, "sm_100a"))
    if ctypes.util.find_library("cuda"):
        pytest.skip("there is a driver")
    with pytest.raises(UnsupportedCall, match="CUDA error"):
        call_compiled()
