"""Reads what stands in front of the kernels of `kernels.cu`, and runs them."""

import re
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nvfp4 import emulator
from nvfp4.capture.cuda.toolchain import find_toolchain
from nvfp4.emulator.errors import EmulatorError

SOURCE = Path(__file__).with_name("kernels.cu")
BLOCKS, THREADS = 8, 64

_CASE = re.compile(
    r"^// (right|wrong): (.+)\n(?:// launch: cluster=(\d+)\n)?__global__ void .*?(\w+)\(const int",
    re.MULTILINE,
)
_CALLS = re.compile(r"\* in, int\* out\) \{ (\w+)<")
_HERE = re.compile(r"<- ([\w ]+)$")


@dataclass(frozen=True)
class Case:
    """A kernel. expected: the formula of what a right one gives, or codes that a wrong one may be
    found by. here: the lines of which a message names one."""

    name: str
    right: bool
    expected: str
    cluster: int
    here: tuple[int, ...]


def cases() -> list[Case]:
    """All of the file, in its order."""
    text = SOURCE.read_text(encoding="utf-8")
    made = []
    for each in _CASE.finditer(text):
        template = _CALLS.match(text, each.end())
        start = text.index(f"void {template[1]}(") if template else each.start()
        first, end = text.count("\n", 0, start) + 1, text.index("\n}", start)
        marks = enumerate(map(_HERE.search, text[start:end].splitlines()))
        named = {each[4], *each[2].split()}
        here = tuple(first + i for i, mark in marks if mark and named & set(mark[1].split()))
        size = int(each[3] or (1 if "__cluster_dims__" in each[0] else 4))
        made.append(Case(each[4], each[1] == "right", each[2], size, here))
    return made


def compile_to_ptx(folder: Path) -> str:
    """The PTX of the kernels, with the lines of the source."""
    tools = find_toolchain()
    target = folder / "kernels.ptx"
    command = [str(tools.nvcc), "-ccbin", tools.host_compiler, "-ptx", "-lineinfo", "-std=c++17"]
    command += ["-arch=sm_100a", "-o", str(target), str(SOURCE)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return target.read_text(encoding="utf-8")


def inputs() -> np.ndarray[Any, Any]:
    """What kernels read: int32[blocks, threads] at a multiple of 128 bytes."""
    block = np.zeros(4 * BLOCKS * THREADS + 128, np.uint8)
    start = -block.ctypes.data % 128
    data = block[start : start + 4 * BLOCKS * THREADS].view(np.int32).reshape(BLOCKS, THREADS)
    data[:] = np.random.default_rng(1).integers(1, 1000, data.shape)
    return data


def run(ptx: str, case: Case, data: np.ndarray[Any, Any]) -> tuple[Any, list[tuple[str, set[int]]]]:
    """What a kernel wrote, and what was found: (code, lines of the source)."""
    out = np.full((BLOCKS, THREADS), -7, np.int32)
    try:
        report = emulator.run_ptx(
            ptx,
            case.name,
            (BLOCKS,),
            (THREADS,),
            [struct.pack("<Q", data.ctypes.data), struct.pack("<Q", out.ctypes.data)],
            buffers=[
                ("data", data.ctypes.data, data.nbytes),
                ("out", out.ctypes.data, out.nbytes),
            ],
            cluster=(case.cluster,),
        )
    except EmulatorError as error:
        places = [error.where, *(each.where for each in error.related)]
        lines = {at.user.line for at in places if at is not None and at.user is not None}
        return out, [(error.code, lines)]
    found = [
        (each.code, {each.line or 0} | {other["line"] for other in each.related})
        for each in report.findings
    ]
    return out, found


def expected_output(case: Case, data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """By the formula of a right kernel."""
    made = np.empty((BLOCKS, THREADS), np.int64)
    for block in range(BLOCKS):
        first = block // 4 * 4
        names = {
            "data": _ByCluster(data, slice(first, first + 4)),
            "block": block,
            "next": first + (block + 1) % 4,
            "before": first + (block + 3) % 4,
        }
        for t in range(THREADS):
            made[block, t] = eval(case.expected, {**names, "t": t})
    return made


class _ByCluster:
    """The input; `data[cluster]` are the rows of the block's cluster."""

    def __init__(self, data: np.ndarray[Any, Any], rows: slice) -> None:
        self.data, self.rows = data, rows

    def __getitem__(self, which: Any) -> Any:
        return self.data[self.rows if which is ... else which]
