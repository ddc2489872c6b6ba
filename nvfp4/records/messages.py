"""Requests of the judge to the worker and their answers, as records.

On the channel a record is a JSON object with the name of its class under "is".
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import field
from typing import Any, TypeVar

from nvfp4.records.base import Record
from nvfp4.records.channel import BadMessage, Channel, ChannelClosed, Message, NotPlain, record

T = TypeVar("T")

NOT_STARTED = 66
"""Exit code of a worker that cannot start, for whatever reason lies outside the submission."""

explained_name = "explained.json"
"""The file that the executor leaves in its folder for the judge."""

failed_name = "failed"
"""The file in that folder of an executor which has ended otherwise than by SIGKILL."""


class Load(Record):
    """Import the submission."""


class OpenCase(Record):
    """Ask the worker to open a case's buffers, whose descriptor is sent along; without a GPU there
    are no buffers."""

    inputs: dict[str, Any]
    """The tree of custom_kernel's inputs."""
    expected: dict[str, Any]
    """The tree of what it is to return."""
    room_bytes: int
    """Limit on the bytes of an output."""
    number: int = 0
    """Identifies the case."""


class OpenHost(Record):
    """Open the case's buffers that lie in host memory; their descriptor is sent along."""


class Call(Record):
    """Call custom_kernel once, time it, and hand the output over."""

    in_graph: bool = False
    """Whether to capture the call in a CUDA graph, once for an open case, and to time a replay."""


class HandOverAgain(Record):
    """Hand an output over once more, now that the device is idle."""

    first: bool = False
    """Whether to hand over the first output of the case for which this was asked, instead of the
    last one."""


class Profile(Record):
    """Call custom_kernel once under a profiler."""


class Greeting(Record):
    """The worker's first message, which no request asks for."""

    confined: dict[str, str]
    """Description of each mechanism; "none: ..." if it is missing."""


class Done(Record):
    """The request was carried out."""


class Called(Record):
    """The call was made; the times are those of ``timing.CallTime``."""

    call_ns: float
    settled_ns: float
    late: bool
    output: dict[str, Any]
    """The tree of the output, packed."""
    launches: list[Any]
    """Reports of emulated launches."""


class Profiled(Record):
    """The call was profiled."""

    report: str
    """The profiler's table."""
    output: dict[str, Any]
    """See ``Called``."""


class Failed(Record):
    """The request failed."""

    message: str
    """For the participant."""
    failure: dict[str, Any] = field(default_factory=dict)
    """For programs; see ``records.failures``."""


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


def serve(channel: Channel, answer: Callable[[Any, int | None], object], *kinds: type) -> None:
    """Answer requests of these kinds, which may come with a descriptor, until the other side is
    gone."""
    with suppress(ChannelClosed):
        while True:
            request, fd = channel.receive()
            answered = answer(unpack(request, *kinds), fd)
            channel.send({**pack(answered), "id": request["id"]})


class OpenGate(Record):
    """Open the gate's memory, whose descriptor comes with it."""


class OpenSets(Record):
    """Open a set of buffers for each call, all by the descriptor that is sent along; without a
    descriptor, use the case's buffers for one call."""

    count: int


class QueueCalls(Record):
    """Queue a call on each set behind the gate."""

    wait: bool
    """Whether to wait for the device before the answer."""


class AwaitQueue(Record):
    """Wait until the device is idle."""


class CloseQueue(Record):
    """Forget the sets of buffers."""


class Connect(Record):
    """To a worker without a GPU: use the executor behind the socket that is sent along as the GPU.
    This must be the first request."""


class Connected(Record):
    """The worker is connected to the emulated GPU."""

    taken: list[list[int]]
    """Ranges of addresses [start, end] that the worker's memory occupies."""


class CaseOpened(Record):
    """The worker has opened the case."""

    base: int
    """Address at which the worker has reserved addresses, without memory, for the case's
    buffers."""


class OpenSession(Record):
    """To the executor: forget everything, and be the GPU of the worker behind the socket that comes
    with it."""

    taken: list[list[int]]
    """See ``Connected``."""
    path: str
    """The submission's path in the worker."""
    name: str
    """The submission's name in messages."""
    text: str
    """The submission's text, which messages quote."""
    check: bool
    """See ``Options``."""


class Opened(Record):
    """Answer to a request to open a case."""

    possible: bool
    """Whether the worker's addresses are free in this process."""


class Begin(Record):
    """To the executor: the worker's next launches belong to a call. The descriptor of the case's
    buffers is sent along."""

    base: int
    """Address of the buffers in the worker."""
    buffers: list[Any]
    """Name, offset, nbytes, writable, shape, strides in bytes, dimensions and dtype of each buffer
    that launches may touch."""
    mapped_bytes: int
    place: int
    """Offset of the output."""
    room_bytes: int
    """Limit on the bytes of the output."""
    deadline: float
    """When kernels are given up, on the monotonic clock."""
    model: str = ""
    """The GPU that a time is predicted for, empty for none."""
    flush: str = "contest"
    """The flush before the predicted call."""
    explain: int = 0
    """Warp instructions after which a launch that is counted by line stops; 0 to run all of it."""
    texts: list[str] = field(default_factory=list)
    """The texts that go with the counts: "ptx", "sass"."""
    longest_s: float = 0.0
    """If a launch with a predicted time would take longer, only some of its CTAs run; 0 for no
    limit."""
    results_bytes: int = 0
    """If host code sends this many bytes, without those that repeat one value, it may have computed
    the result; 0 if that does not matter."""


class End(Record):
    """To the executor: the call has ended."""


class Ended(Record):
    """The executor's account of a call."""

    reports: list[Any]
    """See ``emulator.LaunchReport.to_dict``."""
    notes: list[list[str]]
    """Code and message of the findings that the submission's process has added."""
    why: str
    """Why counts may leave out work of the call; empty if they do not."""
    fault: str
    """The text of the first fault; empty if there was none."""
    failure: dict[str, Any]
    """The first fault as a record; empty if there was none."""
    predicted: dict[str, Any]
    """See ``records.prediction``; empty if none was asked for."""
    compiled: list[str]
    """Loops that were compiled since the last answer; see ``executor.machine_code``."""
    fatal: bool = False
    """Whether a GPU would run nothing of the process after the fault."""
    sampled: str = ""
    """Why only some CTAs ran, so that outputs are unknown; empty if all did."""
    alone: list[Any] = field(default_factory=list)
    """Findings of a call without launches."""
    cpu_s: float = 0.0
    """Processor seconds that the executor has used for the call; 0 if it had to compile loops."""
