"""Runs test kernels in the emulator and on a device.

A test kernel takes pointers to its input arrays, pointers to its output arrays and a u32 count, and
does one element a thread. A module may hold several kernels; each takes an equal share of the
elements.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from nvfp4 import emulator
from nvfp4.emulator.arithmetic import Op
from nvfp4.records.launch import Buffer, Launch, ListedMemory
from nvfp4.retarget.driver import installed_driver
from scripts.fidelity.ptx import Module, truth_tables

Array = np.ndarray[Any, Any]
THREADS = 256
_PIECE = 1 << 16


def edges(total: int, parts: int) -> list[int]:
    """The boundaries of `parts` runs of nearly equal length."""
    return [int(edge) for edge in np.linspace(0, total, parts + 1)]


def _launches(
    module: Module, arrays: Sequence[Array], addresses: Sequence[int]
) -> Iterator[tuple[str, tuple[int, int, int], list[bytes]]]:
    """Name, grid and parameters of each launch."""
    bounds = edges(len(arrays[0]), len(module.kernels))
    for name, (start, stop) in zip(module.kernels, itertools.pairwise(bounds), strict=True):
        pointers = [
            (address + start * array.itemsize).to_bytes(8, "little")
            for address, array in zip(addresses, arrays, strict=True)
        ]
        count = stop - start
        yield name, (-(-count // THREADS), 1, 1), [*pointers, count.to_bytes(4, "little")]


def on_emulator(module: Module, inputs: Sequence[Array]) -> list[Array]:
    """The outputs of a module's kernels, run by the emulator."""
    sources = [np.ascontiguousarray(array) for array in inputs]
    outputs = [np.zeros(len(inputs[0]), dtype) for dtype in module.outputs]
    arrays = [*sources, *outputs]
    addresses = [array.ctypes.data for array in arrays]
    buffers = [Buffer(f"array {i}", x.ctypes.data, x.nbytes) for i, x in enumerate(arrays)]
    for name, grid, parameters in _launches(module, arrays, addresses):
        block, memory = (THREADS, 1, 1), ListedMemory(buffers)
        emulator.run(Launch(module.text, name, grid, block, parameters, memory=memory))
    return outputs


def to_device(array: Array) -> torch.Tensor:
    """The bytes of an array, on the GPU."""
    return torch.from_numpy(np.ascontiguousarray(array).view(np.uint8).reshape(-1).copy()).cuda()


def on_device(module: Module, inputs: Sequence[Array]) -> list[Array]:
    """The outputs of a module's kernels, run by the device. Raises DriverError."""
    outputs = [np.zeros(len(inputs[0]), dtype) for dtype in module.outputs]
    arrays = [*inputs, *outputs]
    tensors = [to_device(array) for array in arrays]
    loaded = installed_driver().load(module.text)
    for name, grid, parameters in _launches(module, arrays, [each.data_ptr() for each in tensors]):
        kernel = loaded.kernel(name, [len(each) for each in parameters])
        kernel.launch(grid, (THREADS, 1, 1), 0, parameters, 0)
    found = [tensor.cpu().numpy() for tensor in tensors[len(inputs) :]]
    return [raw.view(dtype) for raw, dtype in zip(found, module.outputs, strict=True)]


def by_definition(op: Op, columns: Sequence[Array]) -> list[Array]:
    """What the emulator's arithmetic makes of operands, in pieces that stay in cache.

    The fourth operand of lop3, its truth table, is one of 256 in each of 256 equal shares.
    """
    tables = truth_tables(op)
    bounds = edges(len(columns[0]), len(tables))
    pieces: list[tuple[Array, ...]] = []
    for table, (start, stop) in zip(tables, itertools.pairwise(bounds), strict=True):
        for low in range(start, stop, _PIECE):
            part = [column[low : min(low + _PIECE, stop)] for column in columns]
            if table is not None:
                part[3] = np.array(table, dtype=np.uint32)
            pieces.append(op.function(*part))
    return [np.concatenate(parts) for parts in zip(*pieces, strict=True)]
