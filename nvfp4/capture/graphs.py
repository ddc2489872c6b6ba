"""CUDA graphs.

While a graph is captured, launches and copies in the streams that take part are recorded instead
of executed; a replay executes them in order. Only one capture is possible at a time.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from nvfp4.capture import stream_order

Step = Callable[[], object]


@dataclass
class Graph:
    """What was captured."""

    origin: int = 0
    """The stream in which the capture began."""
    steps: list[Step] = field(default_factory=list)


_captured = Graph()
"""What the capture under way has so far."""
_streams: dict[int, int] = {}
"""During a replay, the stream that stands for the one of the capture."""


def begin(stream: int) -> None:
    """Begin a capture in a stream. Raises NotWhileCapturing in a capture."""
    stream_order.begin_capture(stream)
    _captured.origin = stream


def end() -> Graph:
    """End the capture and return its steps. Raises NotWhileCapturing without a capture, and where
    streams that take part are not joined."""
    global _captured
    graph, _captured = _captured, Graph()
    stream_order.end_capture()
    return graph


def stream_now(stream: int) -> int:
    """Return the stream in which a step runs that was asked for in this one."""
    return _streams.get(stream, stream)


def keep(stream: int, step: Step) -> None:
    """Add a step to the graph that a stream takes part in."""
    stream_order.captured(stream)
    _captured.steps.append(step)


def do(stream: int, step: Step) -> None:
    """Run a step now, or add it to the graph that its stream takes part in."""
    if stream_order.captures(stream):
        keep(stream, step)
    else:
        step()


def do_in(stream: int, what: str, step: Step, reads: bool = True) -> None:
    """Do the same with work of the device. reads: whether it may read what the caller has made."""
    if not stream_order.captures(stream):
        stream_order.launched(stream, what, reads)
    do(stream, step)


def replay(graph: Graph, stream: int) -> None:
    """Perform the steps of a graph in a stream. During a capture they are added to the graph that
    is captured."""
    if not stream_order.captures(stream):
        stream_order.launched(stream, "a CUDA graph")
    _streams[graph.origin] = stream
    try:
        for step in graph.steps:
            do(stream, step)
    finally:
        _streams.clear()
