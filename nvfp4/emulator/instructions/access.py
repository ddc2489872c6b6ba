"""Loads and stores of a group in any state space, the generic one included."""

import numpy as np

from nvfp4.emulator.errors import OutOfBounds
from nvfp4.emulator.instructions import global_access, shared_access
from nvfp4.emulator.instructions.access_shape import Access, data_of
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state import native
from nvfp4.emulator.state.batch import Batch, Execution
from nvfp4.emulator.state.memory import READ, SHARED_WINDOW, WINDOW_SHIFT, WRITTEN, in_window

# A state space, and the lanes whose addresses point there (None: all).
Part = tuple[str, "Array | None"]


def load(ex: Execution, access: Access, address: Array) -> list[Array]:
    """Values read: `elements` arrays that broadcast to the group's shape."""
    total: list[Array] | None = None
    for space, mask in by_space(ex, access, address):
        values = _load(ex._replace(guard=mask), access, space, address)
        if total is None:
            total = values
        else:
            chosen = np.ones(1, np.bool_) if mask is None else mask
            total = [np.where(chosen, v, t) for v, t in zip(values, total, strict=True)]
    assert total is not None
    return total


def store(ex: Execution, access: Access, address: Array, values: list[Array]) -> None:
    """Write `elements` values a lane."""
    group = ex.group
    for space, mask in by_space(ex, access, address):
        chosen = ex._replace(guard=mask).some_positions()
        flat, lanes = _flat(ex, space, address, chosen), group.lanes
        spread = [group.spread(value) for value in values]
        if chosen is not None:
            if chosen.size == 0:
                continue
            flat, lanes = flat[chosen], lanes[chosen]
            spread = [value[chosen] for value in spread]
        data = np.stack(spread) if len(spread) > 1 else spread[0].reshape(1, -1)
        write(ex.batch, access, space, flat, lanes, data)


def write(
    batch: Batch, access: Access, space: str, address: Array, lanes: Array, data: Array
) -> None:
    """Write data[element, i] at address[i] on behalf of lanes[i]."""
    if space == "global":
        global_access.locate(batch, access, address, lanes, WRITTEN)
        global_access.write(batch, access, address, lanes, data)
        return
    if space == "shared":
        offset = shared_access.locate(batch, access, address, lanes, WRITTEN)
        if batch.shared.checked and shared_access.stores_flags(access.site):
            shared_access.note_flags(batch, access.site, access.nbytes, offset, lanes, data)
        elif batch.shared.checked:
            # Storing the bytes is part of the check: see races.note_writes.
            shared_access.note_writes(batch, access.site, access.nbytes, offset, lanes, data)
            return
        address = batch.shared.host(offset)
    else:
        address = _locate_local(batch, access, address, lanes)
    native.scatter(address, data)


def read(batch: Batch, access: Access, space: str, address: Array, lanes: Array) -> Array:
    """data[element, i] at address[i], read on behalf of lanes[i]."""
    if space == "global":
        global_access.locate(batch, access, address, lanes, READ)
    elif space == "shared":
        offset = shared_access.locate(batch, access, address, lanes, READ)
        if batch.shared.checked:
            shared_access.note_reads(batch, access.site, access.nbytes, offset, lanes)
        address = batch.shared.host(offset)
    else:
        address = _locate_local(batch, access, address, lanes)
    out = data_of(access, lanes.size)
    native.gather(address, out)
    return out


def split_windows(address: Array) -> list[Part]:
    """Generic addresses by the space that they point into."""
    if address.max() < SHARED_WINDOW:
        return [("global", None)]
    window = address >> np.uint64(WINDOW_SHIFT)
    found: list[Part] = []
    for number, space in ((0, "global"), (1, "shared"), (2, "local")):
        mask = window == number
        if mask.all():
            return [(space, None)]
        if mask.any():
            found.append((space, mask))
    other = window > 2
    if other.any():
        found.append(("global", other))
    return found


def by_space(ex: Execution, access: Access, address: Array) -> list[Part]:
    """The state spaces that the lanes' addresses point into."""
    if access.space != "generic":
        return [(access.space, ex.guard)]
    chosen = ex.some_positions()
    if chosen is not None:
        # Lanes that take no part may hold any address.
        live = ex.group.spread(address)[chosen]
        spaces = split_windows(live) if live.size else [("global", None)]
        if len(spaces) == 1:
            return [(spaces[0][0], ex.guard)]
    parts = split_windows(address)
    if ex.guard is None:
        return parts
    return [(space, ex.guard if mask is None else ex.guard & mask) for space, mask in parts]


def _load(ex: Execution, access: Access, space: str, address: Array) -> list[Array]:
    batch, group, _ = ex
    chosen = ex.some_positions()
    if chosen is None and space == "global":
        return global_access.load_by_all(batch, group, access, address)
    flat = _flat(ex, space, address, chosen)
    if chosen is None:
        out = read(batch, access, space, flat, group.lanes)
    else:
        out = np.zeros((access.elements, flat.size), access.dtype)
        if chosen.size:
            out[:, chosen] = read(batch, access, space, flat[chosen], group.lanes[chosen])
    return [group.fold(row) for row in out]


def _flat(ex: Execution, space: str, address: Array, chosen: Array | None) -> Array:
    """The addresses of all lanes of the group, or in shared memory of one CTA's lanes if those of
    all CTAs have the same."""
    alike = chosen is None and space == "shared" and address.shape == (1, ex.group.grid.threads)
    if alike and ex.group.full and ex.batch.cluster_size == 1:
        return address.reshape(-1)
    return ex.group.spread(address)


def _locate_local(batch: Batch, access: Access, address: Array, lanes: Array) -> Array:
    """Host addresses of accesses to the lanes' local memory, checked."""
    address = in_window(address)
    offset, bad = batch.local.locate(address, lanes, access.nbytes)
    if bad >= 0:
        access.site.lane(batch, lanes[bad]).fault(
            OutOfBounds,
            f"access of {access.nbytes} bytes at local address {int(address[bad]):#x}, outside "
            f"the thread's {batch.local.size} bytes of local memory",
        )
    return batch.local.host(offset)
