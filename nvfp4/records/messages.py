"""Requests of the judge to the worker and their answers, as records.

On the channel a record is a JSON object with the name of its class under "is".
"""

from dataclasses import dataclass, field
from typing import Any, TypeVar

from nvfp4.records.channel import BadMessage, Message, NotPlain, record

T = TypeVar("T")

explained_name = "explained.json"
"""The file that the executor leaves in its folder for the judge."""


@dataclass(frozen=True)
class Load:
    """Import the submission."""


@dataclass(frozen=True)
class OpenCase:
    """Open the buffers of a case, whose descriptor comes with it. Without a GPU there is none."""

    inputs: dict[str, Any]
    """The tree of what custom_kernel gets."""
    expected: dict[str, Any]
    """The tree of what it is to return."""
    room_bytes: int
    """The most bytes of an output."""
    number: int = 0
    """Identifies the case."""


@dataclass(frozen=True)
class OpenHost:
    """Open those buffers of the case that lie in the host's memory; their descriptor comes."""


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
    """The call was made; the times are those of ``timing.CallTime``."""

    call_ns: float
    settled_ns: float
    late: bool
    output: dict[str, Any]
    """The tree of the output, packed."""
    launches: list[Any]
    """Reports of emulated launches."""


@dataclass(frozen=True)
class Profiled:
    """report: the profiler's table. output: as of ``Called``."""

    report: str
    output: dict[str, Any]


@dataclass(frozen=True)
class Failed:
    """message: for the participant. failure: for programs; see ``records.failures``."""

    message: str
    failure: dict[str, Any] = field(default_factory=dict)


def pack(request: object) -> Message:
    return {"is": type(request).__name__, **vars(request)}


def unpack(message: Message, *kinds: type[T]) -> T:
    """Read a message as a record of one of these kinds. Raises BadMessage if it is none."""
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
    """Queue a call on each set behind the gate. wait: whether to wait for the device before the
    answer."""

    wait: bool


@dataclass(frozen=True)
class AwaitQueue:
    """Wait until the device is idle."""


@dataclass(frozen=True)
class CloseQueue:
    """Forget the sets of buffers."""


@dataclass(frozen=True)
class Connect:
    """To a worker without a GPU: emulate one by the executor behind the socket that comes with it,
    at once or never."""


@dataclass(frozen=True)
class Connected:
    """taken: ranges of addresses [start, end] in which the worker's memory lies."""

    taken: list[list[int]]


@dataclass(frozen=True)
class CaseOpened:
    """base: where the worker has addresses, and no memory, for the case's buffers."""

    base: int


@dataclass(frozen=True)
class OpenSession:
    """To the executor: forget everything, and be the GPU of the worker behind the socket that comes
    with it. taken: as of ``Connected``. path: of the submission there; name: what messages call it.
    text: of it, to be quoted. check: as of
    ``Options``."""

    taken: list[list[int]]
    path: str
    name: str
    text: str
    check: bool


@dataclass(frozen=True)
class Opened:
    """possible: whether the worker's addresses are free in this process."""

    possible: bool


@dataclass(frozen=True)
class Begin:
    """To the executor: the worker's next launches are those of a call. The case's buffers come with
    it.

    base: where they lie in the worker. buffers: name, offset, nbytes, writable, shape, strides in
    bytes and dimensions of each that launches may touch. place: where the output goes, by its
    offset; room_bytes: how much it may have. deadline: of kernels, on the monotonic
    clock. model: the GPU that a time is predicted for, empty for none; flush: after which. explain:
    after how many warp instructions a launch stops that is counted by line, 0 to run it whole;
    texts: which texts, "ptx" and "sass", go with the counts. longest_s: a launch with a predicted
    time that would take longer has only some of its CTAs run, 0 for none.
    """

    base: int
    buffers: list[Any]
    mapped_bytes: int
    place: int
    room_bytes: int
    deadline: float
    model: str = ""
    flush: str = "contest"
    explain: int = 0
    texts: list[str] = field(default_factory=list)
    longest_s: float = 0.0


@dataclass(frozen=True)
class End:
    """To the executor: the call has ended."""


@dataclass(frozen=True)
class Ended:
    """The executor's account of a call. reports: as ``emulator.LaunchReport.to_dict``. notes: code
    and message of the findings that the submission's process has added. why: why counts may leave
    out work of the call, empty where they do not. fault, failure: the first fault, empty if there
    was none. fatal: whether a GPU would run nothing of the process after it. predicted: as
    ``records.prediction``, empty where none was asked for. compiled: loops since the last answer,
    as `executor.machine_code`. sampled: why only some CTAs ran, so that outputs are unknown; empty
    where all did."""

    reports: list[Any]
    notes: list[list[str]]
    why: str
    fault: str
    failure: dict[str, Any]
    predicted: dict[str, Any]
    compiled: list[str]
    fatal: bool = False
    sampled: str = ""
