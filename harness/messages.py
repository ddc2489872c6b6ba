"""What the judge asks of the worker and what the worker answers: one record each.

On the channel a record is a JSON object with the name of its class under "is".
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, TypeVar

from channel import BadMessage, Message

T = TypeVar("T")

Handles = dict[str, list[object]]
"""What a process needs to open shared buffers on CUDA, by name."""


# Requests


@dataclass(frozen=True)
class Load:
    """Import the submission. arch, check, orders: for kernels that are emulated."""

    arch: str
    check: bool
    orders: int


@dataclass(frozen=True)
class OpenCase:
    """Open the buffers of a case; on a CPU their descriptor comes with the message."""

    m: int
    k: int
    l: int
    handles: dict[str, list[object]]


@dataclass(frozen=True)
class Call:
    """Call custom_kernel on what the buffers hold, time it, hand the output over."""


@dataclass(frozen=True)
class HandOverAgain:
    """Hand the last output over once more, now that the device has been idle for a while."""


@dataclass(frozen=True)
class Profile:
    """Call custom_kernel once under a profiler."""


@dataclass(frozen=True)
class OpenQueue:
    """Open more sets of buffers for a call each, and the gate in front of the calls."""

    sets: list[Handles]
    gate: list[object]


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


# Answers


@dataclass(frozen=True)
class Greeting:
    """Sent once, unasked. confined: mechanism to description, "none: ..." where one is missing."""

    confined: dict[str, str]


@dataclass(frozen=True)
class Done:
    """The request was carried out."""


@dataclass(frozen=True)
class Called:
    """See ``timing.CallTime``. dtype: of the output. launches: a report of each emulated launch."""

    call_ns: float
    settled_ns: float
    late: bool
    dtype: str
    launches: list[Any]


@dataclass(frozen=True)
class Profiled:
    """report: the profiler's table. dtype: of the output."""

    report: str
    dtype: str


@dataclass(frozen=True)
class Failure:
    """kind: contract, exit, exception, or cuda where the device is lost."""

    kind: str
    message: str


def pack(record: object) -> Message:
    """A record as a message."""
    return {"is": type(record).__name__, **vars(record)}


def unpack(message: Message, *kinds: type[T]) -> T:
    """A message as a record of one of these kinds. Raises BadMessage for anything else."""
    for kind in kinds:
        if message.get("is") != kind.__name__:
            continue
        values = {each.name: message.get(each.name) for each in fields(kind)}  # type: ignore[arg-type]
        wanted = {each.name: str(each.type).partition("[")[0] for each in fields(kind)}  # type: ignore[arg-type]
        wrong = [name for name, value in values.items() if type(value).__name__ != wanted[name]]
        if wrong:
            raise BadMessage(f"{kind.__name__} has no {wrong[0]} of type {wanted[wrong[0]]}")
        return kind(**values)
    raise BadMessage(f"a message is no {' or '.join(kind.__name__ for kind in kinds)}")
