"""Capture and retarget joined, with a driver that notes what it is asked."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("cutlass")

import cutlass.cute as cute
import torch
from cutlass import Float32, Int64
from test_executor import NotingLibrary, launch

from nvfp4 import retargeting
from nvfp4.capture.cutedsl import loading
from nvfp4.retarget import executor
from nvfp4.retarget.driver import Driver


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
    monkeypatch.setattr(executor, "installed_driver", lambda: Driver(found))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
    stream = SimpleNamespace(cuda_stream=1234)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: stream)
    return found


def test_launches_go_to_the_current_stream(library: NotingLibrary) -> None:
    with retargeting.install("sm_100a") as active:
        active.run(launch())
    ((_, shape, _),) = library.launches
    assert shape[7] == 1234
    assert ".target sm_90a" in library.loaded[0]


def test_kernels_are_told_for_each_text(library: NotingLibrary) -> None:
    with retargeting.install("sm_100a") as active:
        assert active.kernels() == []
        for block in ((32, 1, 1), (64, 1, 1)):
            active.run(launch(block=block))
        active.run(launch(ptx="// the same again\n" + launch().ptx))
        first, second, *again = active.kernels()
    assert again == [first, second]
    assert first == {
        **{"kernel": "k", "source": "sm_100a", "target": "sm_90a", "instructions": 5},
        **{"rewritten": {"fma.rn.f32x2": 1}, "added": 5},
    }
    assert second["kernel"] == "helper"


def test_while_it_is_installed_the_gpu_is_one_of_the_code_s(library: NotingLibrary) -> None:
    with retargeting.install("sm_100a") as active:
        assert (active.arch, active.target) == ("sm_100a", "sm_90a")
        assert torch.cuda.get_device_capability() == (10, 0)
    assert torch.cuda.get_device_capability() == (9, 0)
    with pytest.raises(ValueError, match="sm_70"):
        retargeting.install("sm_70")
    assert torch.cuda.get_device_capability() == (9, 0)


def test_cute_dsl_compiles_for_the_other_gpu_and_loads_for_this_one(
    library: NotingLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []

    def real_load(libraries: Any) -> Any:
        def load(library: int, text: bytes, *_: Any) -> int:
            loaded.append(text.decode())
            return 1

        return load

    monkeypatch.setattr(loading, "_real_load", real_load)
    with retargeting.install("sm_100a") as active:
        assert os.environ["CUTE_DSL_ARCH"] == "sm_100a"
        with pytest.raises(Exception, match="takes no such PTX"):
            cute.compile(product, Int64(0))(0)
        (kernel,) = active.kernels()
    assert kernel["kernel"].startswith("product_kernel")
    assert any("f32x2" in opcode for opcode in kernel["rewritten"])
    assert ".target sm_90a" in loaded[0]
