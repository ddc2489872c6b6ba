"""The process that runs recorded launches on the true inputs. It never sees a submission's code.

    python -m nvfp4.executor SOCKET

The judge's side is `judge/executor.py`.
"""

from __future__ import annotations

import mmap
import os
import socket
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from nvfp4 import emulator
from nvfp4.emulator import Buffer, EmulatorError, Launch, ListedMemory, Note, UnderWay, View, Worlds
from nvfp4.emulator.errors import NotAdmitted
from nvfp4.emulator.loops import COMPILED
from nvfp4.emulator.rendering import annotated_ptx, keep_listing
from nvfp4.emulator.source import show_as
from nvfp4.executor.admission import Admission
from nvfp4.executor.machine_code import compiled_since
from nvfp4.executor.mapped_memory import MappedMemory, NotMappable, contents, pages_of
from nvfp4.model.counting import accesses_of, counted
from nvfp4.model.prediction import GPUS, Counted, NoMachineCode, no_prediction, predict
from nvfp4.records.channel import Channel, ChannelClosed
from nvfp4.records.launch_records import (
    Malformed,
    RecordedCall,
    RecordedLaunch,
    Region,
    Span,
    Step,
    Variable,
    Write,
    outbox_bytes,
    read_call,
    within,
)
from nvfp4.records.messages import Execute, Executed, Greeting, Opened, OpenSession, pack, unpack
from nvfp4.sandbox.confinement import confine
from nvfp4.worker.raised import failure_of
from nvfp4.worker.tracebacks import explained

_longest_prints = 16 << 10

_most_text_bytes = 64 << 20
"""Of all PTX of a submission's process."""


def _tells_all(error: EmulatorError) -> bool:
    """Whether a run in the submission's process would tell no more: it would take as long, or too
    long for other orders to be tried."""
    if error.code == "runaway_kernel":
        return bool(error.arguments)
    return isinstance(error, NotAdmitted) or error.code == "order_dependent"


def _predicted(request: Execute, counts: list[Counted]) -> dict[str, Any]:
    """The time of a call on another GPU, or why there is none."""
    try:
        found = predict(GPUS[request.model], counts, request.flush == "clean")
    except NoMachineCode as error:
        return no_prediction(request.model, str(error))
    except Exception as error:  # the counts are there all the same
        return no_prediction(request.model, f"{type(error).__name__}: {error}")
    return found.to_dict()


