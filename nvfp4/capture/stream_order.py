"""The order in which the host has put work on the device's streams.

Here all work is complete when a call returns. On a GPU a kernel in another stream than the caller's
may run before the caller's work is done and after the call has returned, unless an event or a wait
of the host orders the two.
"""

import os
from collections import defaultdict
from dataclasses import dataclass, replace

from nvfp4.capture.frames import users_line
from nvfp4.records.launch_errors import LaunchRefused

_IMPLICIT = frozenset((0, 1, 2))
"""Handles of the default stream. It and all streams not created as non-blocking wait for each
other."""

Clocks = dict[int, int]
"""Number of earlier kernels, by stream."""


@dataclass(frozen=True)
class Unordered:
    """A kernel that nothing orders with the caller's stream, and the line that launched it."""

    kernel: str
    file: str | None
    line: int | None
    early: bool = False
    """Whether it may run before the caller's work is done; otherwise it may still run after the
    call."""


_CALLER = 0
"""The stream of the caller, whose work counts as its first kernel."""

_launches: defaultdict[int, int] = defaultdict(int)
_last: dict[int, Unordered] = {}
_early: list[Unordered] = []
_before: defaultdict[int, Clocks] = defaultdict(dict)
_recorded: dict[int, Clocks] = {}
_host: Clocks = {}
_non_blocking: set[int] = set()
_kernel_last: set[int] = set()
"""Streams whose last command is a kernel."""
_captured: dict[int, Clocks] = {}
"""While a graph is captured, the clocks of the streams that take part, that of the capture first:
number of earlier steps, by stream."""
_in_capture: dict[int, Clocks] = {}
"""Events that were recorded in them."""
_JOINING = -1
"""The event by which a stream waits for everything in another one."""
_forbidden: list[str] = []
"""What CUDA says of operations that the capture does not allow, in order."""
_operators: int | None = 0
"""Torch's operators that have worked in the call; None if one has slept."""
_waits = 0
"""How often the host has waited for the device since a kernel was last launched."""
_idle = False
"""Whether nothing has entered a stream since it last waited."""


def begin() -> None:
    """Begin a call: the caller's stream has work, all others are idle."""
    global _operators, _waits, _idle
    _operators, _waits, _idle = 0, 0, False
    for each in (_launches, _last, _early, _before, _recorded, _host, _kernel_last):
        each.clear()
    _launches[_CALLER] = _before[_CALLER][_CALLER] = 1


class NotWhileCapturing(LaunchRefused, RuntimeError):
    """An operation that CUDA forbids while a graph is captured, or without a capture."""


def begin_capture(stream: int) -> None:
    """Capture what is put into a stream, and into those that wait for what is captured. Raises
    NotWhileCapturing in a capture."""
    if _captured:
        raise NotWhileCapturing("a CUDA graph is captured already")
    _captured[stream] = {}
    _forbidden.clear()


def forbidden(why: str) -> NotWhileCapturing:
    """Return the error for what CUDA forbids during a capture. The end of the capture raises it
    again, in case it is caught."""
    _forbidden.append(f"CUDA error: operation not permitted when stream is capturing: {why}")
    return NotWhileCapturing(_forbidden[0])


def end_capture() -> None:
    """End the capture. Raises NotWhileCapturing without one, after a forbidden operation, and if
    its stream does not wait for another one that takes part."""
    if not _captured:
        raise NotWhileCapturing("no CUDA graph is captured")
    clocks = dict(_captured)
    _captured.clear()
    _in_capture.clear()
    if _forbidden:
        raise NotWhileCapturing(_forbidden[0])
    if _lags(next(iter(clocks)), clocks):
        raise NotWhileCapturing(
            "CUDA error: capturing stream has unjoined work: let it wait for the streams that "
            "were made to wait for it"
        )


def captures(stream: int) -> bool:
    """Return whether work in a stream becomes part of a graph."""
    return stream in _captured


def captured(stream: int) -> None:
    """Record a step of the graph that is captured."""
    _captured[stream][stream] = _captured[stream].get(stream, 0) + 1


def _lags(stream: int, clocks: dict[int, Clocks]) -> bool:
    """Return whether other captured streams have steps that a stream has not waited for."""
    known = clocks.get(stream, {})
    return any(known.get(each, 0) < its.get(each, 0) for each, its in clocks.items())


def refuse_capture(why: str, stream: int | None = None) -> None:
    """Raise NotWhileCapturing in a capture. stream: if given, only if it takes part."""
    if _captured and (stream is None or stream in _captured):
        raise forbidden(why)


