"""Modules that a submission loads by the driver itself, with a driver that notes what it gets."""

import ctypes
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from test_rewrite import MODULE

from nvfp4.retarget import DriverError, rewrite, run_time

PTX = MODULE.encode()
FITTING = MODULE.replace("sm_100a", "sm_90").encode()
MACHINE_CODE = b"\x7fELF of another GPU"


class Driver:
    """Notes the images; refuses machine code."""

    def __init__(self) -> None:
        self.images: list[bytes] = []

    def load(self, image: Any) -> int:
        content = image if isinstance(image, bytes) else ctypes.string_at(image)
        self.images.append(content.rstrip(b"\0"))
        return 209 if content.startswith(b"\x7fELF") else 0


class Loading:
    """As a function of ctypes: called, and given a type for what it returns."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver

    def __call__(self, handle: Any, image: Any) -> int:
        return self.driver.load(image)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    """Under both ways to call it, on a GPU of sm_90."""
    noting = Driver()
    bindings: Any = ModuleType("cuda.bindings.driver")
    bindings.cuModuleLoadData = lambda image: (noting.load(image), 1)
    package = SimpleNamespace(driver=bindings)
    monkeypatch.setitem(sys.modules, "cuda.bindings", package)
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", bindings)
    monkeypatch.setattr(ctypes.CDLL, "__getitem__", lambda *_: Loading(noting))
    run_time.start_loading(lambda ptx: rewrite(ptx, "sm_90a").ptx, lambda: (9, 0))
    return noting


def by_bindings(image: bytes) -> int:
    return int(sys.modules["cuda.bindings.driver"].cuModuleLoadData(image)[0])


def by_ctypes(as_argument: Callable[[bytes], Any]) -> Callable[[bytes], int]:
    def load(image: bytes) -> int:
        function = ctypes.CDLL(None).cuModuleLoadData
        function.restype = ctypes.c_int
        return int(function(ctypes.c_void_p(), as_argument(image)))

    return load


WAYS = {
    "cuda.bindings": by_bindings,
    "bytes": by_ctypes(bytes),
    "buffer": by_ctypes(ctypes.create_string_buffer),
    "address": by_ctypes(lambda image: ctypes.cast(ctypes.c_char_p(image), ctypes.c_void_p)),
    "reference": by_ctypes(lambda image: ctypes.byref(ctypes.create_string_buffer(image))),
    "text": by_ctypes(ctypes.c_char_p),
}


@pytest.mark.parametrize("load", WAYS.values(), ids=WAYS)
def test_text_for_another_gpu_is_rewritten_as_it_is_loaded(
    load: Callable[[bytes], int], driver: Driver
) -> None:
    assert load(PTX) == 0
    assert driver.images == [rewrite(PTX.decode(), "sm_90a").ptx.encode()]


@pytest.mark.parametrize("load", WAYS.values(), ids=WAYS)
def test_text_that_fits_reaches_the_driver_as_it_is(
    load: Callable[[bytes], int], driver: Driver
) -> None:
    assert load(FITTING) == 0
    assert driver.images == [FITTING]


@pytest.mark.parametrize("load", WAYS.values(), ids=WAYS)
def test_machine_code_of_another_gpu_is_refused_with_a_way_out(
    load: Callable[[bytes], int], driver: Driver
) -> None:
    with pytest.raises(DriverError, match="machine code of another GPU") as caught:
        load(MACHINE_CODE)
    assert "nvrtcGetPTX" in str(caught.value.hint)
    assert driver.images == [MACHINE_CODE]