class Execution:
    """Memory and modules of one submission's process, as its launches have left them."""

    def __init__(self) -> None:
        self._memory = MappedMemory()
        self._outbox: mmap.mmap | None = None
        self._texts: list[str] = []
        self._text_bytes = 0
        self._regions: tuple[Region, ...] = ()
        self._buffers: list[Buffer] = []
        self._worlds = Worlds()
        self._under_way = UnderWay()
        self._admission = Admission()
        self._submission, self._name = Path(), ""
        self._told = 0

    def open(self, request: OpenSession, fd: int | None) -> Opened:
        """Forget everything. fd: the outbox of the next submission's process."""
        assert fd is not None
        emulator.forget_modules()
        self._memory.drop()
        self._outbox = mmap.mmap(fd, outbox_bytes, prot=mmap.PROT_READ)
        os.close(fd)
        self._texts, self._text_bytes, self._regions = [], 0, ()
        self._worlds = Worlds()
        self._admission = Admission()
        self._submission, self._name = Path(request.path), request.name
        if request.path:
            show_as(request.path, request.name, request.text)
        return Opened()

    def execute(self, request: Execute, fd: int | None) -> Executed:
        """Run a call's launches in order. fd: the case's buffers, with the true inputs."""
        assert fd is not None
        reports: list[dict[str, Any]] = []
        counts: list[Counted] = []
        prints: list[str] = []
        failure: dict[str, Any] = {}
        keeps = True
        try:
            call = read_call(request.call)
            keeps = any(step.regions or step.writes or step.variables for step in call.steps)
            self._take_texts(call)
            self._regions, self._buffers = (), self._place_buffers(request, call, fd)
            for number, step in enumerate(call.steps):
                self._set_memory(step, request, call)
                if number == 0:
                    self._under_way = UnderWay()
                    self._worlds.forget_all_but(self._all_buffers())
                if step.launch is not None:
                    self._run(step.launch, request, reports, prints, counts)
                    keeps |= emulator.has_variables(self._text(step.launch.text))
            self._take_output(request, call)
            fault = ""
        except NotMappable as error:
            return Executed([], "", f"memory cannot be mapped: {error}", {}, True, True)
        except EmulatorError as error:
            prints.append(error.output)
            fault = str(error)
            if _tells_all(error):
                fault = explained(error, self._submission, self._name)
                failure = failure_of(error, self._submission, True).as_plain()
        except (
            Exception
        ) as error:  # the emulator itself may stumble over PTX that no compiler makes
            fault = f"{type(error).__name__}: {error}"
        finally:
            os.close(fd)
        said = "".join(prints)[:_longest_prints]
        predicted = _predicted(request, counts) if counts and not fault else {}
        fault = fault[:_longest_prints]
        compiled = self._compiled_since_the_last_answer()
        return Executed(reports, said, fault, failure, False, keeps, predicted, compiled)

    def _compiled_since_the_last_answer(self) -> list[str]:
        told, self._told = self._told, len(COMPILED)
        return compiled_since(told)

    def _take_texts(self, call: RecordedCall) -> None:
        self._text_bytes += sum(span.nbytes for span in call.texts)
        if self._text_bytes > _most_text_bytes:
            raise Malformed("there is too much PTX")
        self._texts += [self._handed_over(span).decode() for span in call.texts]

    def _handed_over(self, span: Span) -> bytes:
        assert self._outbox is not None
        return self._outbox[span.offset : span.offset + span.nbytes]

    def _place_buffers(self, request: Execute, call: RecordedCall, fd: int) -> list[Buffer]:
        """The case's buffers, where the submission's process has its own."""
        self._memory.map_file(fd, request.mapped_bytes, call.base)
        return [
            Buffer(
                name,
                call.base + offset,
                nbytes,
                writable,
                View(tuple(shape), tuple(strides), 0, tuple((a, b) for a, b in dimensions)),
            )
            for name, offset, nbytes, writable, shape, strides, dimensions in request.buffers
        ]

    def _set_memory(self, step: Step, request: Execute, call: RecordedCall) -> None:
        """Regions, and the bytes that host code has set."""
        if step.regions is not None:
            ranges = [(each.address, each.nbytes) for each in step.regions]
            end = call.base + request.mapped_bytes
            if any(start < end and call.base < stop for start, stop in pages_of(ranges)):
                raise Malformed("a region lies among the case's buffers")
            self._memory.hold(ranges)
            self._regions = step.regions
        places = [(b.address, b.nbytes) for b in self._all_buffers() if b.writable]
        for write in step.writes:
            self._write(write, places)
        for variable in step.variables:
            self._set_variable(variable)

    def _write(self, write: Write, places: list[tuple[int, int]]) -> None:
        if not within(write.address, write.data.nbytes, places):
            raise Malformed("bytes are set outside of every region")
        data = np.frombuffer(self._handed_over(write.data), np.uint8)
        contents(write.address, data.size)[:] = data

    def _set_variable(self, said: Variable) -> None:
        found = emulator.variable(self._text(said.text), said.name)
        if found.nbytes != said.data.nbytes:
            raise Malformed("a variable has another size")
        data = np.frombuffer(self._handed_over(said.data), np.uint8)
        contents(found.address, found.nbytes)[:] = data

    def _all_buffers(self) -> list[Buffer]:
        scratch = [
            Buffer(
                each.name,
                each.address,
                each.nbytes,
                each.writable,
                View(each.view.shape, each.view.strides, each.view.offset) if each.view else None,
            )
            for each in self._regions
        ]
        return [*self._buffers, *scratch]

    def _text(self, number: int) -> str:
        if number >= len(self._texts):
            raise Malformed("there is no such PTX")
        return self._texts[number]

    def _run(
        self,
        said: RecordedLaunch,
        request: Execute,
        reports: list[dict[str, Any]],
        prints: list[str],
        counts: list[Counted],
    ) -> None:
        launch = Launch(
            self._text(said.text),
            said.kernel,
            said.grid,  # type: ignore[arg-type]
            said.block,  # type: ignore[arg-type]
            said.parameters,
            said.shared_bytes,
            said.cluster,  # type: ignore[arg-type]
            ListedMemory(self._all_buffers()),
            tuple(Note(*each) for each in said.notes),
            deadline=request.deadline,
            stream=said.stream,
            programmatic=said.programmatic,
        )
        self._admission.require(launch)
        asked = accesses_of(launch, drawn=True) if request.model else {}
        report = emulator.run(launch, request.check, request.orders, self._worlds, self._under_way)
        reports.append(report.to_dict())
        prints.append(report.output)
        if request.model:
            counts.append(counted(launch, report, asked))
        if request.keep:
            folder = Path("kept", request.keep)
            keep_listing(folder, len(reports), report.kernel, annotated_ptx(report))

    def _take_output(self, request: Execute, call: RecordedCall) -> None:
        """Copies what custom_kernel returned to where the judge reads it."""
        m, l = request.shape
        width = request.itemsizes.get(call.dtype)
        if width is None:
            raise Malformed("the output has no such dtype")
        row, _, batch = call.strides
        nbytes = (m - 1) * row + (l - 1) * batch + width
        places = [(b.address, b.nbytes) for b in self._all_buffers()]
        if not within(call.output, nbytes, places):
            raise Malformed("the output lies outside of every region")
        source = contents(call.output, nbytes)

        def read() -> Any:
            bytes_of_each = np.lib.stride_tricks.as_strided(
                source, (l, m, width), (batch, row, 1), writeable=False
            )
            return bytes_of_each.reshape(-1).copy()

        cause = self._worlds.cause_of(Buffer("", call.output, nbytes), read)
        if cause is not None:
            raise cause
        contents(call.base + request.place, l * m * width)[:] = read()


def main() -> None:
    """Serves the judge until it is gone."""
    channel = Channel(socket.socket(fileno=int(sys.argv[1])), takes_fds=True)
    channel.send(pack(Greeting(confine(closed=True))))
    execution = Execution()
    operations: dict[type, Any] = {OpenSession: execution.open, Execute: execution.execute}
    # Takes a second or two, in which the submission is being captured.
    from nvfp4.emulator.preparation import steps
    from nvfp4.model.preparation import prepare

    waiting = chain(steps(), prepare())
    more = True
    while True:
        while more and not channel.has_something(0.0):
            more = next(waiting, waiting) is None
        try:
            message, fd = channel.receive()
        except ChannelClosed:
            return
        request: Any = unpack(message, *operations)
        _tell("emulating")
        answer = operations[type(request)](request, fd)
        _tell("running")
        channel.send({**pack(answer), "id": message["id"]})


def _tell(word: str) -> None:
    """For nvfp4/cli/judging/bot.py."""
    Path("activity").write_text(word)


if __name__ == "__main__":
    main()