def made(stream: int, blocking: bool) -> None:
    """Record a new stream. blocking: whether it and the default stream wait for each other."""
    if not blocking:
        _non_blocking.add(stream)


def launched(stream: int, kernel: str, reads: bool = True) -> None:
    """Record a kernel in a stream, launched by the user's code on the stack. reads: whether it may
    read what the caller has made."""
    global _idle
    _idle = False
    _launches[stream] += 1
    _kernel_last.add(stream)
    _before[stream][stream] = _launches[stream]
    if stream not in _IMPLICIT:
        last = _last[stream] = Unordered(kernel, *users_line())
        if reads and _CALLER not in _known(stream) and not _waits_by_itself(stream, _CALLER):
            _early.append(replace(last, early=True))
    if os.environ.get("CUDA_LAUNCH_BLOCKING") == "1":
        synchronize(stream)


def follows_a_kernel(stream: int) -> bool:
    """Return whether a programmatic launch may begin while the stream's last kernel runs, because
    nothing is between them."""
    return stream in _kernel_last


def waits() -> int:
    """Return how often the host has waited for the device since this was last asked."""
    global _waits
    count, _waits = _waits, 0
    return count


def operated(sleeps: bool = False) -> None:
    """Record that an operator of torch does some work. sleeps: whether it only takes time."""
    global _operators
    _operators = None if sleeps or _operators is None else _operators + 1
    interrupt()


def operators() -> int | None:
    """Return how many operators of torch have worked in the call; None if one has slept."""
    return _operators


def runs_alongside(stream: int) -> bool:
    """Return whether kernels in other streams may still run when the next one in a stream does."""
    if stream in _captured:
        return _lags(stream, _captured)
    known = {_CALLER: 1} | _known(stream)  # the caller's own work is no kernel
    return any(
        known.get(other, 0) < count and not _waits_by_itself(stream, other)
        for other, count in list(_launches.items())
    )


def interrupt() -> None:
    """Record that something other than a kernel enters a stream."""
    global _idle
    _idle = False
    _kernel_last.clear()


def _wait() -> None:
    """Record that the host waits, which costs nothing where nothing has begun since."""
    global _waits, _idle
    _waits += not _idle
    _idle = True
    _kernel_last.clear()


def record(event: int, stream: int) -> None:
    """Record an event in a stream."""
    _in_capture.pop(event, None)
    if stream in _captured:
        _in_capture[event] = dict(_captured[stream])
    else:
        _recorded[event] = dict(_before[stream])


def wait(stream: int, event: int) -> None:
    """Record that a stream waits for an event; an event that was never recorded changes nothing."""
    interrupt()
    if event in _in_capture:
        _join(_captured.setdefault(stream, {}), _in_capture[event])
    else:
        _join(_before[stream], _recorded.get(event, {}))


def wait_for_stream(stream: int, other: int) -> None:
    """Record that a stream waits for everything in another one."""
    record(_JOINING, other)
    wait(stream, _JOINING)


def synchronize(stream: int | None = None) -> None:
    """Record that the host waits for a stream, or for the device. Raises NotWhileCapturing."""
    refuse_capture("the host waits for it", stream)
    _wait()
    _join(_host, _launches if stream is None else _before[stream])


def synchronize_event(event: int) -> None:
    """Record that the host waits for an event. Raises NotWhileCapturing."""
    if event in _in_capture:
        refuse_capture("the host waits for it")
    _wait()
    _join(_host, _recorded.get(event, {}))


def unordered(current: int) -> list[Unordered]:
    """Return the kernels that may run before the caller's work is done, and those that may still
    run after the current stream's work has ended."""
    known = _known(current)
    return list(dict.fromkeys(_early)) + [
        last
        for stream, last in list(_last.items())
        if known.get(stream, 0) < _launches[stream] and not _waits_by_itself(current, stream)
    ]


def _known(stream: int) -> Clocks:
    """Return what comes before the next command in a stream."""
    known = dict(_host)
    _join(known, _before[stream])
    return known


def _waits_by_itself(stream: int, other: int) -> bool:
    default, side = sorted((stream, other), key=lambda each: each not in _IMPLICIT)
    return stream == other or (default in _IMPLICIT and side not in _non_blocking)


def _join(clocks: Clocks, others: Clocks) -> None:
    for stream, clock in list(others.items()):
        clocks[stream] = max(clocks.get(stream, 0), clock)
