"""What the judge's own clock asks of the worker, as records like those of ``messages``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OpenGate:
    """Open the gate's memory, whose descriptor comes with it."""


@dataclass(frozen=True)
class OpenSet:
    """Open one more set of buffers for a call, whose descriptor comes with it; without one, take
    the buffers of the case."""


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
