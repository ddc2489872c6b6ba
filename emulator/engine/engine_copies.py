"""What the copy engine does for cp.async.bulk, one copy at a time (its tensor form: tiles.py).

A copy is performed when it is issued; the race check learns of it when its mbarrier completes or
its bulk group is waited for, so that whoever does not wait is caught.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import numpy as np

from nvfp4.emulator.engine import mbarriers, races
from nvfp4.emulator.engine.access import READ
from nvfp4.emulator.engine.action import Site
from nvfp4.emulator.engine.batch import Batch
from nvfp4.emulator.engine.memory import SHARED_WINDOW
from nvfp4.emulator.errors import (
    Misaligned,
    OutOfBounds,
    ReadOnlyMemory,
    SharedRace,
    UninitialisedShared,
)

Array = np.ndarray[Any, Any]


def host_view(address: int, nbytes: int) -> Array:
    """uint8[nbytes] of host memory; the caller has checked the range."""
    interface = {"data": (address, False), "shape": (nbytes,), "typestr": "|u1", "version": 3}
    holder = type("_Holder", (), {"__array_interface__": interface})()
    return np.asarray(holder)


def global_range(
    site: Site, batch: Batch, lane: int, address: int, nbytes: int, flag: int, span: int = 0
) -> int:
    """Index of the one buffer that holds all bytes of a range of global memory.

    nbytes: what is copied, for the counters; span: what is addressed, if that is more.
    """
    span = span or nbytes
    memory = batch.memory
    while True:
        found = memory.nearest(address)
        if found is not None and found[1] >= 0 and found[1] + span <= found[0].nbytes:
            break
        if not memory.rescan():
            outside = address
            if found is not None and 0 <= found[1] < found[0].nbytes:
                outside = found[0].end
            raise site.fail(
                OutOfBounds,
                f"copy of {span} bytes from or to {memory.describe(address)} reaches outside "
                f"every tensor at {memory.describe(outside)}",
                batch,
                lane,
            )
    if flag != READ and not found[0].writable:
        raise site.fail(
            ReadOnlyMemory,
            f"copy to memory that is only for reading: {memory.describe(address)}",
            batch,
            lane,
        )
    if flag == READ:
        batch.traffic.global_read_bytes += nbytes
    else:
        batch.traffic.global_written_bytes += nbytes
    return bisect_right(memory.addresses, address) - 1


def touch(batch: Batch, index: int, address: int, nbytes: int, flag: int) -> None:
    """Count the sectors of a range of the buffer with an index."""
    memory = batch.memory
    base = int(memory.sector0[index]) - (memory.buffers[index].address >> 5)
    first, last = (address >> 5) + base, ((address + nbytes - 1) >> 5) + base
    memory.touched[first : last + 1] |= flag
    batch.traffic.sectors_requested += last + 1 - first
    batch.traffic.global_requests += 1


def shared_range(
    site: Site, batch: Batch, lane: int, address: int, nbytes: int, align: int
) -> tuple[int, Array]:
    """(offset, bytes) of a range of the lane's CTA's shared memory."""
    shared = batch.shared
    address &= SHARED_WINDOW - 1
    if address % align:
        raise site.fail(
            Misaligned,
            f"copy from or to shared address {address:#x}, which is no multiple of {align}",
            batch,
            lane,
        )
    start = address - shared.base
    if start < 0 or start + nbytes > shared.size:
        raise site.fail(
            OutOfBounds,
            f"copy of {nbytes} bytes from or to shared address {address:#x}, outside the CTA's "
            f"shared memory [{shared.base:#x}, {shared.base + shared.size:#x})",
            batch,
            lane,
        )
    offset = start + lane // batch.grid.threads * shared.stride
    return offset, shared.data[offset : offset + nbytes]


def note(site: Site, batch: Batch, lane: int, offset: int, nbytes: int, write: bool) -> None:
    """The engine touches shared bytes on behalf of a lane. Raises SharedRace."""
    shared = batch.shared
    if not shared.checked:
        return
    cta, thread = divmod(lane, batch.grid.threads)
    byte, fault, stamp = races.note_engine(
        offset,
        nbytes,
        thread,
        batch.grid.threads,
        shared.clocks.known[cta],
        shared.writers,
        shared.readers,
        write,
    )
    if not fault:
        return
    address = byte % shared.stride + shared.base
    if fault == races.UNINITIALISED:
        raise site.fail(
            UninitialisedShared,
            f"copy from shared address {address:#x}, where nothing was written",
            batch,
            lane,
        )
    other = int(stamp & 0x7FFFFFFF) - 1
    who = "another asynchronous copy"
    if other < batch.grid.threads:
        who = f"thread {batch.coordinates(cta * batch.grid.threads + other)[1]}"
    raise site.fail(
        SharedRace,
        f"asynchronous {'write' if write else 'read'} of shared address {address:#x} races with "
        f"{who}: nothing orders the copy after that access",
        batch,
        lane,
        hint="wait at a barrier before the copy is issued",
    )


def advance(batch: Batch, lanes: Array) -> None:
    """The engine's clock of the lanes' CTAs moves on after their copies."""
    engine = batch.grid.warps
    batch.shared.clocks.known[lanes // batch.grid.threads, engine, engine] += 1


def complete(site: Site, batch: Batch, lanes: Array, mbar: Array, nbytes: Array) -> None:
    """complete_tx at the mbarriers of these lanes, whose copies were the latest of their CTAs."""
    offset = mbarriers.locate(site, batch, mbar, lanes)
    mbarriers.engine_done(batch, offset, lanes // batch.grid.threads)
    mbarriers.change(site, batch, offset, lanes, np.zeros_like(nbytes), -nbytes)


def learn(batch: Batch, lanes: Array) -> None:
    """These threads waited for their bulk groups: they know what the engine did."""
    if batch.shared.checked:
        engine = batch.grid.warps
        warp = (lanes % batch.grid.threads) >> 5
        known = batch.shared.clocks.known
        cta = lanes // batch.grid.threads
        known[cta, warp, engine] = known[cta, engine, engine]
