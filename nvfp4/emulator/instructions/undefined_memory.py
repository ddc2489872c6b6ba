"""Undefined bits in shared and local memory, as a thread's loads and stores move them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from nvfp4.emulator.errors import UninitialisedRegister, UninitialisedShared
from nvfp4.emulator.instructions.access import by_space
from nvfp4.emulator.instructions.access_shape import Access, data_of
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state import native
from nvfp4.emulator.state.batch import Batch
from nvfp4.emulator.state.execution import Execution
from nvfp4.emulator.state.launch_state import Origin
from nvfp4.emulator.state.memory import LOCAL_WINDOW, SHARED_WINDOW

# A state space, and positions in the group of the lanes that use it.
_Part = tuple[str, Array]


def loaded(ex: Execution, access: Access, address: Array) -> tuple[Array, ...]:
    """The shadows of what a load has read, `elements` of them. Its addresses have been checked."""
    batch, group = ex.batch, ex.group
    out = np.zeros((access.elements, group.lanes.size), access.dtype)
    for space, at in _parts(ex, access, address):
        lanes, flat = group.lanes[at], group.spread(address)[at]
        out[:, at] = fetch(batch, access, space, lanes, flat)
    if not out.any():
        return tuple(np.zeros((access.elements, 1), access.dtype))
    return tuple(group.fold(row) for row in out)


def stored(ex: Execution, access: Access, address: Array, shadows: Sequence[Array]) -> Array:
    """Keep the shadows of what a store has written to shared or local memory; the guard of the
    lanes that wrote to global memory."""
    batch, group = ex.batch, ex.group
    mine = np.zeros(group.lanes.size, np.bool_)
    data = np.stack([group.spread(shadow) for shadow in shadows])
    for space, at in _parts(ex, access, address):
        mine[at] = True
        lanes, flat = group.lanes[at], group.spread(address)[at]
        keep(batch, access, space, lanes, flat, np.ascontiguousarray(data[:, at]))
    return group.fold(ex.mask() & ~mine)


def fetch(batch: Batch, access: Access, space: str, lanes: Array, address: Array) -> Array:
    """Shadow[element, i] of what lanes[i] has read at address[i]."""
    memory, offset = _undefined(batch, space), _offset(batch, space, lanes, address)
    assert memory is not None
    shadow = data_of(access, lanes.size)
    native.GATHER[access.size](offset + np.uint64(memory.ctypes.data), shadow)
    found = np.flatnonzero(shadow.any(axis=0))
    if found.size:
        bits = np.ascontiguousarray(shadow[:, found[0]]).view(np.uint8)
        byte = int(offset[found[0]]) + int(np.flatnonzero(bits)[0])
        origin = _origin(batch, space, byte)
        batch.launch.undefined_memory.setdefault(access.site.instruction.line, origin)
    return shadow


def keep(
    batch: Batch, access: Access, space: str, lanes: Array, address: Array, shadow: Array
) -> None:
    """Keep shadow[element, i] of what lanes[i] has written to address[i]."""
    memory, line = _undefined(batch, space), access.site.instruction.line
    if shadow.any():
        batch.launch.undefined_stores.setdefault(space, line)
        if memory is None:
            batch.launch.undefined_memory.setdefault(line, _stored_by(space, line))
    if memory is not None:
        offset = _offset(batch, space, lanes, address)
        native.SCATTER[access.size](offset + np.uint64(memory.ctypes.data), shadow)


def _parts(ex: Execution, access: Access, address: Array) -> Iterator[_Part]:
    for space, mask in by_space(ex, access, address):
        if space != "global":
            yield space, ex._replace(guard=mask).positions()


def _offset(batch: Batch, space: str, lanes: Array, address: Array) -> Array:
    """Where in the batch's shared or local memory these lanes' addresses are."""
    flat = address.astype(np.uint64)
    if space == "shared":
        row, stride = batch.grid.cta[lanes], batch.shared.stride
        flat = (flat & np.uint64(SHARED_WINDOW - 1)) - np.uint64(batch.shared.base)
    else:
        row, stride = lanes, batch.local.shape[1]
        flat = flat & np.uint64(LOCAL_WINDOW - 1)
    offset: Array = flat + row.astype(np.uint64) * np.uint64(stride)
    return offset


def _undefined(batch: Batch, space: str) -> Array | None:
    return batch.shared.undefined if space == "shared" else batch.local_undefined


def _origin(batch: Batch, space: str, byte: int) -> Origin:
    """Why a byte is undefined."""
    if space == "shared":
        place = f"shared address {batch.shared.address(byte):#x}"
        if not batch.shared.writers[byte]:
            return Origin(UninitialisedShared, f"{place}, which nothing has written")
        return _stored_by(place, batch.launch.undefined_stores.get(space))
    place = f"byte {byte % batch.local.shape[1]} of the thread's local memory"
    line = batch.launch.undefined_stores.get(space)
    if line is None:
        return Origin(UninitialisedRegister, f"{place}, which nothing has written")
    return _stored_by(place, line)


def _stored_by(place: str, line: int | None) -> Origin:
    who = "a store" if line is None else f"PTX line {line}"
    return Origin(UninitialisedRegister, f"{place}, where {who} has stored what nothing has set")
