"""What the judge's own clock asks of the worker, as records like those of ``messages``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OpenQueue:
    """Open more sets of buffers for a call each, and the gate in front of the calls.

    sets: the handles of each set of buffers, by name. gate: its handle.
    """

    sets: list[dict[str, list[object]]]
    gate: list[object]


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
