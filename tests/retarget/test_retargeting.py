"""Capture and retarget joined, with a driver that notes what it is asked."""

import ctypes
import os
from typing import Any

import pytest

pytest.importorskip("cutlass")

import cutlass.cute as cute
import torch
from cutlass import Float32, Int64
from test_driver import NotingLibrary

from nvfp4 import retargeting
from nvfp4.capture.cutedsl import loading
from nvfp4.records.launch_errors import UnsupportedCall
from nvfp4.retarget.driver import Driver
from nvfp4.retargeting import Translator


@cute.kernel
def product_kernel(address: Int64) -> None:
    pointer = cute.make_ptr(Float32, address, cute.AddressSpace.gmem, assumed_align=8)
    pair = cute.make_tensor(pointer, cute.make_layout(2))
    pair[0], pair[1] = cute.arch.mul_packed_f32x2((pair[0], pair[1]), (pair[1], pair[0]))


@cute.jit
def product(address: Int64) -> None:
    product_kernel(address).launch(grid=(1, 1, 1), block=(1, 1, 1))


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> NotingLibrary:
    """An H100, as far as torch and the driver are asked."""
    found = NotingLibrary()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
    return found


def test_while_it_is_installed_the_gpu_is_one_of_the_code_s(library: NotingLibrary) -> None:
    translator = Translator("sm_90a", Driver(library))
    with retargeting.install(translator, "sm_100a"):
        assert torch.cuda.get_device_capability() == (10, 0)
    assert torch.cuda.get_device_capability() == (9, 0)
    with pytest.raises(ValueError, match="sm_70"):
        retargeting.install(translator, "sm_70")
    assert torch.cuda.get_device_capability() == (9, 0)


def test_cute_dsl_compiles_for_the_other_gpu_and_loads_for_this_one(
    library: NotingLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []

    def real_load(libraries: Any) -> Any:
        assert any("cute_dsl_runtime" in path for path in libraries)

        def load(library: int, text: bytes, options: Any, values: Any, *_: Any) -> int:
            loaded.append(text.decode())
            said = b"ptxas application ptx input, line 3; error : no such thing\nand more"
            ctypes.memmove(values[0], said, len(said))
            return 218

        return load

    monkeypatch.setattr(loading, "_real_load", real_load)
    translator = Translator("sm_90a", Driver(library))
    with retargeting.install(translator, "sm_100a"):
        assert os.environ["CUTE_DSL_ARCH"] == "sm_100a"
        said = r"takes no such PTX \(CUDA error 218\): ptxas .*thing$"
        with pytest.raises(UnsupportedCall, match=said):
            cute.compile(product, Int64(0))(0)
        (kernel,) = translator.kernels
    assert kernel["kernel"].startswith("product_kernel")
    assert any("f32x2" in opcode for opcode in kernel["rewritten"])
    assert ".target sm_90a" in loaded[0]
