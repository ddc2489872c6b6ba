"""The executor against a driver that notes what it is asked."""

from __future__ import annotations

import ctypes
import struct
import time
from typing import Any

import pytest
from test_rewrite import MODULE

from nvfp4.records.launch import Launch
from nvfp4.retarget import DriverError, NotRetargetable
from nvfp4.retarget.driver import Driver
from nvfp4.retarget.executor import Executor

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

    def cuModuleGetGlobal_v2(self, address: Any, size: Any, module: Any, name: bytes) -> int:
        address._obj.value, size._obj.value = 4096, 4
        return 0

    def cuCtxSynchronize(self) -> int:
        return 0

    def cuMemcpyDtoH_v2(self, target: Any, address: Any, size: Any) -> int:
        assert (address.value, size.value) == (4096, 4)
        ctypes.memmove(target, b"four", 4)
        return 0

    def cuLaunchKernelEx(self, config: Any, function: Any, pointers: Any, extra: Any) -> int:
        raw = config._obj
        shape = (*raw.grid, *raw.block, raw.shared_bytes, raw.stream or 0, raw.attribute_count)
        if raw.attribute_count:
            attribute = raw.attributes[0]
            shape += (attribute.id, *attribute.value[:3])
        assert all(pointer % 64 == 0 for pointer in pointers)
        parameters = [ctypes.string_at(p, size) for p, size in zip(pointers, SIZES, strict=True)]
        self.launches.append((function.value, shape, parameters))
        return self.fail_launch


def launch(**changes: Any) -> Launch:
    parameters = [struct.pack("<Q", 0xABCDEF), struct.pack("<I", 7), bytes(range(128))]
    asked: dict[str, Any] = {"grid": (5, 2, 1), "block": (128, 1, 1), "parameters": parameters}
    return Launch(**{"ptx": PTX, "kernel": "k", **asked, **changes})


@pytest.fixture
def library() -> NotingLibrary:
    return NotingLibrary()


@pytest.fixture
def executor(library: NotingLibrary) -> Executor:
    return Executor("sm_90a", Driver(library))


def test_a_launch_arrives_as_it_was_asked_for(executor: Executor, library: NotingLibrary) -> None:
    asked = launch()
    executor.run(asked, stream=99)
    ((function, shape, parameters),) = library.launches
    assert function == 1001
    assert shape == (5, 2, 1, 128, 1, 1, 0, 99, 0)
    assert parameters == asked.parameters


def test_a_module_is_rewritten_and_loaded_once(executor: Executor, library: NotingLibrary) -> None:
    for grid in ((1, 1, 1), (2, 1, 1), (1, 1, 1)):
        executor.run(launch(grid=grid))
    (text,) = library.loaded
    assert ".target sm_90a" in text
    assert ".version 8.4" in text  # the latest that a driver of CUDA 12.4 takes
    assert [shape[0] for _, shape, _ in library.launches] == [1, 2, 1]
    (report,) = executor.reports
    assert report.changed


def test_clusters_and_shared_memory_are_attributes(
    executor: Executor, library: NotingLibrary
) -> None:
    executor.run(launch(shared_bytes=64 * 1024, cluster=(2, 8, 1)))
    executor.run(launch(shared_bytes=60 * 1024))
    executor.run(launch(shared_bytes=16 * 1024, cluster=(2, 1, 1)))
    assert library.attributes == [(8, 64 * 1024), (14, 1)]
    shapes = [shape for _, shape, _ in library.launches]
    assert shapes[0][6:] == (64 * 1024, 0, 1, 4, 2, 8, 1)
    assert shapes[1][6:] == (60 * 1024, 0, 0)
    assert shapes[2][6:] == (16 * 1024, 0, 1, 4, 2, 1, 1)


def test_variables_are_read_by_name(executor: Executor) -> None:
    assert executor.module(PTX).read("counter") == b"four"


def test_errors_are_a_sentence(executor: Executor, library: NotingLibrary) -> None:
    with pytest.raises(NotRetargetable, match=r"tcgen05\.alloc cannot run on sm_90a"):
        executor.run(launch(ptx=PTX.replace("add.f32 \t", "tcgen05.alloc ")))
    with pytest.raises(DriverError, match=r"takes parameters of \(8, 4, 128\) bytes, not \(8,\)"):
        executor.run(launch(parameters=[bytes(8)]))
    with pytest.raises(DriverError, match="the module has no kernel other"):
        executor.run(launch(kernel="other"))
    library.refuse = b"\nptxas application ptx input, line 7; error : Unknown symbol\nmore\n"
    with pytest.raises(DriverError, match=r"takes no such PTX: ptxas .* Unknown symbol\n  hint: "):
        executor.run(launch())
    library.refuse = b""
    library.fail_launch = 701
    with pytest.raises(DriverError, match=r"cuLaunchKernelEx: what the driver calls it \(701\)"):
        executor.run(launch())


def test_a_launch_after_the_first_costs_little() -> None:
    """The host's own share: everything but the driver, which here does nothing."""

    class Quick(NotingLibrary):
        def cuLaunchKernelEx(self, config: Any, function: Any, pointers: Any, extra: Any) -> int:
            return 0

    executor, asked = Executor("sm_90a", Driver(Quick())), launch()
    executor.run(asked)
    best_us = float("inf")
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(100):
            executor.run(asked)
        best_us = min(best_us, (time.perf_counter() - start) / 100 * 1e6)
    assert best_us < 20  # two or three on an idle machine
