"""Kernels, and their outputs by the emulator on the contest's tests."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from nvfp4.cli.problem import load_problem, shape_of
from nvfp4.tuner.space import load_submission

RECORDED = Path("build", "retargeting.pt")
FILES = [
    Path("submission.py"),
    Path("ladder", "cute", "03_block_sum.py"),
    *(
        Path("tests", "kernels", f"{name}.py")
        for name in (
            *("packed", "shared_memory", "warp_per_row", "cp_async", "tma"),
            *("split_k", "tensor_arguments"),
        )
    ),
]


DTYPES = (*[torch.float4_e2m1fn_x2] * 2, *[torch.float8_e4m3fn] * 4, torch.float16)


def to_bytes(data: Any) -> list[torch.Tensor]:
    """The tensors of a call as bytes, in memory of their own, permuted as they are."""
    return [tensor.view(torch.uint8).clone() for tensor in data[:-1]] + [data[-1].clone()]


def to_cuda(raw: list[torch.Tensor]) -> Any:
    """The tensors of a call on the GPU."""
    return tuple(each.cuda().view(dtype) for each, dtype in zip(raw, DTYPES, strict=True))


def bits(output: torch.Tensor) -> torch.Tensor:
    """float16 [m, 1, l] as integers on the CPU, in memory of their own."""
    return output.contiguous().view(torch.int16).cpu().clone()


def record(seconds: float) -> None:
    """Emulates every kernel on every case as sm_100a; writes {"cases", "outputs"} to RECORDED.

    In this process, which must see no GPU. Kernels that there is no time for are left out.
    """
    from nvfp4 import emulator
    from nvfp4.capture.cutedsl import intercept
    from nvfp4.capture.torch_memory import ProcessMemory
    from nvfp4.contract.reference import generate_full_range_input, generate_input

    shapes = dict.fromkeys(shape_of(line) for line in load_problem().tests)
    cases = {
        f"{shape} {kind}": generate(shape.m, shape.k, shape.l, seed=1111)
        for shape in shapes
        for kind, generate in (("contest", generate_input), ("full", generate_full_range_input))
    }
    outputs: dict[str, dict[str, torch.Tensor]] = {}
    start = time.monotonic()
    with intercept(lambda launch: _ignore(emulator.run(launch, False)), "sm_100a", ProcessMemory()):
        for path in FILES:
            submission, outputs[path.stem] = load_submission(path), {}
            for name, data in cases.items():
                if time.monotonic() - start > seconds:
                    break
                data[6].fill_(torch.nan)
                outputs[path.stem][name] = bits(submission.custom_kernel(data))
    RECORDED.parent.mkdir(exist_ok=True)
    stored = {name: to_bytes(data) for name, data in cases.items()}
    torch.save({"cases": stored, "outputs": outputs}, RECORDED)


def _ignore(report: object) -> None:
    pass


def recorded(seconds: float = 90) -> dict[str, Any]:
    """What `record` wrote, after it ran in a process that sees no GPU, unless it has before."""
    if not RECORDED.exists():
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
        command = [sys.executable, "-m", "scripts.retargeting.cases", str(seconds)]
        subprocess.run(command, env=environment, check=True, stdout=sys.stderr)
    found: dict[str, Any] = torch.load(RECORDED, weights_only=False)
    return found


if __name__ == "__main__":
    record(float(sys.argv[1]))
