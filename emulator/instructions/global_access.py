"""Accesses to global memory: bounds, alignment, sectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from nvfp4.emulator.errors import Misaligned, OutOfBounds, ReadOnlyMemory
from nvfp4.emulator.instructions.access_shape import Access, count_runs, data_of, verb
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state import native
from nvfp4.emulator.state.batch import Batch
from nvfp4.emulator.state.group import Group
from nvfp4.emulator.state.memory import READ, WINDOW_SHIFT, WRITTEN

_ONE_REQUEST = np.zeros(1, np.int64)


@dataclass
class Requests:
    """Flat addresses, and the requests of warps that they belong to.

    request: lanes with equal neighbours are one request. copies: how many requests of the group
    each of these represents. lane: position in the arrays -> lane number of the batch.
    """

    address: Array
    request: Array
    copies: int
    lane: Callable[[int], int]


def locate(batch: Batch, access: Access, address: Array, lanes: Array, flag: int) -> None:
    """Check and count the accesses of these lanes, one address each."""
    requests = Requests(address, lanes >> 5, 1, lambda i: int(lanes[i]))
    _visit(batch, access, requests, flag, lanes.size)


def load_by_all(batch: Batch, group: Group, access: Access, address: Array) -> list[Array]:
    """A load by all lanes: each distinct address of a broadcast register is read once."""
    shape = address.shape
    flat = address.reshape(-1)
    grid = group.grid
    threads = grid.threads
    if shape == group.shape:
        requests = Requests(flat, group.warp, 1, lambda i: int(group.lanes[i]))
    elif flat.size == 1:
        requests = Requests(flat, _ONE_REQUEST, group.warps, lambda i: int(group.lanes[0]))
    elif shape[0] == 1:
        requests = Requests(flat, grid.warp[:threads], grid.ctas, lambda i: i)
    else:
        requests = Requests(flat, grid.lane[: grid.ctas], grid.warps, lambda i: i * threads)
    _visit(batch, access, requests, READ, group.lanes.size)
    out = data_of(access, flat.size)
    native.GATHER[access.size](flat, out)
    return [row.reshape(shape) for row in out]


def _visit(batch: Batch, access: Access, requests: Requests, flag: int, lanes: int) -> None:
    memory, nbytes, address = batch.memory, access.nbytes, requests.address
    while True:
        bad, sectors = native.visit_global(
            address,
            requests.request,
            nbytes,
            access.alignment,
            memory.starts,
            memory.ends,
            memory.sector0,
            memory.touched,
            flag if access.counted else 0,
        )
        if bad < 0:
            break
        # A buffer that is not known yet may hold the address.
        if int(address[bad]) % access.alignment or not memory.rescan():
            _fault(batch, access, int(address[bad]), requests.lane(bad), flag)
    if flag == WRITTEN:
        if memory.read_only:
            _check_writable(batch, access, requests)
        if address.size:
            memory.keep_contents(int(address.min()), int(address.max()))
    if access.counted:
        traffic = batch.traffic
        traffic.sectors_requested += sectors * requests.copies
        traffic.global_requests += requests.copies * count_runs(requests.request)
        if flag == WRITTEN:
            traffic.global_written_bytes += nbytes * lanes
        else:
            traffic.global_read_bytes += nbytes * lanes


def _check_writable(batch: Batch, access: Access, requests: Requests) -> None:
    for buffer in batch.memory.read_only:
        inside = (requests.address >= buffer.address) & (requests.address < buffer.end)
        if inside.any():
            i = int(np.flatnonzero(inside)[0])
            access.site.lane(batch, requests.lane(i)).fault(
                ReadOnlyMemory,
                f"write of {access.nbytes} bytes to read-only memory: "
                + batch.memory.describe(int(requests.address[i])),
            )


def _fault(batch: Batch, access: Access, address: int, lane: int, flag: int) -> NoReturn:
    at = access.site.lane(batch, lane)
    what = f"{verb(flag)} of {access.nbytes} bytes"
    place = batch.memory.describe(address)
    if address % access.alignment:
        at.fault(
            Misaligned,
            f"{what} at a misaligned address: {place}",
            hint=f"the address must be a multiple of {access.alignment}",
        )
    if address >> WINDOW_SHIFT:
        place = f"address {address:#x}, which no memory has"
    elif address < batch.launch.shared_bytes and access.space != "shared":
        place += " (it looks like a shared-memory offset)"
    at.fault(OutOfBounds, f"{what} outside every tensor: {place}")
