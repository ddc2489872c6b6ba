"""The slim headers of torch where CUDA comes in: streams, devices, errors, kernels."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from cuda_headers_build import compile_object, cuda_headers, flags, load

from nvfp4.capture import standin

_here = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def streams(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The functions of test_cuda_headers_streams.cpp, with a CUDA device that is none."""
    headers = cuda_headers()
    if headers is None or shutil.which("g++") is None:
        pytest.skip("needs g++ and CUDA's headers")
    if torch.cuda.is_available():
        pytest.skip("needs no stand-in for a device")
    folder = tmp_path_factory.mktemp("streams")
    source = _here / "test_cuda_headers_streams.cpp"
    compiled = compile_object(source, folder / "streams.o", "-I", str(headers))
    with standin.install("sm_100a"):
        yield load(compiled, folder)


def test_streams(streams: ModuleType) -> None:
    assert streams.current() == 0
    assert streams.is_default()
    before, inside, after = streams.switched()
    assert before == after == 0
    assert inside != 0
    with torch.cuda.stream(torch.cuda.Stream()):
        assert streams.current() == torch.cuda.current_stream().cuda_stream != 0


def test_tensors_of_the_device(streams: ModuleType) -> None:
    x = streams.on_device(3)
    assert x.device == torch.device("cuda:0")
    assert x.tolist() == [1.0, 1.0, 1.0]
    assert streams.guarded(x) == 0
    with pytest.raises(RuntimeError, match="Expected a CUDA device, but got cpu"):
        streams.guarded(torch.zeros(1))


@pytest.mark.parametrize("launch", [False, True])
def test_errors_of_cuda(streams: ModuleType, launch: bool) -> None:
    with pytest.raises(RuntimeError, match=r"^CUDA error: invalid argument"):
        streams.check(launch)
    assert streams.forgotten()


def test_nvcc_makes_ptx(tmp_path: Path) -> None:
    if shutil.which("nvcc") is None:
        pytest.skip("needs nvcc")
    target = tmp_path / "kernels.ptx"
    options = ["-std=c++17", "-ptx", "-arch=compute_100a", *flags]
    source = _here / "test_cuda_headers.cu"
    command = ["nvcc", *options, str(source), "-o", str(target)]
    subprocess.run(command, check=True)
    entries = [line for line in target.read_text().splitlines() if ".entry" in line]
    assert len(entries) == 6
