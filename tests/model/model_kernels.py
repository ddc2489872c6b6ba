"""Small kernels in PTX, counted as the judge counts them."""

import struct
from typing import Any

import numpy as np
from twins import WORDS

from nvfp4 import emulator
from nvfp4.model.counting import counted
from nvfp4.model.prediction import GPUS, Counted, Prediction, predict
from nvfp4.model.tools import tools
from nvfp4.records.launch import Buffer, Launch, ListedMemory

Array = np.ndarray[Any, Any]

MISSING = not (tools("ptxas") and tools("nvdisasm"))


def count(
    text: str, grid: int, block: int, *more: bytes, words: int = 1, check: bool = False
) -> Counted:
    """One launch, executed. more: parameters behind `a` and `c`. words: of `c`, for each thread."""
    data = np.zeros(WORDS + 64, np.uint32)
    start = -data.ctypes.data % 128 // 4
    data = data[start : start + WORDS]
    result = np.zeros(grid * block * words, np.uint32)
    memory = [Buffer(n, x.ctypes.data, x.nbytes) for n, x in (("a", data), ("c", result))]
    parameters = [struct.pack("<Q", each.ctypes.data) for each in (data, result)]
    given = (grid, 1, 1), (block, 1, 1), [*parameters, *more]
    launch = Launch(text, "k", *given, memory=ListedMemory(memory), samples=True)
    return counted(launch, emulator.run(launch, check))


def predicted(text: str, grid: int, block: int, gpu: str = "B200") -> Prediction:
    """The time of one launch after a clean flush."""
    return predict(GPUS[gpu], [count(text, grid, block)], clean=True)
