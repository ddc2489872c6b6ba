"""The emulated GPU of one submission's process: its memory, its modules, and what they run."""

import json
import math
import os
import re
import secrets
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from nvfp4 import emulator
from nvfp4.emulator import EmulatorError, LaunchReport, UnderWay, Worlds
from nvfp4.emulator.cost import KernelCost, merged
from nvfp4.emulator.errors import EmulatorFailed, RunawayKernel, TooSlow
from nvfp4.emulator.loops import COMPILED
from nvfp4.emulator.report import noted
from nvfp4.emulator.software import software_conversions
from nvfp4.emulator.state.memory import host_bytes
from nvfp4.executor.faults import Admission, fault_of
from nvfp4.executor.machine_code import compiled_since
from nvfp4.executor.mapped_memory import MappedMemory, NotMappable, NotShareable
from nvfp4.model import counting
from nvfp4.model.assembly import start_assembling
from nvfp4.model.gpu import NoPrediction
from nvfp4.model.prediction import GPUS, Counted, Host, no_prediction, predict
from nvfp4.model.tools import assemble
from nvfp4.records import gpu_messages, messages
from nvfp4.records.failures import ADVICE, Finding
from nvfp4.records.gpu_messages import Answer, Fault, Found, Started, longest_output, noise
from nvfp4.records.launch import Buffer, Launch, ListedMemory, Note, View
from nvfp4.records.launch_errors import CodedError, MachineLimit
from nvfp4.records.ranges import ADDRESSES
from nvfp4.records.refusals import code_of_others
from nvfp4.records.source import SourceLine, show_as
from nvfp4.records.texts import short_name

most_kernels = 16
"""Most kernels of a call whose cost is explained."""

most_sampled = 500_000
"""Warp instructions after which a launch is stopped if all of it would take too long."""

_most_told, _longest_told = 32, 500
"""Limits on the reports of a call and on their findings, and on each of their texts."""

_shares = "host code and kernels share memory"

_LEAST_SAID, _USUAL_PARAMETERS = 16, 1024
"""Bytes that a transfer counts for at least, and of a launch's parameters that are not counted."""

_TABLES = re.compile(r"=\s*\{([^{}]*)\}")
"""The initial contents of a variable in PTX: two characters or more for each byte."""

_most_text_bytes = 64 << 20
"""Limit for all PTX of a submission's process."""

_most_region_bytes = 4 << 30
"""Limit for all memory of a submission that its launches may touch."""

_most_dimensions = 63
"""The limit of NumPy, less one for the bytes of an element."""

_MOST_EARLIER = 64
"""Number of inputs of earlier calls that are remembered for messages."""

_IMPLICIT = (0, 1, 2)
"""Handles of the default stream."""

_NO_CALL = messages.Begin(0, [], 0, 0, 0, deadline=math.inf)
"""Launches outside of calls, as of an import, belong to it."""

_OWN_STREAM = Note(
    "own_stream",
    "the kernel ran on a stream of its own; only the submission's own process says that something "
    "waits for it",
    "on a GPU the judge's clock sees work that no stream joins",
)


class Malformed(Exception):
    """A request is not what a worker sends."""


@dataclass
class _Call:
    """State of the call that is being judged."""

    request: messages.Begin = _NO_CALL
    """The request that began the call."""
    reports: list[LaunchReport] = field(default_factory=list)
    counts: list[Counted] = field(default_factory=list)
    costs: list[KernelCost] = field(default_factory=list)
    with_suffix: list[Counted] = field(default_factory=list)
    others: dict[tuple[str, str], Counted | None] = field(default_factory=dict)
    notes: list[list[str]] = field(default_factory=list)
    alone: list[Finding] = field(default_factory=list)
    """Findings of a call that has launched nothing."""
    read: list[str] = field(default_factory=list)
    """Names of buffers that host code has read."""
    host: Host = field(default_factory=Host)
    sent_bytes: int = 0
    """Bytes that host code has sent, without those that say nothing."""
    also: str = ""
    sampled: str = ""
    """Why only some CTAs ran; empty if all did."""
    began: float = 0.0
    """When the first launch began."""
    began_cpu_s: float = field(default_factory=time.process_time)
    fault: Fault | None = None
    fatal: bool = False

    @property
    def why(self) -> str:
        """The reason why counts may leave out work."""
        if self.read:
            return f"host code reads {_listed(self.read)}"
        if 0 < self.request.results_bytes <= self.sent_bytes:
            return f"host code sends {self.sent_bytes:,} bytes to the device"
        return self.also


