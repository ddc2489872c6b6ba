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
import torch
import triton
import triton.language as tl
from ptx_harness import aligned

from nvfp4 import emulator
from nvfp4.capture.cuda.toolchain import find_toolchain
from nvfp4.emulation import install_stand_in
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


@triton.jit
def multiply(a, b, c, K, M: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    rows, columns = tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, N)
    sums = tl.zeros((M, N), tl.float32)
    for start in range(0, K, BLOCK):
        k = start + tl.arange(0, BLOCK)
        left = tl.load(a + rows[:, None] * K + k[None, :])
        right = tl.load(b + k[:, None] * N + columns[None, :])
        sums = tl.dot(left, right, sums)
    tl.store(c + rows[:, None] * N + columns[None, :], sums)


@pytest.mark.corpus
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e4m3fn])
def test_a_pipeline_of_triton_for_a_hopper_is_right(dtype: torch.dtype, tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a real CUDA device")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path))
        with install_stand_in(arch="sm_90a") as emulation:
            a = torch.randint(-4, 5, (128, 128)).to(dtype)
            b = torch.randint(-4, 5, (128, 64)).to(dtype)
            c = torch.zeros(128, 64, device="cuda")
            multiply[(2,)](a.cuda(), b.cuda(), c, 128, 64, 64, 32, num_stages=3)
            report = emulation.launches[-1]
            assert report.findings == [] and report.tensor_instructions > 0
            assert torch.equal(c.cpu(), a.float() @ b.float())
