"""Each source of an extension has its own names, and the flags that a submission sets."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils import cpp_extension

from nvfp4.emulation import Emulation
from nvfp4.records.launch_errors import UnsupportedCall

UNIT = r"""
#include <torch/extension.h>
static __device__ float own = {value}.f;
static __global__ void k(float* out) {{ out[threadIdx.x] = own; }}
void {name}(torch::Tensor t) {{ k<<<1, 4>>>(t.data_ptr<float>()); }}
"""
FLAGGED = r"""
#if defined(FROM_THE_ENVIRONMENT) && defined(FROM_TORCHS_LIST)
static __global__ void flagged(float* out) { out[threadIdx.x] = 3.f; }
#else
static __global__ void flagged(float* out) {}
#endif
void third(torch::Tensor t) { flagged<<<1, 4>>>(t.data_ptr<float>()); }
void first(torch::Tensor t);
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("first", &first, ""); m.def("second", &second, ""); m.def("third", &third, "");
}
"""


@pytest.fixture(scope="module")
def extension(emulated: Emulation, tmp_path_factory: pytest.TempPathFactory) -> Any:
    texts = (UNIT.format(value=1, name="first"), UNIT.format(value=2, name="second") + FLAGGED)
    paths = []
    for text in texts:
        paths.append(tmp_path_factory.mktemp("unit") / "kernel.cu")
        paths[-1].write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NVCC_APPEND_FLAGS", "-DFROM_THE_ENVIRONMENT")
        patch.setattr(cpp_extension, "COMMON_NVCC_FLAGS", ["-DFROM_TORCHS_LIST"])
        return cpp_extension.load("units", [str(path) for path in paths])


@pytest.mark.parametrize(("function", "value"), [("first", 1), ("second", 2), ("third", 3)])
def test_a_kernel_is_that_of_the_source_that_launches_it(
    extension: Any, tensor: torch.Tensor, function: str, value: float
) -> None:
    """Both files are called kernel.cu, and both have a static k and a variable that it reads."""
    getattr(extension, function)(tensor)
    assert tensor[:4].tolist() == [value] * 4


def test_a_compiler_of_the_submission_s_own_is_refused(
    emulated: Emulation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nvcc").touch()
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", str(tmp_path))
    with pytest.raises(UnsupportedCall, match="the submission chooses the compiler itself"):
        cpp_extension.load_inline("own", "", "")
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", "/no/toolkit/of/this/machine")
    monkeypatch.setenv("PYTORCH_NVCC", "nvcc -DMORE")
    with pytest.raises(UnsupportedCall, match="itself: nvcc -DMORE"):
        cpp_extension.load_inline("own", "", "")
