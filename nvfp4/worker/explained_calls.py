"""The worker's side of `nvfp4 explain`: one call whose kernels are counted by line."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nvfp4.records.messages import Done
from nvfp4.worker.emulated_runner import EmulatedRunner
from nvfp4.worker.machine_code import assemble

explained_name = "explained.json"
"""In the folder that a submission's process may write to."""

most_kernels = 16


@dataclass(frozen=True)
class Explain:
    """Call custom_kernel once and write what its kernels cost to a file. instructions: after how
    many warp instructions a launch may stop. ptx, sass: with the text of the code.
    """

    instructions: int
    ptx: bool
    sass: bool


class ExplainedCalls:
    """The operation on a runner's submission."""

    def __init__(self, runner: EmulatedRunner, folder: Path) -> None:
        self._runner = runner
        self._folder = folder
        self.operations: dict[type, Callable[[Any, int | None], object]] = {Explain: self._explain}

    def _explain(self, request: Explain, fd: int | None) -> Done:
        runner = self._runner
        emulation = runner.begin_call()
        emulation.count_by_line(request.instructions)
        try:
            runner.kernel(runner.data(runner.buffers))
            kernels = [_plain(cost, request) for cost in emulation.costs_by_kernel()[:most_kernels]]
        finally:
            emulation.count_by_line(None)
        text = json.dumps({"kernels": kernels})
        (self._folder / explained_name).write_text(text, encoding="utf-8")
        return Done()


def _plain(cost: Any, request: Explain) -> dict[str, Any]:
    """A kernel's cost for JSON, with what the assembler says where there is one."""
    plain: dict[str, Any] = cost.to_dict()
    code = assemble(cost.ptx, cost.entry, request.sass)
    plain["assembled_registers"] = code.registers
    plain["spilled_bytes"] = code.spilled_bytes
    if request.sass:
        plain["sass"] = [vars(each) for each in code.sass]
        plain["no_sass"] = code.missing
    if request.ptx:
        lines = cost.ptx.split("\n")
        plain["ptx"] = [
            {"file": file, "line": line, "count": count, "text": lines[number - 1].strip()}
            for number, (count, file, line) in sorted(cost.ptx_lines.items())
        ]
    return plain
