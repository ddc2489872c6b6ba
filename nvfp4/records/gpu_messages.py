"""Requests of a worker to the executor, which is its GPU, over their own socket.

Bytes travel in a window of memory that both map. ``place`` is the line and column of the submission
that makes the request; empty if none does.
"""

import functools
import random
from dataclasses import field
from typing import Any

from nvfp4.records.base import Record
from nvfp4.records.launch import Dim3
from nvfp4.records.messages import Done

window_bytes = 16 << 20

Region = tuple[str, int, int, bool, tuple[list[int], list[int], int, str] | None]
"""Name, address, bytes, whether it may be written; shape, strides, offset, dtype of its view."""

Told = tuple[str, str, str | None, str | None, int | None]
"""A note: code, message, hint, file and line."""

longest_output = 1 << 16
"""Limit on the text that a kernel prints; its last characters are passed on."""


@functools.cache
def noise() -> bytes:
    """Return 1 MiB of what uninitialised memory holds, from a fixed seed, so that verdicts are
    reproducible. Larger memory repeats it."""
    return random.Random(0).randbytes(1 << 20)


class Window(Record):
    """The executor's first message, which no request asks for, with the descriptor of the
    window."""


class AddText(Record):
    """Take the PTX of a module from the window. Texts are numbered in their order."""

    nbytes: int


class SetRegions(Record):
    """Report memory that launches may touch besides the case's buffers, and memory that was
    freed."""

    regions: list[Region]
    freed: list[Region]


class Share(Record):
    """Map a sealed file, whose descriptor is sent along, as memory of host and device."""

    address: int
    nbytes: int


class Write(Record):
    """Set the (address, nbytes) of each span from the window, where their contents follow each
    other."""

    spans: list[tuple[int, int]]


class Read(Record):
    """Copy bytes of device memory into the window, as host code needs them."""

    address: int
    nbytes: int
    place: list[int]


class Copy(Record):
    """Copy within device memory."""

    to: int
    source: int
    nbytes: int


class Start(Record):
    """Run a kernel; the fields are those of ``Launch``."""

    text: int
    """Number of its PTX text."""
    kernel: str
    grid: Dim3
    block: Dim3
    cluster: Dim3
    shared_bytes: int
    stream: int
    programmatic: bool
    waited: int
    alongside: bool
    trial: bool
    parameters: list[str]
    """In hexadecimal."""
    notes: list[Told]
    place: list[int]
    with_suffix: int | None
    """Number of the text for the architecture with its suffix; None if there is none."""


class FindVariable(Record):
    """Say where a variable of a module lies."""

    text: int
    name: str


class Examine(Record):
    """Fail if a kernel cannot be emulated, whatever its launch."""

    text: int
    kernel: str


class AddNote(Record):
    """Add a finding to the last launch of a kernel, or to the last one of all."""

    kernel: str
    note: Told


class HandOver(Record):
    """Take a tensor as a part of the call's output."""

    address: int
    offset: int
    """Where to put it in the memory for the output."""
    itemsize: int
    shape: list[int]
    strides: list[int]
    """In bytes."""
    waited: int
    """How often the host has waited for the device since the last launch."""
    operators: int | None
    """Torch's operators that the call has executed; None if one has slept."""
    place: list[int]


class Found(Record):
    """Where a variable lies."""

    address: int
    nbytes: int


class Started(Record):
    """The kernel has run."""

    output: str
    """Text that it printed."""


class Fault(Record):
    """The request failed."""

    text: str
    """Message for the participant."""
    failure: dict[str, Any] = field(default_factory=dict)
    """See ``records.failures``."""
    refusal: bool = False
    """Whether the failure says nothing about the submission."""
    output: str = ""
    """Text that the kernel had printed."""


Answer = Done | Found | Started | Fault
ANSWERS = (Done, Found, Started, Fault)