class Gpu:
    """The emulated GPU of a process. error: the exception that caused the last fault."""

    def __init__(
        self,
        request: messages.OpenSession,
        memory: MappedMemory,
        window: Any,
        progress: Callable[[float], None] = lambda share: None,
    ) -> None:
        """Open a session. window: memory in which bytes are exchanged. progress: see ``Launch``."""
        emulator.forget_modules()
        self._memory = memory
        self._window = np.frombuffer(window, np.uint8)
        self._session, self._progress = request, progress
        self._submission = Path(request.path)
        if request.path:
            show_as(request.path, request.name, request.text)
        self._texts: list[str] = []
        self._case: list[Buffer] = []
        self._regions: list[Buffer] = []
        self._freed: list[Buffer] = []
        self._earlier: deque[Buffer] = deque(maxlen=_MOST_EARLIER)
        self._variables: dict[int, Buffer] = {}
        self._worlds, self._under_way = Worlds(), UnderWay()
        self._launched: Counter[tuple[Any, ...]] = Counter()
        self._admission = Admission()
        self._call = _Call()
        self._place_of_output = self._room_for_output = 0
        self._told = len(COMPILED)
        self.error: BaseException | None = None
        self._operations: dict[type, Callable[[Any, int | None], Answer | None]] = {
            gpu_messages.AddText: self._add_text,
            gpu_messages.SetRegions: self._set_regions,
            gpu_messages.Share: self._share,
            gpu_messages.Write: self._write,
            gpu_messages.Read: self._read,
            gpu_messages.Copy: self._copy,
            gpu_messages.Start: self._start,
            gpu_messages.FindVariable: self._find_variable,
            gpu_messages.Examine: self._examine,
            gpu_messages.AddNote: self._add_note,
            gpu_messages.HandOver: self._hand_over,
        }
        self.kinds = tuple(self._operations)

    # The judge's side

    def begin(self, request: messages.Begin, fd: int) -> None:
        """Begin a call on the case's buffers, which hold the inputs. Raises NotMappable."""
        try:
            self._memory.map_file(fd, request.mapped_bytes, request.base)
        finally:
            os.close(fd)
        end = request.base + request.mapped_bytes
        self._regions = [b for b in self._regions if b.end <= request.base or end <= b.address]
        before = self._case
        self._case = [
            Buffer(
                name,
                request.base + offset,
                nbytes,
                writable,
                View(tuple(shape), tuple(strides), at, tuple((a, b) for a, b in words), dtype),
            )
            for name, offset, nbytes, writable, shape, strides, at, words, dtype in request.buffers
        ]
        kept = {each.address for each in self._case}
        for gone in (each for each in before if each.address not in kept):
            self._earlier.appendleft(replace(gone, name=f"an earlier call's {gone.name}"))
        self._place_of_output = request.base + request.place
        self._room_for_output = min(request.room_bytes, request.mapped_bytes - request.place)
        self._call = _Call(request)
        self._under_way = UnderWay()
        self._worlds.forget_all_but(self._buffers())

    def end(self, request: messages.End) -> messages.Ended:
        """End the call and return its reports, notes, fault, prediction and compiled loops."""
        call, told = self._call, self._told
        self._call, self._told = _Call(), len(COMPILED)
        asked, predicted = call.request, {}
        reports = _account(call.reports, call.notes)
        if asked.explain:
            self._write_costs(call, asked)
        if call.counts and call.fault is None:
            predicted = _predicted(call)
            if any(a is not b for a, b in zip(call.with_suffix, call.counts, strict=True)):
                clean, us = asked.flush == "clean", predicted["us"]
                counting.advise(reports, us, call.with_suffix, asked.model, clean, call.host)
        fault, compiled = call.fault or Fault(""), compiled_since(told)
        # A call for which loops were compiled does not say how long the next one takes.
        spent_s = 0.0 if compiled else time.process_time() - call.began_cpu_s
        return messages.Ended(
            reports, call.notes, call.why, fault.text, _short(fault.failure), predicted,
            compiled, call.fatal, _short(call.sampled),
            [_short(asdict(each)) for each in call.alone], spent_s
        )  # fmt: skip

    def _write_costs(self, call: _Call, asked: messages.Begin) -> None:
        kernels, clean, host = [], asked.flush == "clean", Host(shares=call.host.shares)
        for cost in merged(call.costs)[:most_kernels]:
            plain = _plain_cost(cost, asked.texts)
            counting.add_times(plain, cost, GPUS[asked.model], clean, host)
            other = call.others[cost.entry, cost.ptx]
            if other is not None:
                counting.advise([plain], plain["predicted"]["us"], [other], asked.model, clean)
            kernels.append(plain)
        Path(messages.explained_name).write_text(json.dumps({"kernels": kernels}), encoding="utf-8")

    # The worker's side

    def answer(self, request: Any, fd: int | None) -> Answer:
        """Carry out a request of the worker."""
        try:
            return self._operations[type(request)](request, fd) or messages.Done()
        except (EmulatorError, CodedError) as error:
            unknown = TooSlow("a launch before this one was not run as a whole")
            return self._fault(unknown if self._call.sampled else error, request)
        except NotMappable as error:
            return self._fault(EmulatorFailed(f"memory cannot be mapped: {error}"), request)
        except (Malformed, NotShareable) as error:
            return self._fault(EmulatorError(str(error)), request)
        except Exception as error:
            limited = code_of_others(error, emulated=True) == "machine.limit"
            kind = MachineLimit if limited else EmulatorFailed
            return self._fault(kind(f"{type(error).__name__}: {error}"), request)
        finally:
            if fd is not None:
                os.close(fd)

    def _fault(self, error: EmulatorError | CodedError, request: Any) -> Fault:
        self.error = error
        place = getattr(request, "place", None)
        line = SourceLine(str(self._submission), *place) if place else None
        fault = fault_of(error, self._submission, self._session.name, line)
        call, in_kernel = self._call, isinstance(error, EmulatorError) and error.where is not None
        fatal = in_kernel and not fault.refusal and not call.fatal
        if fatal or not getattr(request, "trial", False):
            call.fault = fault if fatal else call.fault or fault
            call.fatal |= fatal
            call.also = "host code goes on after an error of the GPU"
        return fault

    def _add_text(self, request: gpu_messages.AddText, fd: int | None) -> None:
        text = self._window[: request.nbytes].tobytes().decode("utf-8", "replace")
        if sum(map(len, self._texts)) + len(text) > _most_text_bytes:
            raise Malformed("there is too much PTX")
        self._texts.append(text)
        self._call.sent_bytes += sum(map(len, _TABLES.findall(text))) // 2
        if not self._call.request.model:  # not the first call of its kind
            self._call.sent_bytes += len(text) // 8

    def _set_regions(self, request: gpu_messages.SetRegions, fd: int | None) -> None:
        regions = [_buffer(*each) for each in request.regions]
        if sum(each.nbytes for each in regions) > _most_region_bytes:
            raise EmulatorFailed(
                f"kernels may touch {_most_region_bytes >> 30} GiB of memory beside the inputs"
            )
        self._memory.hold([(each.address, each.nbytes) for each in regions])
        self._regions, self._freed = regions, [_buffer(*each) for each in request.freed]

    def _share(self, request: gpu_messages.Share, fd: int | None) -> None:
        if fd is None or request.address not in ADDRESSES:
            raise Malformed("a shared file has no place")
        self._memory.map_shared(fd, request.nbytes, request.address)

    def _text(self, number: int) -> str:
        if not 0 <= number < len(self._texts):
            raise Malformed("there is no such PTX")
        return self._texts[number]

    def _buffers(self) -> list[Buffer]:
        return [*self._case, *self._regions]

    def _holder(self, address: int, nbytes: int) -> Buffer:
        for each in (*self._buffers(), *self._variables.values()):
            if each.address <= address <= address + nbytes <= each.end:
                return each
        raise Malformed("there is no such device memory, or it was that of an earlier call")

    def _write(self, request: gpu_messages.Write, fd: int | None) -> None:
        offset = 0
        for address, nbytes in request.spans:
            self._holder(address, nbytes)
            sent = self._window[offset : offset + nbytes]
            host_bytes(address, nbytes)[:] = sent
            says = self._call.request.results_bytes and not _says_nothing(sent)
            self._call.sent_bytes += nbytes if says else min(nbytes, _LEAST_SAID)
            offset += nbytes

    def _read(self, request: gpu_messages.Read, fd: int | None) -> None:
        address, nbytes = request.address, request.nbytes
        holder = self._holder(address, nbytes)
        self._refuse_what_differs(address, nbytes, lambda: host_bytes(address, nbytes).copy())
        self._window[:nbytes] = host_bytes(address, nbytes)
        name = holder.name if holder in self._case else "memory that kernels may use"
        if name not in self._call.read:
            self._call.read.append(name)

    def _refuse_what_differs(self, address: int, nbytes: int, read: Callable[[], Any]) -> None:
        """Raise the finding that the contents of a range depend on, if any."""
        cause = self._worlds.cause_of(Buffer("", address, nbytes), read)
        if cause is not None:
            raise cause

    def _copy(self, request: gpu_messages.Copy, fd: int | None) -> None:
        to, source, nbytes = request.to, request.source, request.nbytes
        self._holder(source, nbytes)
        self._holder(to, nbytes)
        self._refuse_what_differs(source, nbytes, lambda: host_bytes(source, nbytes).copy())
        host_bytes(to, nbytes)[:] = host_bytes(source, nbytes).copy()
        self._call.host.copied.append(nbytes)
        if self._memory.is_shared(to, nbytes):
            self._call.also, self._call.host.shares = _shares, True

    def _find_variable(self, request: gpu_messages.FindVariable, fd: int | None) -> Found:
        found = emulator.variable(self._text(request.text), request.name)
        self._variables[found.address] = found
        return Found(found.address, found.nbytes)

    def _examine(self, request: gpu_messages.Examine, fd: int | None) -> None:
        emulator.examine(self._text(request.text), request.kernel)

    def _add_note(self, request: gpu_messages.AddNote, fd: int | None) -> None:
        reports, note = self._call.reports, _note(request.note)
        those = [each for each in reports if each.kernel == request.kernel] or reports
        if len(self._call.notes) < _most_told:
            self._call.notes.append([note.code, note.message])
            found = those[-1].findings if those else self._call.alone
            found.append(noted(note, those[-1].kernel if those else ""))

    def _hand_over(self, request: gpu_messages.HandOver, fd: int | None) -> None:
        host = self._call.host
        host.last_waits += max(0, request.waited)
        host.operators = request.operators and max(0, request.operators)
        width, shape, strides = request.itemsize, request.shape, request.strides
        sizes = [width, *shape, *strides, request.offset]
        if min(sizes) < 0 or not len(shape) == len(strides) <= _most_dimensions or width < 1:
            raise Malformed("the output has no such elements")
        size = width * math.prod(shape)
        if request.offset + size > self._room_for_output:
            raise Malformed("the output has no room")
        if size == 0:
            return
        last = sum((count - 1) * step for count, step in zip(shape, strides, strict=True))
        self._holder(request.address, last + width)
        source = host_bytes(request.address, last + width)

        def read() -> Any:
            seen = np.lib.stride_tricks.as_strided(
                source, (*shape, width), (*strides, 1), writeable=False
            )
            return seen.reshape(-1).copy()

        self._refuse_what_differs(request.address, last + width, read)
        host_bytes(self._place_of_output + request.offset, size)[:] = read()

    def _start(self, request: gpu_messages.Start, fd: int | None) -> Started:
        call, session, asked = self._call, self._session, self._call.request
        predicts = bool(asked.model) and not request.trial
        launch = Launch(
            self._text(request.text), request.kernel, request.grid, request.block,
            list(map(_bytes, request.parameters)), request.shared_bytes, request.cluster,
            ListedMemory(self._buffers(), [*self._earlier, *self._freed]),
            tuple(map(_note, request.notes[: _most_told - len(call.notes)])),
            deadline=asked.deadline, stream=request.stream, programmatic=request.programmatic,
            waited=max(0, request.waited), alongside=request.alongside,
            with_suffix="" if request.with_suffix is None else self._text(request.with_suffix),
            samples=predicts, progress=self._progress
        )  # fmt: skip
        call.sent_bytes += max(0, sum(map(len, launch.parameters)) - _USUAL_PARAMETERS)
        arch = GPUS[asked.model].arch if predicts else ""
        call.also = self._admission.require(launch, arch) or call.also
        launch = replace(launch, registers=self._admission.registers(launch))
        if arch:
            start_assembling(launch.ptx, launch.kernel, arch)
        if any(self._memory.is_shared(each.address, each.nbytes) for each in self._regions):
            call.also, call.host.shares = _shares, True
        if request.trial and asked.model:  # it is neither counted nor timed
            call.also = "host code tries configurations"
            emulator.run(launch, check=False)
            return Started("")
        if asked.explain:
            call.costs.append(emulator.cost_of(launch, asked.explain))
            key = launch.kernel, launch.ptx
            if key not in call.others:
                call.others[key] = counting.counted_with_suffix(launch)
            return Started("")
        other = counting.counted_with_suffix(launch, self._admission.require) if predicts else None
        sizes = [each.nbytes for each in self._case]
        known = *sizes, len(call.reports), launch.ptx, launch.kernel, launch.grid
        if time.monotonic() > asked.deadline:
            raise TooSlow(f"no time is left for {short_name(request.kernel)}")
        limited = launch
        if predicts and asked.longest_s:
            call.began = call.began or time.monotonic()
            limited = replace(launch, deadline=min(asked.deadline, call.began + asked.longest_s))
        try:
            report = emulator.run(
                limited,
                session.check,
                worlds=self._worlds,
                under_way=self._under_way,
                again=self._launched[known] > 1,  # the second call is tried always
            )
        except RunawayKernel:
            if limited is launch:
                raise
            # Which CTAs run must not be foreseeable: a kernel could do the work in others alone.
            cost = emulator.cost_of(launch, most_sampled, seed=secrets.randbits(32))
            call.sampled = (
                f"{cost.ctas_run:,} of {cost.ctas_total:,} CTAs of {cost.kernel} were run, as the "
                "whole call takes too long here: counts are scaled, and what it returns is unknown"
            )
            own = counting.sampled(cost)
            call.reports.append(cost.report())
            call.counts.append(own)
            call.with_suffix.append(own)
            return Started("")
        self._launched[known] += 1
        if report.output:
            call.also = "kernels print"
            report.output = report.output[-longest_output:]
        if request.stream not in _IMPLICIT:
            report.findings.append(noted(_OWN_STREAM, report.kernel))
        call.reports.append(report)
        call.notes += [[each.code, each.message] for each in launch.notes]
        if predicts:
            own = counting.counted(launch, report)
            call.counts.append(own)
            call.with_suffix.append(replace(other, read_bytes=own.read_bytes) if other else own)
        return Started(report.output)


