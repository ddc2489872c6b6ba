"""What the kernels of this corpus share: a launch and a tensor map."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from cuda.bindings import driver, nvrtc

HEADER = Path(__file__).with_name("ptx.h")
"""CUDA C++: each instruction as a function or macro."""

SWIZZLES = {
    0: driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_NONE,
    32: driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_32B,
    64: driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_64B,
    128: driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
}
"""By the bytes that a row of a swizzled tile has."""


class Refused(RuntimeError):
    """The driver takes a call for an error."""

    code = "refused"


def check(result: tuple[Any, ...]) -> Any:
    """What a call of cuda.bindings returns. Raises Refused."""
    error, *values = result
    if error.value:
        raise Refused(str(error))
    return values[0] if len(values) == 1 else values


class Kernel:
    """A function of a CUDA text, compiled for sm_100a."""

    def __init__(self, source: str, name: str = "kernel") -> None:
        check(driver.cuInit(0))
        device = check(driver.cuDeviceGet(0))
        check(driver.cuCtxSetCurrent(check(driver.cuDevicePrimaryCtxRetain(device))))
        self.module = check(driver.cuModuleLoadData(compiled(source)))
        self.function = check(driver.cuModuleGetFunction(self.module, name.encode()))

    def __call__(
        self,
        grid: int,
        block: int,
        *arguments: Any,
        cluster: int = 1,
        programmatic: bool = False,
    ) -> None:
        """Launch. arguments: tensors, tensor maps and integers (int)."""
        values, types = [], []
        for each in arguments:
            is_tensor = isinstance(each, torch.Tensor)
            values.append(each.data_ptr() if is_tensor else each)
            types.append(
                ctypes.c_void_p if is_tensor else ctypes.c_int if isinstance(each, int) else None
            )
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = grid, 1, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = block, 1, 1
        attributes = []
        if cluster > 1:
            of_cluster = driver.CUlaunchAttribute()
            of_cluster.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            dimensions = of_cluster.value.clusterDim
            dimensions.x, dimensions.y, dimensions.z = cluster, 1, 1
            attributes.append(of_cluster)
        if programmatic:
            early = driver.CUlaunchAttribute()
            early.id = (
                driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            )
            early.value.programmaticStreamSerializationAllowed = 1
            attributes.append(early)
        config.attrs, config.numAttrs = attributes, len(attributes)
        packed = (tuple(values), tuple(types))
        check(driver.cuLaunchKernelEx(config, self.function, packed, 0))


def compiled(source: str) -> bytes:
    """PTX. Raises RuntimeError with the compiler's messages."""
    program = check(
        nvrtc.nvrtcCreateProgram(
            source.encode(), b"kernel.cu", 1, [HEADER.read_bytes()], [b"ptx.h"]
        )
    )
    options = [b"--gpu-architecture=compute_100a", b"--std=c++17", b"-lineinfo"]
    (error,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if error.value:
        log = b" " * check(nvrtc.nvrtcGetProgramLogSize(program))
        check(nvrtc.nvrtcGetProgramLog(program, log))
        raise RuntimeError(log.decode())
    ptx = b" " * check(nvrtc.nvrtcGetPTXSize(program))
    check(nvrtc.nvrtcGetPTX(program, ptx))
    return ptx


def tensor_map(tensor: torch.Tensor, box: Sequence[int], swizzle: int = 0) -> Any:
    """A tensor map of a float16 matrix [rows, columns]. box: columns and rows of a tile."""
    rows, columns = tensor.shape
    return check(
        driver.cuTensorMapEncodeTiled(
            driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
            2,
            tensor.data_ptr(),
            [driver.cuuint64_t(columns), driver.cuuint64_t(rows)],
            [driver.cuuint64_t(tensor.stride(0) * tensor.element_size())],
            [driver.cuuint32_t(each) for each in box],
            [driver.cuuint32_t(1), driver.cuuint32_t(1)],
            driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            SWIZZLES[swizzle],
            driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    )
