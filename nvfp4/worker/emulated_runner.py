"""A runner on a stand-in for CUDA, whose kernels are emulated."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import mmap
import os
from pathlib import Path
from typing import Any

import torch

from nvfp4.contract.layout import dimensions, layouts
from nvfp4.model.counting import accesses_of
from nvfp4.model.lines import line_times, with_times
from nvfp4.model.tools import assemble
from nvfp4.model.traffic import Access
from nvfp4.records.launch import Launch
from nvfp4.records.launch_records import outbox_bytes
from nvfp4.records.messages import (
    Call,
    Called,
    Done,
    Explain,
    Load,
    OpenCase,
    Record,
    Recorded,
    WatchedCall,
)
from nvfp4.records.options import Options
from nvfp4.shared_memory.buffers import SharedBuffers, output_name, whole_mapping
from nvfp4.worker.runner import Runner

explained_name = "explained.json"
"""In the folder that a submission's process may write to."""

_most_cases = 3
"""Whose tensors stay; as many as the judge takes turns with."""

most_kernels = 16
"""Whose cost is explained."""


class EmulatedRunner(Runner):
    """Reports of emulated launches come with each call."""

    _emulation: Any = None
    emulates = True
    expected_device = "cuda"

    def __init__(self, submission: Path, options: Options) -> None:
        super().__init__(submission, options)
        self._cases: dict[tuple[int, int], SharedBuffers] = {}
        self.operations |= {
            WatchedCall: self._watched_call,
            Record: self._record,
            Explain: self._explain_costs,
        }

    def adopt(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor of the stand-in on the same memory."""
        adopted: torch.Tensor = self._emulation.adopt(tensor)
        return adopted

    def host_view(self, output: torch.Tensor) -> torch.Tensor:
        """Raises the finding on which the contents depend."""
        seen: torch.Tensor = self._emulation.output(output)
        return seen

    def _load(self, request: Load, fd: int | None) -> Done:
        from nvfp4 import emulation

        if self._emulation is None:
            self._emulation = emulation.install_stand_in(
                self._submission,
                self.options.arch,
                self.options.check,
                self.options.orders,
                bool(self.options.keep),
                self.name,
            )
            emulation.activity.tell(self._note)
            self._emulation.tell_refusals(self.state.refused)
        with emulation.activity.busy("importing"):
            return super()._load(request, fd)

    def _open_case(self, request: OpenCase, fd: int | None) -> Done:
        """The tensors of a few cases stay where they are: what a submission keeps of an address is
        wrong for the others, and a case that the judge returns to has its own."""
        assert fd is not None
        file = os.fstat(fd)
        memory = file.st_dev, file.st_ino
        kept = self._cases.pop(memory, None)
        self.buffers = SharedBuffers({})  # which the next line would close
        if kept is None:
            super()._open_case(request, fd)
            kept = self.buffers
        else:
            os.close(fd)
            self.shape = (request.m, request.k, request.l)
            self.buffers = kept
        self._cases[memory] = kept
        if len(self._cases) > _most_cases:
            self._cases.pop(next(iter(self._cases))).close()
        return Done()

    def _note(self, word: str) -> None:
        """For nvfp4/cli/judging/bot.py; the submission can do as it likes with the file."""
        self.state.busy(word)
        with contextlib.suppress(OSError):
            (self._submission.parent / "activity").write_text(word)

    def begin_call(self) -> Any:
        """Kernels may use the case's buffers; returns the emulation."""
        self._emulation.begin_call("x".join(map(str, self.shape)), self.watch.deadline)
        known = layouts(*self.shape)
        for name, tensor in self.buffers.tensors.items():
            if name != output_name:
                # Launches may write c alone.
                self._emulation.register(
                    name,
                    tensor.data_ptr(),
                    tensor.numel(),
                    writable=name == "c",
                    view=known[name].view(tensor),
                    dimensions=dimensions[name],
                )
        return self._emulation

    def _call(self, request: Call, fd: int | None) -> Called:
        emulation = self.begin_call()
        answer = super()._call(request, fd)
        emulation.end_call()
        reports = [each.to_dict() for each in emulation.launches]
        return dataclasses.replace(answer, launches=reports)

    def _watched_call(self, request: WatchedCall, fd: int | None) -> Called:
        """A call whose reports are those who wrote an element of c."""
        m, _, _ = self.shape
        c = self.buffers.tensors["c"]
        element = request.batch * m + request.row
        with self._emulation.watching(c.data_ptr() + 2 * element, 2) as watch:
            answer = self._call(Call(), fd)
        return dataclasses.replace(answer, launches=[vars(each) for each in watch.writers])

    def _record(self, request: Record, fd: int | None) -> Recorded:
        outbox = mmap.mmap(fd, outbox_bytes) if request.fresh and fd is not None else None
        emulation = self.begin_call()
        base, nbytes = whole_mapping(self.buffers)
        c = self.buffers.tensors["c"]
        with emulation.recording(outbox) as recorder:
            recorder.begin((base, nbytes), (c.data_ptr(), c.numel()))
            try:
                output = self.kernel(self.data(self.buffers))
                self.refuse_other_outputs(output)
                emulation.end_call()
                said = recorder.finish()
            except Exception:
                if recorder.refused is None:
                    raise
                return Recorded({}, True, recorder.refused)
        launched = recorder.launched
        if not any(step["launch"] for step in said["steps"]):
            return Recorded({}, launched, recorder.refused or "no kernel was launched")
        if recorder.refused is not None:
            return Recorded({}, launched, recorder.refused)
        width = output.element_size()
        call = {
            **said,
            "base": base,
            "output": output.data_ptr(),
            "dtype": str(output.dtype).removeprefix("torch."),
            "strides": [each * width for each in output.stride()],
        }
        return Recorded(call, launched, "")

    def _explain_costs(self, request: Explain, fd: int | None) -> Done:
        emulation = self.begin_call()
        asked: dict[tuple[str, str], dict[int, Access]] = {}

        def look(launch: Launch) -> None:
            asked.setdefault((launch.kernel, launch.ptx), accesses_of(launch))

        emulation.count_by_line(request.instructions, look)
        try:
            self.kernel(self.data(self.buffers))
            kernels = []
            for cost in emulation.costs_by_kernel()[:most_kernels]:
                times = line_times(cost, asked[cost.entry, cost.ptx], self.options)
                kernels.append(with_times(_plain_cost(cost, request), times))
        finally:
            emulation.count_by_line(None)
        text = json.dumps({"kernels": kernels})
        (self._submission.parent / explained_name).write_text(text, encoding="utf-8")
        return Done()


def _plain_cost(cost: Any, request: Explain) -> dict[str, Any]:
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
