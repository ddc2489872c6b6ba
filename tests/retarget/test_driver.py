"""The driver's calls, against a library that notes what it is asked."""

import ctypes
import struct
import time
from typing import Any

import pytest
from test_rewrite import MODULE

from nvfp4.retarget.driver import Driver, Kernel
from nvfp4.retarget.errors import DriverError, NotRetargetable
from nvfp4.retargeting import Translator

PTX = MODULE.replace(
    "(.param .u64 a)", "(.param .u64 a, .param .u32 n, .param .align 64 .b8 m[128])"
)
SIZES = (8, 4, 128)


class NotingLibrary:
    """Stands in for libcuda.so.1. launches: (function, config, parameters) of each."""

    def __init__(self, version: int = 12040) -> None:
        self.version = version
        self.loaded: list[str] = []
        self.attributes: list[tuple[int, int]] = []
        self.launches: list[tuple[int, tuple[int, ...], list[bytes]]] = []
        self.refuse = b""
        self.fail_launch = 0

    def cuInit(self, flags: int) -> int:
        return 0

    def cuCtxGetCurrent(self, context: Any) -> int:
        context._obj.value = 77
        return 0

    def cuDriverGetVersion(self, version: Any) -> int:
        version._obj.value = self.version
        return 0

    def cuGetErrorString(self, code: int, text: Any) -> int:
        text._obj.value = b"what the driver calls it"
        return 0

    def cuModuleLoadDataEx(
        self, module: Any, text: bytes, count: int, options: Any, values: Any
    ) -> int:
        assert list(options) == [5, 6]
        if self.refuse:
            ctypes.memmove(values[0], self.refuse, len(self.refuse))
            return 218
        self.loaded.append(text.rstrip(b"\0").decode())
        module._obj.value = len(self.loaded)
        return 0

    def cuModuleGetFunction(self, function: Any, module: Any, name: bytes) -> int:
        function._obj.value = 1000 + module.value
        return 0 if name == b"k" else 500

    def cuFuncSetAttribute(self, function: Any, attribute: int, value: int) -> int:
        self.attributes.append((attribute, value))
        return 0

    def cuLaunchKernelEx(self, config: Any, function: Any, pointers: Any, extra: Any) -> int:
        raw = config._obj
        shape = (*raw.grid, *raw.block, raw.shared_bytes, raw.stream or 0)
        assert raw.attribute_count == 0
        assert all(pointer % 64 == 0 for pointer in pointers)
        parameters = [ctypes.string_at(p, size) for p, size in zip(pointers, SIZES, strict=True)]
        self.launches.append((function.value, shape, parameters))
        return self.fail_launch


PARAMETERS = [struct.pack("<Q", 0xABCDEF), struct.pack("<I", 7), bytes(range(128))]
GRID, BLOCK = (5, 2, 1), (128, 1, 1)


@pytest.fixture
def library() -> NotingLibrary:
    return NotingLibrary()


@pytest.fixture
def kernel(library: NotingLibrary) -> Kernel:
    return Driver(library).load(PTX).kernel("k", SIZES)


def test_a_launch_arrives_as_it_was_asked_for(kernel: Kernel, library: NotingLibrary) -> None:
    kernel.launch(GRID, BLOCK, 0, PARAMETERS, 99)
    ((function, shape, parameters),) = library.launches
    assert function == 1001
    assert shape == (5, 2, 1, 128, 1, 1, 0, 99)
    assert parameters == PARAMETERS


def test_much_shared_memory_is_asked_for_once(kernel: Kernel, library: NotingLibrary) -> None:
    for shared_kib in (64, 60, 16):
        kernel.launch(GRID, BLOCK, shared_kib << 10, PARAMETERS, 0)
    assert library.attributes == [(8, 64 << 10)]
    assert [shape[6] >> 10 for _, shape, _ in library.launches] == [64, 60, 16]


def test_a_module_is_rewritten_for_the_driver(library: NotingLibrary) -> None:
    translator = Translator("sm_90a", Driver(library))
    text = translator.translate(PTX)
    assert ".target sm_90a" in text
    assert ".version 8.4" in text  # the latest that a driver of CUDA 12.4 takes
    first, second = translator.kernels
    assert first == {
        **{"kernel": "k", "source": "sm_100a", "target": "sm_90a", "instructions": 5},
        **{"rewritten": {"fma.rn.f32x2": 1}, "added": 5},
    }
    assert second["kernel"] == "helper"
    translator.translate("// the same again\n" + PTX)
    assert translator.kernels == [first, second], "once each"


def test_errors_are_a_sentence(kernel: Kernel, library: NotingLibrary) -> None:
    translator = Translator("sm_90a", Driver(library))
    with pytest.raises(NotRetargetable, match=r"tcgen05\.alloc cannot run on sm_90a"):
        translator.translate(PTX.replace("add.f32 \t", "tcgen05.alloc "))
    with pytest.raises(DriverError, match=r"cuModuleGetFunction: what the driver calls it \(500\)"):
        Driver(library).load(PTX).kernel("other", SIZES)
    library.fail_launch = 701
    with pytest.raises(DriverError, match=r"cuLaunchKernelEx: what the driver calls it \(701\)"):
        kernel.launch(GRID, BLOCK, 0, PARAMETERS, 0)
    library.refuse = b"\nptxas application ptx input, line 7; error : Unknown symbol\nmore\n"
    with pytest.raises(DriverError, match=r"takes no such PTX: ptxas .* Unknown symbol\n  hint: "):
        translator.driver.load(PTX)


def test_a_launch_after_the_first_costs_little() -> None:
    """The host's own share: everything but the driver, which here does nothing."""

    class Quick(NotingLibrary):
        def cuLaunchKernelEx(self, config: Any, function: Any, pointers: Any, extra: Any) -> int:
            return 0

    kernel = Driver(Quick()).load(PTX).kernel("k", SIZES)
    best_us = float("inf")
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(100):
            kernel.launch(GRID, BLOCK, 0, PARAMETERS, 0)
        best_us = min(best_us, (time.perf_counter() - start) / 100 * 1e6)
    assert best_us < 20  # two or three on an idle machine
