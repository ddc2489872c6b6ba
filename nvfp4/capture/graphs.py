"""CUDA graphs.

While a graph is captured, launches and copies in the streams that take part are recorded instead
of executed; a replay executes them in order. Only one capture is possible at a time.
"""

from collections.abc import Callable

from nvfp4.capture import stream_order

Step = Callable[[], object]

_steps: list[Step] = []
"""The steps of the capture so far; empty without one."""
_replaying_in: int | None = None
"""The stream of the replay under way."""


def end() -> list[Step]:
    """End the capture and return its steps. Raises NotWhileCapturing without a capture, and where
    streams that take part are not joined."""
    global _steps
    steps, _steps = _steps, []
    stream_order.end_capture()
    return steps


def stream_now(stream: int) -> int:
    """Return the stream in which a step asked for in this one runs: in a replay, the replay's."""
    return stream if _replaying_in is None else _replaying_in


def keep(stream: int, step: Step) -> None:
    """Add a step to the graph that a stream takes part in."""
    stream_order.captured(stream)
    _steps.append(step)


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


def replay(steps: list[Step], stream: int) -> None:
    """Perform the steps of a graph in a stream. During a capture they are added to the graph that
    is captured."""
    if not stream_order.captures(stream):
        stream_order.launched(stream, "a CUDA graph")
    global _replaying_in
    _replaying_in = stream
    try:
        for step in steps:
            do(stream, step)
    finally:
        _replaying_in = None