def _buffer(name: str, address: int, nbytes: int, writable: bool, view: Any) -> Buffer:
    if nbytes < 1 or not ADDRESSES.start <= address <= ADDRESSES.stop - nbytes:
        raise Malformed("a region has no such addresses")
    if view and len(view[0]) != len(view[1]):
        raise Malformed("a region has no such elements")
    seen = View(tuple(view[0]), tuple(view[1]), view[2], dtype=view[3]) if view else None
    return Buffer(name, address, nbytes, writable, seen)


def _says_nothing(sent: np.ndarray[Any, np.dtype[np.uint8]]) -> bool:
    """Return whether bytes repeat one value, or are what uninitialised memory holds."""
    if np.array_equal(sent[16:], sent[:-16]):
        return True
    unset = np.frombuffer(noise(), np.uint8)
    at = noise().find(sent[:16].tobytes())
    return at >= 0 and np.array_equal(sent, np.resize(np.roll(unset, -at), sent.size))


def _bytes(parameter: str) -> bytes:
    try:
        return bytes.fromhex(parameter)
    except ValueError:
        raise Malformed("a parameter is not hexadecimal") from None


def _note(told: gpu_messages.Told) -> Note:
    code, message, hint, file, line = told
    return Note(code[:_longest_told], message[:_longest_told], hint, file, line)


