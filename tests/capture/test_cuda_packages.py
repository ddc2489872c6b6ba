"""Packages that launch CUDA kernels and are refused."""

import ctypes
import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from nvfp4.capture.cuda.toolchain import find_toolchain
from nvfp4.emulation import Emulation
from nvfp4.records.launch_errors import UnsupportedCall


@pytest.mark.parametrize("package", ["cupy", "pycuda"])
def test_packages_that_need_a_gpu_say_so(
    emulated: Emulation, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{package}.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UnsupportedCall, match=r"needs a GPU\n  hint: CUDA C\+\+ works through"):
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

    with pytest.raises(UnsupportedCall, match="needs a GPU"):
        one[1, 32](torch.zeros(1, device="cuda"))
