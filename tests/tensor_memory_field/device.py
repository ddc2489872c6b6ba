"""What the kernels of this corpus share: a launch and a tensor map, of the stand-in's device."""

import ctypes
import struct
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from nvfp4.capture.codes import CudaError
from nvfp4.capture.cuda.compilers import assemble, run_compiler
from nvfp4.capture.cuda.runtime import RUNTIME, Module
from nvfp4.capture.cuda.toolchain import find_toolchain
from nvfp4.capture.kernel import Resources
from nvfp4.records.launch_errors import InvalidTensorMap
from nvfp4.records.tensormap import DataType, Fill, Interleave, Swizzle, TensorMap

SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
"""CUtensorMapSwizzle by the bytes that a row of a swizzled tile has."""


class Refused(RuntimeError):
    """The driver takes a call for an error."""

    code = "refused"


class Kernel:
    """A function of a CUDA text, compiled for sm_100a."""

    def __init__(self, source: str, name: str = "kernel") -> None:
        ptx, resources = compiled(source)
        self.function = RUNTIME.new_handle()
        module = RUNTIME.add_module(Module((ptx,), resources))
        RUNTIME.register_function(module, self.function, name)

    def __call__(self, grid: int, block: int, *arguments: Any, cluster: int = 1) -> None:
        """Launch. arguments: tensors, tensor maps (bytes) and integers (int)."""
        raw = [
            struct.pack("<Q", each.data_ptr())
            if isinstance(each, torch.Tensor)
            else struct.pack("<I", each & 0xFFFFFFFF)
            if isinstance(each, int)
            else each
            for each in arguments
        ]
        kept = [ctypes.create_string_buffer(each) for each in raw]
        pointers = (ctypes.c_void_p * len(kept))(*map(ctypes.addressof, kept))
        dims = (grid, 1, 1), (block, 1, 1), (cluster, 1, 1)
        try:
            RUNTIME.launch(self.function, *dims, ctypes.addressof(pointers), 0)
        except CudaError as error:
            raise Refused(str(error)) from error


def compiled(source: str) -> tuple[str, dict[str, Resources]]:
    """PTX, and what each kernel needs. Raises CompileError with the compiler's messages."""
    tools = find_toolchain()
    with tempfile.TemporaryDirectory() as folder:
        text, ptx = Path(folder, "kernel.cu"), Path(folder, "kernel.ptx")
        text.write_text(source)
        command = [
            *(str(tools.nvcc), "-ccbin", tools.host_compiler, "-std=c++17", "-lineinfo"),
            *("-arch=compute_100a", "-ptx", "-I", str(Path(__file__).parent)),
            *("-isystem", str(tools.include), str(text), "-o", str(ptx)),
        ]
        run_compiler(tools, command, Path(folder), text.name)
        return ptx.read_text(), assemble(tools, ptx, "sm_100a")


def tensor_map(tensor: torch.Tensor, box: Sequence[int], swizzle: int = 0) -> bytes:
    """A tensor map of a float16 matrix [rows, columns]. box: columns and rows of a tile."""
    rows, columns = tensor.shape
    made = TensorMap(
        data_type=DataType.FLOAT16,
        address=tensor.data_ptr(),
        shape=(columns, rows),
        strides_bytes=(tensor.stride(0) * tensor.element_size(),),
        box=tuple(box),
        element_strides=(1, 1),
        interleave=Interleave(0),
        swizzle=Swizzle(SWIZZLES[swizzle]),
        l2_promotion=0,
        fill=Fill(0),
    )
    try:
        return made.pack()
    except InvalidTensorMap as error:
        raise Refused(str(error)) from error
