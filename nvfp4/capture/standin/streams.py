"""Streams and events of a device on which all work is done when a call returns; what joins them is
kept by `stream_order`.
"""

import ctypes
import itertools
import threading
from typing import Any

import torch

from nvfp4.capture import stream_order
from nvfp4.capture.untimed import no_time

_handles = itertools.count(0x10, 0x10)  # CUDA gives 1 and 2 a meaning of their own


class Stream:
    """torch.cuda.Stream; the default stream has the handle 0. All streams are always idle."""

    device, device_index, priority = torch.device("cuda", 0), 0, 0

    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
        self.priority = priority
        self.cuda_stream = self.stream_id = next(_handles)
        stream_order.made(self.cuda_stream, blocking=False)

    def wait_event(self, event: Any) -> None:
        """Make later work in this stream wait for an event."""
        stream_order.wait(self.cuda_stream, event.cuda_event)

    def wait_stream(self, stream: Any) -> None:
        """Make later work in this stream wait for the work in another one."""
        stream_order.wait_for_stream(self.cuda_stream, stream.cuda_stream)

    def synchronize(self) -> None:
        """Wait in the host."""
        stream_order.synchronize(self.cuda_stream)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """Return the least and the greatest priority."""
        return 0, -5

    def is_capturing(self) -> bool:
        """Return whether work in this stream becomes part of a graph."""
        return stream_order.captures(self.cuda_stream)

    def query(self) -> bool:
        """Return True: a stream is always idle."""
        self.synchronize()
        return True

    def record_event(self, event: "Event | None" = None) -> "Event":
        """Record an event and return it."""
        event = event or Event()
        event.record(self)
        return event

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:
        """Return the handle, for functions of ctypes."""
        return ctypes.c_void_p(self.cuda_stream)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self.cuda_stream == other.cuda_stream

    def __hash__(self) -> int:
        return hash(self.cuda_stream)

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device=cuda:0 cuda_stream={self.cuda_stream:#x}>"

    def __enter__(self) -> "Stream":
        self._context = torch.cuda.StreamContext(self)
        self._context.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._context.__exit__(*error)


class ExternalStream(Stream):
    """torch.cuda.ExternalStream: a stream made elsewhere, by its handle."""

    def __init__(self, stream_ptr: int, device: Any = None, **_: Any) -> None:
        self.cuda_stream = self.stream_id = stream_ptr


class Event:
    """torch.cuda.Event, which is complete as soon as it is recorded.

    `elapsed_time` raises RuntimeError: there is no GPU whose time could be measured, and a number
    from here would only be taken for one.
    """

    def __init__(self, *_: Any, **__: Any) -> None:
        self.device = torch.device("cuda", 0)
        self.cuda_event = next(_handles)

    def record(self, stream: Any = None) -> None:
        """Record the event in a stream; it is complete at once."""
        stream_order.record(self.cuda_event, (stream or current_stream()).cuda_stream)

    def wait(self, stream: Any = None) -> None:
        """Make later work in a stream wait for this event."""
        (stream or current_stream()).wait_event(self)

    def synchronize(self) -> None:
        """Wait in the host."""
        stream_order.synchronize_event(self.cuda_event)

    def query(self) -> bool:
        """Return True: an event is always complete."""
        self.synchronize()
        return True

    def elapsed_time(self, end_event: Any) -> float:
        """Raise RuntimeError: no time can be measured."""
        raise no_time()


_default = ExternalStream(0)
_current = threading.local()


def current_stream(device: Any = None) -> Stream:
    """Return the stream of this thread."""
    return getattr(_current, "stream", _default)


def default_stream(device: Any = None) -> Stream:
    """Return the stream with the handle 0."""
    return _default


def set_stream(stream: Any) -> None:
    """Make a stream the current one of this thread; None changes nothing."""
    if stream is not None:
        _current.stream = stream
