"""CUDA graphs. While one is captured, launches and copies are kept and not done; a replay does them
in order. There is one capture at a time.
"""

from collections.abc import Callable

from nvfp4.capture import stream_order
from nvfp4.records.launch_errors import LaunchRefused

Step = Callable[[], object]

_steps: list[Step] | None = None


class NotWhileCapturing(LaunchRefused, RuntimeError):
    """What CUDA does not permit while a graph is captured, or without a capture."""


def capturing() -> bool:
    """Whether a graph is captured."""
    return _steps is not None


def begin() -> None:
    """Raises NotWhileCapturing in a capture."""
    global _steps
    if _steps is not None:
        raise NotWhileCapturing("a CUDA graph is captured already")
    _steps = []


def end() -> list[Step]:
    """What has been kept since `begin`. Raises NotWhileCapturing without a capture."""
    global _steps
    if _steps is None:
        raise NotWhileCapturing("no CUDA graph is captured")
    steps, _steps = _steps, None
    return steps


def keep(step: Step) -> None:
    """For the graph that is captured, if one is."""
    if _steps is not None:
        _steps.append(step)


def do(step: Step) -> None:
    """Now, or as part of the graph that is captured."""
    if _steps is None:
        step()
    else:
        _steps.append(step)


def replay(steps: list[Step], stream: int) -> None:
    """In a stream. Inside another capture its graph has these steps, too."""
    if _steps is None:
        stream_order.launched(stream, "a CUDA graph")
    for step in steps:
        do(step)
