"""What the judge asks of the worker and what that answers, as records.

On the channel a record is a JSON object with the name of its class under "is".
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from nvfp4.records.channel import BadMessage, Message

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
class Failure:
    """kind: contract, exit, exception, cuda if the device is lost, setup if this machine lacks
    something. record: see ``Extras.failed``."""

    kind: str
    message: str
    record: dict[str, Any] = field(default_factory=dict)


def pack(record: object) -> Message:
    return {"is": type(record).__name__, **vars(record)}


def unpack(message: Message, *kinds: type[T]) -> T:
    """Raises BadMessage unless the message is a record of one of these kinds."""
    for kind in kinds:
        if message.get("is") == kind.__name__:
            values = {}
            for each in fields(kind):  # type: ignore[arg-type]
                values[each.name] = value = message.get(each.name)
                wanted = str(each.type).partition("[")[0]
                if type(value).__name__ != wanted:
                    raise BadMessage(f"{kind.__name__} has no {each.name} of type {wanted}")
            return kind(**values)
    raise BadMessage(f"a message is no {' or '.join(kind.__name__ for kind in kinds)}")
