"""How much shared memory a kernel may have: what ptxas takes, and what a launch may ask for."""

import re
from pathlib import Path

import pytest

from nvfp4.capture import kernel as kernels
from nvfp4.capture.codes import Code, CudaError
from nvfp4.capture.cuda.architectures import Image
from nvfp4.capture.cuda.build import Request, Source, _Compilation
from nvfp4.capture.cuda.compilers import CompileError, assemble
from nvfp4.capture.cuda.toolchain import Toolchain
from nvfp4.capture.device import device_for

KIB = 1024
DEVICE = device_for("sm_90a")
DIMS = (1, 1, 1), (32, 1, 1), (1, 1, 1)


def kernel(static: int, asked_for: int | None = None) -> kernels.Kernel:
    return kernels.Kernel(
        "", "k", (8,), None, kernels.Resources(32, static), shared_asked_for=asked_for
    )


# What scripts/fidelity/static_shared.cu printed on an H100.


@pytest.mark.parametrize(
    ("static", "asked_for", "said", "limit"),
    [
        *((1 * KIB, None, 47 * KIB, 47 * KIB), (40 * KIB, None, 8 * KIB, 8 * KIB)),
        *((48 * KIB, None, 0, 0), (60 * KIB, None, 0, 167 * KIB)),
        *((160 * KIB, None, 0, 67 * KIB), (227 * KIB, None, 0, 0)),
        *((1 * KIB, 226 * KIB, 226 * KIB, 226 * KIB), (1 * KIB, 0, 0, 0), (60 * KIB, 0, 0, 0)),
        (60 * KIB, 167 * KIB, 167 * KIB, 167 * KIB),
    ],
)
def test_what_static_shared_memory_leaves(
    static: int, asked_for: int | None, said: int, limit: int
) -> None:
    one = kernel(static, asked_for)
    assert kernels.dynamic_shared_said(one, DEVICE) == said
    assert kernels.dynamic_shared_limit(one, DEVICE) == limit
    kernels.refuse_as_cuda_does(one, DEVICE, *DIMS, limit)
    with pytest.raises(CudaError) as refused:
        kernels.refuse_as_cuda_does(one, DEVICE, *DIMS, limit + 1)
    assert refused.value.code == Code.INVALID_VALUE
    assert re.search(r"-\d", refused.value.message) is None


def test_a_refusal_says_what_would_help() -> None:
    with pytest.raises(CudaError, match=r"cudaFuncSetAttribute raises the limit$"):
        kernels.refuse_as_cuda_does(kernel(8 * KIB), DEVICE, *DIMS, 41 * KIB)
    said = r"81920 bytes .* beside 163840 static ones; a block of .* has 232448 in all$"
    with pytest.raises(CudaError, match=said):
        kernels.refuse_as_cuda_does(kernel(160 * KIB), DEVICE, *DIMS, 80 * KIB)


# ptxas


PTX = """
.version {version}
.target {arch}
.address_size 64
.visible .entry k(.param .u64 out) {{
  .reg .b64 %rd<2>;
  .shared .align 4 .b8 s[{size}];
  ld.param.u64 %rd1, [out];
  st.shared.u32 [s], 3;
  st.global.u32 [%rd1], 3;
  ret;
}}
"""


def module(folder: Path, arch: str, size: int) -> Path:
    path = folder / "k.ptx"
    path.write_text(PTX.format(version="8.7", arch=arch, size=size))
    return path


@pytest.mark.parametrize(
    ("arch", "size", "taken"),
    [
        *(("sm_100", 48 * KIB, True), ("sm_100", 48 * KIB + 4, False)),
        *(("sm_90a", 227 * KIB, True), ("sm_100a", 60 * KIB, True)),
        *(("sm_100a", 227 * KIB, True), ("sm_100a", 227 * KIB + 4, False)),
    ],
)
def test_ptxas_decides_how_much_is_static(
    toolchain: Toolchain, tmp_path: Path, arch: str, size: int, taken: bool
) -> None:
    path = module(tmp_path, arch, size)
    if taken:
        assert assemble(toolchain, path, arch)["k"].shared_bytes == size
    else:
        with pytest.raises(CompileError, match="too much shared data"):
            assemble(toolchain, path, arch)


@pytest.mark.parametrize(
    ("image", "taken"),
    [
        (Image("compute_100", "sm_100"), False),
        (Image("compute_100a", "sm_100a"), True),
        (Image("compute_100", "compute_100"), True),  # the driver's compiler takes it
    ],
)
def test_large_static_shared_memory_needs_an_architecture_that_takes_it(
    toolchain: Toolchain, tmp_path: Path, image: Image, taken: bool
) -> None:
    request = Request("m", (Source("cuda.cu", ""),), (image,), (10, 0))
    compilation = _Compilation(request, toolchain, tmp_path, slim=True)
    path = module(tmp_path, image.virtual.replace("compute", "sm"), 60 * KIB)
    if taken:
        assert compilation._resources(path)["k"]["shared_bytes"] == 60 * KIB
    else:
        with pytest.raises(CompileError, match="too much shared data"):
            compilation._resources(path)
