"""Each row of the table on this GPU, rewritten, against the emulator's original."""

from __future__ import annotations

import json
import struct
import sys
from typing import Any

import numpy as np
import torch
from kernels_of_rows import HEADER, THREADS, Array, Row, columns_of, kernel, pattern, results
from rows import ROWS
from test_memory_and_warps import PROGRAMS, contents, run

from nvfp4.records.launch import Launch
from nvfp4.retarget import target_of
from nvfp4.retarget.executor import Executor

# Atomic sums in no order, and registers that a launch must have set aside.
NOT_COMPARABLE = ("red.", "launch control")


def on_device(array: Array) -> torch.Tensor:
    """The bytes of an array, on the GPU."""
    return torch.from_numpy(array.view(np.uint8).reshape(-1).copy()).cuda()


def launched(executor: Executor, text: str, block: int, grid: int, arrays: list[Array]) -> Array:
    """The bytes of the last array after kernel k ran on copies of all of them."""
    tensors = [on_device(array) for array in arrays]
    parameters = [struct.pack("<Q", tensor.data_ptr()) for tensor in tensors]
    executor.run(Launch(text, "k", (grid, 1, 1), (block, 1, 1), parameters))
    torch.cuda.synchronize()
    found: Array = tensors[-1].cpu().numpy()
    return found


def compare_row(executor: Executor, row: Row) -> dict[str, Any] | None:
    """None where all bits are the same, else the first operands where they are not."""
    text, columns = HEADER + kernel(row, "k", False), columns_of(row)
    want = results(text, "k", row, columns)
    start = pattern(len(want), row)
    blocks = len(want) // THREADS
    got = launched(executor, text, THREADS, blocks, [*columns, start]).view(want.dtype)
    different = np.flatnonzero(got != want)
    if not different.size:
        return None
    first = different[0]
    return {
        "row": row.text,
        "different": int(different.size),
        "of": len(want),
        "operands": [hex(column[first]) for column in columns],
        "emulator": hex(want[first]),
        "gpu": hex(got[first]),
    }


def compare_program(executor: Executor, name: str) -> dict[str, Any] | None:
    """The same for a program of loads, stores or warp instructions."""
    text = PROGRAMS[name].text
    for seed in range(4):
        want = run(text, seed)
        got = launched(executor, text, 64, 1, [contents(seed), contents(seed + 1)]).view(np.uint32)
        different = np.flatnonzero(got != want)
        if different.size:
            words = [hex(want[different[0]]), hex(got[different[0]])]
            return {"program": name, "different": int(different.size), "emulator, gpu": words}
    return None


def main() -> int:
    """Prints a JSON object; 1 if bits differ."""
    executor = Executor(str(target_of(torch.cuda.get_device_capability())))
    torch.zeros(1).cuda()
    wrong: list[Any] = []
    programs = [name for name in PROGRAMS if not name.startswith(NOT_COMPARABLE)]
    compared = 0
    try:
        for row in ROWS:
            found = compare_row(executor, row)
            wrong += [found] if found else []
            compared += 1
        for name in programs:
            found = compare_program(executor, name)
            wrong += [found] if found else []
            compared += 1
    except Exception as error:  # the device may be lost
        wrong.append({"error": f"{type(error).__name__}: {error}"[:1500], "after": compared})
    rewritten = sum(bool(report.changed) for report in executor.reports)
    print(
        json.dumps(
            {
                "passed": not wrong,
                "device": torch.cuda.get_device_name(),
                "target": executor.target,
                "compared": compared,
                "rewritten": rewritten,
                "wrong": wrong[:20],
                "wrong_count": len(wrong),
            }
        )
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
