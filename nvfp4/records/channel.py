"""JSON messages, one on a line, over a socket, and the records that they contain."""

import json
import os
import select
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from functools import cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

Message = dict[str, Any]

longest_message_bytes = 1 << 20


class ChannelClosed(Exception):
    """The other side is gone."""


class ChannelTimeout(Exception):
    """No whole message came in time."""


class BadMessage(Exception):
    """A message is no JSON object, or too long."""


class Channel:
    def __init__(self, connection: socket.socket, takes_fds: bool = False) -> None:
        """takes_fds: whether to accept descriptors. Otherwise the system closes those that arrive,
        so that the other side cannot use up the limit of this process."""
        self._socket = connection
        self._takes_fds = takes_fds
        self._pending = bytearray()
        self._fds: list[int] = []

    def send(self, message: Message, fd: int | None = None) -> None:
        """Send a message. Raises ChannelClosed."""
        data = json.dumps(message).encode() + b"\n"
        try:
            sent = 0 if fd is None else socket.send_fds(self._socket, [data], [fd])
            self._socket.sendall(data[sent:])
        except OSError as error:
            raise ChannelClosed(str(error)) from error

    def receive(self, timeout_s: float | None = None) -> tuple[Message, int | None]:
        """Return the next message and its descriptor. Raises ChannelClosed, ChannelTimeout,
        BadMessage."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        searched = 0  # each byte of a long message is searched once
        while (length := self._pending.find(b"\n", searched)) < 0:
            searched = len(self._pending)
            if searched > longest_message_bytes:
                raise BadMessage(f"a message is longer than {longest_message_bytes} bytes")
            self._read_more(end)
        line = bytes(self._pending[:length])
        del self._pending[: length + 1]
        message = None
        with suppress(ValueError, RecursionError):
            message = json.loads(line)
        if not isinstance(message, dict):
            raise BadMessage(f"a message is not JSON or not a JSON object: {line[:80]!r}")
        return message, self._fds.pop(0) if self._fds else None

    def take(self) -> bool:
        """Take what has come, without waiting for more; return whether a message is there. Raises
        ChannelClosed, also for a message that is too long."""
        if not self.has_pending():
            self._read_more(None)
        if len(self._pending) > longest_message_bytes:
            raise ChannelClosed
        return self.has_pending()

    def fileno(self) -> int:
        """Return the socket's descriptor, for ``select``."""
        return self._socket.fileno()

    def has_pending(self) -> bool:
        """Return whether a whole message is here already."""
        return b"\n" in self._pending

    def has_something(self, wait_s: float) -> bool:
        """Return whether something arrives, or the other side is gone, within ``wait_s``."""
        return bool(self._pending or select.select([self._socket], [], [], wait_s)[0])

    def _read_more(self, end: float | None) -> None:
        wait_s = None if end is None else max(0.0, end - time.monotonic())
        readable, _, _ = select.select([self._socket], [], [], wait_s)
        # A sender that never stops must not extend the deadline.
        if not readable or (end is not None and self._pending and time.monotonic() > end):
            raise ChannelTimeout
        try:
            if self._takes_fds:
                data, fds, _, _ = socket.recv_fds(self._socket, 1 << 16, 1)
                self._fds += fds
            else:
                data = self._socket.recv(1 << 16)
        except OSError as error:
            raise ChannelClosed(str(error)) from error
        if not data:
            raise ChannelClosed
        self._pending += data

    def close(self) -> None:
        for fd in self._fds:
            os.close(fd)
        self._socket.close()


T = TypeVar("T")

_LARGEST = 2**63


class NotPlain(ValueError):
    """A value is not the record that it must be; ``str`` says which field."""


@cache
def _types(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def record(kind: type[T], value: object) -> T:
    """Make a record from an object that has each of its fields. Raises NotPlain."""
    if not isinstance(value, Mapping):
        raise NotPlain(f"{kind.__name__} is no object")
    values, types = {}, _types(kind)  # type: ignore[arg-type]
    for each in fields(kind):  # type: ignore[arg-type]
        try:
            values[each.name] = read(types[each.name], value.get(each.name))
        except TypeError:
            wanted = getattr(types[each.name], "__name__", types[each.name])
            raise NotPlain(f"{kind.__name__} has no {each.name} of type {wanted}") from None
    return kind(**values)


def read(wanted: Any, value: Any) -> Any:
    """Return a value if it is of a type, with records made from objects. Raises TypeError,
    NotPlain."""
    arguments, kind = get_args(wanted), get_origin(wanted) or wanted
    if type(None) in arguments:
        return None if value is None else read(arguments[0], value)
    if hasattr(kind, "__dataclass_fields__"):
        return record(kind, value)
    if kind is list and isinstance(value, list):
        return [read(arguments[0], each) for each in value]
    if kind is tuple and isinstance(value, (list, tuple)) and len(value) == len(arguments):
        return tuple(read(*each) for each in zip(arguments, value, strict=True))
    if kind is dict and isinstance(value, dict):
        return {name: read(arguments[1], each) for name, each in value.items()}
    right = type(value) is kind or (kind is float and type(value) is int)
    if kind in (int, float):
        right = right and -_LARGEST < value < _LARGEST
    if kind is not Any and not right:
        raise TypeError
    return value


def fits(wanted: Any, value: Any) -> bool:
    """Return whether a value is of a type."""
    with suppress(TypeError, NotPlain):
        read(wanted, value)
        return True
    return False
