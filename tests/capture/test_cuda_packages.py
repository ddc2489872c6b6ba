"""Packages that launch CUDA kernels: cuda.core, and those that are refused."""

from __future__ import annotations

import ctypes
import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from nvfp4.capture.cuda.toolchain import find_toolchain
from nvfp4.emulation import Emulation
from nvfp4.emulator.errors import OutOfBounds
from nvfp4.records.launch_errors import UnsupportedCall

CUDA = r"""
extern "C" __global__ void fill(float *out, int n, double value) {
  if (threadIdx.x < n) out[threadIdx.x] = value;
}
template <class T, int K> __global__ void scale(T *data, T by) { data[threadIdx.x] *= by * K; }
__global__ void over(float *out, int n) { out[n + threadIdx.x] = 1.f; }
"""


# cuda.core


@pytest.fixture(scope="module")
def core(emulated: Emulation) -> ModuleType:
    return pytest.importorskip("cuda.core", minversion="1.0")


@pytest.mark.corpus
def test_cuda_core(core: Any, tensor: torch.Tensor) -> None:
    device = core.Device()
    device.set_current()
    stream = device.create_stream()
    options = core.ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
    program = core.Program(CUDA, code_type="c++", options=options)
    names = ("scale<float, 3>", "over")
    compiled = program.compile("cubin", name_expressions=names)
    tensor += 1
    config = core.LaunchConfig(grid=1, block=32)
    scale, over = (compiled.get_kernel(name) for name in names)
    core.launch(stream, config, scale, tensor.data_ptr(), np.float32(2))
    stream.sync()
    assert tensor.tolist() == [6.0] * 32
    with pytest.raises(OutOfBounds):
        core.launch(stream, config, over, tensor.data_ptr(), np.int32(32))
    with pytest.raises(Exception, match="2048 in all"):
        core.launch(
            stream, core.LaunchConfig(grid=1, block=2048), scale, tensor.data_ptr(), np.float32(2)
        )
    space = device.allocate(64, stream=stream)
    core.launch(stream, core.LaunchConfig(grid=1, block=16), scale, space, np.float32(2))
    space.close(stream)


# Refused


@pytest.mark.parametrize("package", ["cupy", "pycuda"])
def test_packages_that_need_a_gpu_say_so(
    emulated: Emulation, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{package}.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UnsupportedCall, match=r"needs a GPU\n  hint: CUDA text works through"):
        importlib.import_module(package)
    assert package not in sys.modules


def test_a_library_that_nvcc_built_is_refused(emulated: Emulation, tmp_path: Path) -> None:
    # As nvcc's host code registers the kernels of a library.
    source, library = tmp_path / "k.cpp", tmp_path / "libk.so"
    source.write_text('extern "C" void **__cudaRegisterFatBinary(void *) { return nullptr; }')
    compiler = find_toolchain().host_compiler
    subprocess.run([compiler, "-shared", "-fPIC", source, "-o", library], check=True)
    with pytest.raises(UnsupportedCall, match=r"libk\.so has kernels"):
        ctypes.CDLL(str(library))


def test_a_kernel_of_numba_is_refused(emulated: Emulation) -> None:
    cuda = importlib.import_module("numba.cuda")

    @cuda.jit
    def one(out: Any) -> None:
        out[0] = 1

    with pytest.raises(UnsupportedCall, match="need a GPU"):
        one[1, 32](torch.zeros(1, device="cuda"))
