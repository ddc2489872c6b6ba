"""What the judge asks of the worker and what that answers, as records.

On the channel a record is a JSON object with the name of its class under "is".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

from nvfp4.records.channel import BadMessage, Message
from nvfp4.records.plain import NotPlain, record

T = TypeVar("T")


@dataclass(frozen=True)
class Load:
    """Import the submission."""


@dataclass(frozen=True)
class OpenCase:
    """Open the buffers of a case, whose descriptor comes with it."""

    m: int
    k: int
    l: int


@dataclass(frozen=True)
class Call:
    """Call custom_kernel once, time it, hand the output over."""


@dataclass(frozen=True)
class HandOverAgain:
    """Hand the last output over once more, now that the device is idle."""


@dataclass(frozen=True)
class Profile:
    """Call custom_kernel once under a profiler."""


@dataclass(frozen=True)
class Greeting:
    """Sent once, unasked. confined: mechanism to description, "none: ..." if it is missing."""

    confined: dict[str, str]


@dataclass(frozen=True)
class Done:
    """The request was carried out."""


@dataclass(frozen=True)
class Called:
    """See ``timing.CallTime``. dtype: of the output. launches: reports of emulated launches."""

    call_ns: float
    settled_ns: float
    late: bool
    dtype: str
    launches: list[Any]


@dataclass(frozen=True)
class Profiled:
    """report: the profiler's table."""

    report: str
    dtype: str


@dataclass(frozen=True)
class Failed:
    """message: for the participant. failure: for programs; see ``records.failures``."""

    message: str
    failure: dict[str, Any] = field(default_factory=dict)


def pack(request: object) -> Message:
    return {"is": type(request).__name__, **vars(request)}


def unpack(message: Message, *kinds: type[T]) -> T:
    """Raises BadMessage unless the message is a record of one of these kinds."""
    for kind in kinds:
        if message.get("is") == kind.__name__:
            try:
                return record(kind, message)
            except NotPlain as error:
                raise BadMessage(str(error)) from None
    raise BadMessage(f"a message is no {' or '.join(kind.__name__ for kind in kinds)}")


@dataclass(frozen=True)
class OpenGate:
    """Open the gate's memory, whose descriptor comes with it."""


@dataclass(frozen=True)
class OpenSet:
    """Open one more set of buffers for a call, whose descriptor comes with it; without one, take
    the buffers of the case."""


@dataclass(frozen=True)
class QueueCalls:
    """Queue a call on each set behind the gate. wait: for the device, before the answer."""

    wait: bool


@dataclass(frozen=True)
class AwaitQueue:
    """Wait until the device is idle."""


@dataclass(frozen=True)
class CloseQueue:
    """Forget the sets of buffers."""


@dataclass(frozen=True)
class WatchedCall:
    """Call custom_kernel once as ``Call`` does, and note who writes c[row, 0, batch]: the answer's
    launches are those threads, the last one last."""

    row: int
    batch: int


@dataclass(frozen=True)
class Record:
    """To a worker: call custom_kernel once and take its launches down. With it comes an outbox, if
    `fresh`; else the one before stays."""

    fresh: bool


@dataclass(frozen=True)
class Recorded:
    """call: see ``launch_records.read_call``, empty where launches cannot stand for the call, and
    why. launched: whether a launch that was taken down, now or before, has not run here."""

    call: dict[str, Any]
    launched: bool
    why: str


@dataclass(frozen=True)
class OpenSession:
    """To the executor: forget everything. With it comes the outbox of another worker. path: of
    the submission there; name: what messages call it. text: of it, to be quoted."""

    path: str
    name: str
    text: str


@dataclass(frozen=True)
class Opened:
    """The session has begun."""


@dataclass(frozen=True)
class Execute:
    """To the executor: run a recorded call. With it come the case's buffers.

    buffers: name, offset, nbytes, writable, shape, strides in bytes and dimensions of each that
    launches may touch. place: where the output goes, by its offset. shape: m and l. itemsizes: of
    the dtypes an output may have. check, orders, keep: as of ``Load``; keep is a folder's name,
    empty for no listings. deadline: of kernels, on the monotonic clock. model: the GPU that a time
    is predicted for, empty for none; flush: after which.
    """

    call: dict[str, Any]
    buffers: list[Any]
    mapped_bytes: int
    place: int
    shape: list[int]
    itemsizes: dict[str, int]
    check: bool
    orders: int
    keep: str
    deadline: float
    model: str = ""
    flush: str = "contest"


@dataclass(frozen=True)
class Executed:
    """reports: as ``emulator.LaunchReport.to_dict``. prints: of kernels. fault: why there is no
    output, empty if there is. failure: of a kernel that was still running at the deadline, see
    ``records.failures``. taken: because addresses are not free in that process. keeps: whether the
    launches could leave something for those of a later call. predicted: as ``records.prediction``,
    empty where none was asked for. compiled: since the last answer, as `executor.machine_code`."""

    reports: list[Any]
    prints: str
    fault: str
    failure: dict[str, Any]
    taken: bool
    keeps: bool
    predicted: dict[str, Any] = field(default_factory=dict)
    compiled: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Explain:
    """Call custom_kernel once and write what its kernels cost to a file. instructions: after how
    many warp instructions a launch may stop. ptx, sass: with the text of the code.
    """

    instructions: int
    ptx: bool
    sass: bool
