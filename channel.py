"""JSON messages, a line each, over a local socket; a file descriptor may travel with one."""

import json
import os
import select
import socket
import time
from typing import Any

Message = dict[str, Any]

longest_message_bytes = 1 << 20


class ChannelClosed(Exception):
    """The other side is gone."""


class ChannelTimeout(Exception):
    """No whole message came in time."""


class BadMessage(Exception):
    """What came is not a JSON object on a line of reasonable length."""


class Channel:
    """One end of a connected stream socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._pending = b""
        self._fds: list[int] = []

    def send(self, message: Message, fd: int | None = None) -> None:
        """Raises ChannelClosed where nobody listens any more."""
        data = json.dumps(message).encode() + b"\n"
        try:
            if fd is None:
                self._socket.sendall(data)
            else:
                sent = socket.send_fds(self._socket, [data], [fd])
                self._socket.sendall(data[sent:])
        except OSError as error:
            raise ChannelClosed(str(error)) from error

    def receive(self, timeout_s: float | None = None) -> tuple[Message, int | None]:
        """The next message and the descriptor that came with it, if any.

        Raises ChannelClosed, ChannelTimeout or BadMessage.
        """
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while b"\n" not in self._pending:
            if len(self._pending) > longest_message_bytes:
                raise BadMessage(f"a message is longer than {longest_message_bytes} bytes")
            self._read_more(end)
        line, self._pending = self._pending.split(b"\n", 1)
        try:
            message = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BadMessage(f"a message is not JSON: {line[:80]!r}") from error
        if not isinstance(message, dict):
            raise BadMessage(f"a message is not a JSON object: {line[:80]!r}")
        return message, self._fds.pop(0) if self._fds else None

    def _read_more(self, end: float | None) -> None:
        wait_s = None if end is None else max(0.0, end - time.monotonic())
        readable, _, _ = select.select([self._socket], [], [], wait_s)
        if not readable:
            raise ChannelTimeout
        try:
            data, fds, _, _ = socket.recv_fds(self._socket, 1 << 16, 1)
        except OSError as error:
            raise ChannelClosed(str(error)) from error
        self._fds += fds
        if not data:
            raise ChannelClosed
        self._pending += data

    def close(self) -> None:
        """Closes the socket and descriptors that nobody took."""
        for fd in self._fds:
            os.close(fd)
        self._socket.close()
