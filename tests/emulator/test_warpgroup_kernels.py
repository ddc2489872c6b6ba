"""Kernels of a warpgroup in CUDA C++, compiled for sm_90a: of right ones nothing is said, of wrong
ones what is wrong, at the line of the source."""

from __future__ import annotations

import re
import struct
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from ptx_harness import aligned

from nvfp4 import emulator
from nvfp4.capture.cuda.toolchain import find_toolchain
from nvfp4.emulator.errors import EmulatorError

SOURCE = Path(__file__).with_name("warpgroups.cu")
_CASE = re.compile(r'^// (right|wrong: (\w+))\nextern "C" __global__ void (\w+)\(', re.MULTILINE)


class Case(NamedTuple):
    """A kernel. code: of what is to be found, None for a right one. here: lines of which a message
    names one."""

    name: str
    code: str | None
    here: set[int]


def cases() -> list[Case]:
    text = SOURCE.read_text(encoding="utf-8")
    found = list(_CASE.finditer(text))
    ends = [*(each.start() for each in found[1:]), len(text)]
    made = []
    for each, end in zip(found, ends, strict=True):
        first = text.count("\n", 0, each.start()) + 1
        lines = text[each.start() : end].splitlines()
        here = {first + i for i, line in enumerate(lines) if line.endswith("<- here")}
        made.append(Case(each[3], each[2], here))
    return made


@pytest.fixture(scope="module")
def ptx(tmp_path_factory: pytest.TempPathFactory) -> str:
    tools, target = find_toolchain(), tmp_path_factory.mktemp("warpgroups") / "kernels.ptx"
    command = [str(tools.nvcc), "-ccbin", tools.host_compiler, "-ptx", "-lineinfo", "-std=c++17"]
    command += ["-arch=sm_90a", "-o", str(target), str(SOURCE)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return target.read_text(encoding="utf-8")


def run(ptx: str, name: str) -> tuple[Any, Any, list[tuple[str, int | None]]]:
    """(c, the exact product, what was found: codes with lines of the source)."""
    rng = np.random.default_rng(1)
    a, b = (aligned(rng.integers(-4, 5, (rows, 64)).astype(np.float16)) for rows in (64, 16))
    c = np.zeros((64, 16), np.float32)
    arrays = {"a": a, "b": b, "c": c}
    exact = a.astype(np.float32) @ b.astype(np.float32).T
    try:
        report = emulator.run_ptx(
            ptx, name, (1,), (128,), [struct.pack("<Q", x.ctypes.data) for x in arrays.values()],
            buffers=[(key, x.ctypes.data, x.nbytes) for key, x in arrays.items()],
        )  # fmt: skip
    except EmulatorError as error:
        user = error.where.user if error.where else None
        return c, exact, [(error.code, user.line if user else None)]
    return c, exact, [(each.code, each.line) for each in report.findings]


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_a_kernel_is_judged_rightly(ptx: str, case: Case) -> None:
    c, exact, found = run(ptx, case.name)
    if case.code is None:
        assert found == []
        assert np.array_equal(c, exact)
    else:
        assert {code for code, _ in found} == {case.code}
        assert {line for _, line in found} & case.here, (found, case.here)