def _account(reports: list[LaunchReport], notes: list[list[str]]) -> list[dict[str, Any]]:
    """Return the reports of a call as plain values, short enough for a message.

    The last one is the sum of all that follow it. The first one has all findings: mistakes before
    advice, and the judge's own before those of the submission's process.
    """
    told: list[dict[str, Any]] = []
    findings: list[dict[str, Any]] = []
    for each in reports:
        plain = {**each.to_dict(), "launches": 1, "output": ""}
        findings += plain.pop("findings")
        told.append({**plain, "findings": []})
        if len(told) > _most_told:
            more, last = told.pop(), told[-1]
            for name, count in more.pop("warp_instructions").items():
                kinds = last["warp_instructions"]
                kinds[name] = kinds.get(name, 0) + count
            last |= {k: last[k] + v for k, v in more.items() if isinstance(v, (int, float))}
    findings.sort(key=lambda e: (e["code"] in ADVICE, [e["code"], e["message"]] in notes))
    for first in told[:1]:
        first["findings"] = findings[:_most_told]
    return [_short(each) for each in told]


def _short(value: Any) -> Any:
    """Return plain values with long texts cut."""
    if isinstance(value, str):
        return value[:_longest_told]
    if isinstance(value, dict):
        return {name: _short(each) for name, each in value.items()}
    return [_short(each) for each in value] if isinstance(value, (list, tuple)) else value


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _predicted(call: _Call) -> dict[str, Any]:
    """Return the predicted time of a call on another GPU, or why there is no prediction."""
    request = call.request
    try:
        found = predict(GPUS[request.model], call.counts, request.flush == "clean", call.host)
    except NoPrediction as error:
        return no_prediction(request.model, str(error))
    except Exception as error:  # the counts are there all the same
        return no_prediction(request.model, f"{type(error).__name__}: {error}")
    return found.to_dict()


def _plain_cost(cost: KernelCost, texts: list[str]) -> dict[str, Any]:
    """Return a kernel's cost for JSON, with the assembler's results if it is installed."""
    plain: dict[str, Any] = cost.to_dict()
    code = assemble(cost.ptx, cost.entry)
    runs = {number: count for number, (count, *_) in cost.ptx_lines.items()}
    plain["findings"] = [asdict(each) for each in software_conversions(cost.ptx, cost.entry, runs)]
    plain["assembled_registers"] = code.registers
    plain["spilled_bytes"] = code.spilled_bytes
    if "sass" in texts:
        plain["sass"], plain["no_sass"] = counting.machine_code_of(cost)
    if "ptx" in texts:
        lines = cost.ptx.split("\n")
        plain["ptx"] = [
            {"file": file, "line": line, "count": count, "text": lines[number - 1].strip()}
            for number, (count, file, line) in sorted(cost.ptx_lines.items())
        ]
    return plain
