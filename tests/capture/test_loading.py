"""Modules of CuTe DSL that are translated as they are loaded, as far as that goes without a GPU."""

import ctypes
import ctypes.util
from typing import Any

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


def test_the_driver_gets_the_translated_text(monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[str] = []
    seen: list[str] = []

    def real_load(libraries: Any) -> Any:
        assert any("cute_dsl_runtime" in path for path in libraries)

        def load(library: int, text: bytes, options: Any, values: Any, *_: Any) -> int:
            got.append(text.decode().rstrip("\0"))
            said = b"ptxas application ptx input, line 3; error : no such thing\nand more"
            ctypes.memmove(values[0], said, len(said))
            return 218

        return load

    def translate(ptx: str) -> str:
        seen.append(ptx)
        return "// translated\n" + ptx

    monkeypatch.setattr(loading, "_real_load", real_load)
    stop = loading.start_loading(translate, "sm_100a")
    try:
        with pytest.raises(
            UnsupportedCall, match=r"takes no such PTX \(CUDA error 218\): ptxas .*thing$"
        ):
            call_compiled()
    finally:
        stop()
    (ptx,) = seen
    assert ".target sm_100a" in ptx
    assert "write_kernel" in ptx
    assert got == ["// translated\n" + ptx]


def test_what_translating_raises_comes_out_where_the_function_is_called() -> None:
    def translate(ptx: str) -> str:
        raise KeyError("no translation")

    stop = loading.start_loading(translate, "sm_100a")
    try:
        with pytest.raises(KeyError, match="no translation"):
            call_compiled()
    finally:
        stop()


def test_without_a_driver_the_runtime_library_says_so() -> None:
    stop = loading.start_loading(lambda ptx: ptx, "sm_100a")
    try:
        if ctypes.util.find_library("cuda"):
            pytest.skip("there is a driver")
        with pytest.raises(UnsupportedCall, match="CUDA error"):
            call_compiled()
    finally:
        stop()
