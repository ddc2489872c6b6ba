"""What the judge asks of the executor and of a worker that records, as records like those of
``messages``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Record:
    """To a worker: call custom_kernel once and take its launches down. With it comes an outbox, if
    `fresh`; else the one before stays."""

    fresh: bool


@dataclass(frozen=True)
class Recorded:
    """call: see ``launch_records.read_call``, empty where launches cannot stand for the call, and
    why. launched: whether a launch that was taken down, now or before, has not run here."""

    call: dict[str, Any]
    launched: bool
    why: str


@dataclass(frozen=True)
class OpenSession:
    """To the executor: forget everything. With it comes the outbox of another worker. path: of
    the submission there; name: what messages call it. text: of it, to be quoted."""

    path: str
    name: str
    text: str


@dataclass(frozen=True)
class Opened:
    """The session has begun."""


@dataclass(frozen=True)
class Execute:
    """To the executor: run a recorded call. With it come the case's buffers.

    buffers: name, offset, nbytes, writable, shape, strides in bytes and dimensions of each that
    launches may touch. place: where the output goes, by its offset. shape: m and l. itemsizes: of
    the dtypes an output may have. check, orders, keep: as of ``Load``; keep is a folder's name,
    empty for no listings. deadline: of kernels, on the monotonic clock.
    """

    call: dict[str, Any]
    buffers: list[Any]
    mapped_bytes: int
    place: int
    shape: list[int]
    itemsizes: dict[str, int]
    check: bool
    orders: int
    keep: str
    deadline: float


@dataclass(frozen=True)
class Executed:
    """reports: as ``emulator.LaunchReport.to_dict``. prints: of kernels. fault: why there is no
    output, empty if there is. record: of a kernel that was still running at the deadline, as
    ``failure_records.record_of``. taken: because addresses are not free in that process."""

    reports: list[Any]
    prints: str
    fault: str
    record: dict[str, Any]
    taken: bool


@dataclass(frozen=True)
class Explain:
    """Call custom_kernel once and write what its kernels cost to a file. instructions: after how
    many warp instructions a launch may stop. ptx, sass: with the text of the code.
    """

    instructions: int
    ptx: bool
    sass: bool
