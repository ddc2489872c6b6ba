"""CUDA graphs.

While a graph is captured, launches and copies are recorded instead of executed; a replay executes
them in order. Only one capture is possible at a time.
"""

from collections.abc import Callable

from nvfp4.capture import stream_order
from nvfp4.records.launch_errors import LaunchRefused

Step = Callable[[], object]

_steps: list[Step] | None = None


class NotWhileCapturing(LaunchRefused, RuntimeError):
    """An operation that CUDA forbids while a graph is captured, or without a capture."""


def capturing() -> bool:
    """Whether a graph is being captured."""
    return _steps is not None


def begin() -> None:
    """Begin a capture. Raises NotWhileCapturing in a capture."""
    global _steps
    if _steps is not None:
        raise NotWhileCapturing("a CUDA graph is captured already")
    _steps = []


def end() -> list[Step]:
    """End the capture and return its steps. Raises NotWhileCapturing without a capture."""
    global _steps
    if _steps is None:
        raise NotWhileCapturing("no CUDA graph is captured")
    steps, _steps = _steps, None
    return steps


def keep(step: Step) -> None:
    """Add a step to the graph that is being captured, if any."""
    if _steps is not None:
        _steps.append(step)


def do(step: Step) -> None:
    """Run a step now, or add it to the graph that is being captured."""
    if _steps is None:
        step()
    else:
        _steps.append(step)


def do_in(stream: int, what: str, step: Step, reads: bool = True) -> None:
    """Do the same with work in a stream. reads: whether it may read what the caller has made."""
    if _steps is None:
        stream_order.launched(stream, what, reads)
    do(step)


def replay(steps: list[Step], stream: int) -> None:
    """Perform the steps of a graph in a stream. During a capture they are added to the graph that
    is captured."""
    if _steps is None:
        stream_order.launched(stream, "a CUDA graph")
    for step in steps:
        do(step)
