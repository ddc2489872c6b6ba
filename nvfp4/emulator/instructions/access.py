"""ld and st: loads and stores of a group in any state space, the generic one included."""

import numpy as np

from nvfp4.emulator.arrays import Array, Arrays, distinct, halves_of, pairs_of
from nvfp4.emulator.errors import OutOfBounds
from nvfp4.emulator.instructions import access_shape, global_access, shared_access
from nvfp4.emulator.instructions import undefined as undefined_memory
from nvfp4.emulator.instructions.action import Action, Result, Site, Source, instruction
from nvfp4.emulator.ptx.syntax import SymbolAddress
from nvfp4.emulator.ptx.types import register_class
from nvfp4.emulator.state import native
from nvfp4.emulator.state.batch import Batch, Execution
from nvfp4.emulator.state.memory import READ, WRITTEN, in_window


def load(ex: Execution, access: access_shape.Access, address: Array) -> list[Array]:
    """Return the values read: `elements` arrays that broadcast to the group's shape."""
    total: list[Array] | None = None
    for space, mask in access_shape.by_space(ex, access, address):
        values = _load(ex._replace(guard=mask), access, space, address)
        if total is None:
            total = values
        else:
            chosen = np.ones(1, np.bool_) if mask is None else mask
            total = [np.where(chosen, v, t) for v, t in zip(values, total, strict=True)]
    assert total is not None
    return total


def store(ex: Execution, access: access_shape.Access, address: Array, values: list[Array]) -> None:
    """Write `elements` values for each lane."""
    group = ex.group
    for space, mask in access_shape.by_space(ex, access, address):
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
    batch: Batch, access: access_shape.Access, space: str, address: Array, lanes: Array, data: Array
) -> None:
    """Write data[element, i] at address[i] on behalf of lanes[i]."""
    if space == "global":
        global_access.locate(batch, access, address, lanes, WRITTEN)
        global_access.write(batch, access, address, lanes, data)
        return
    if space == "shared":
        offset = shared_access.locate(batch, access, address, lanes, WRITTEN)
        if batch.shared.checked:
            # Stores that other threads may read at the same time count as atomics without a result.
            flags, site = shared_access.stores_flags(access.site), access.site
            shared_access.note_writes(batch, site, access.nbytes, offset, lanes, data, flags)
            if not flags:  # storing the bytes was part of the check: see races.note_writes
                return
            shared_access.meet_by_atomics(batch, site, offset, lanes)
        address = batch.shared.host(offset)
    else:
        address = _locate_local(batch, access, address, lanes)
    native.scatter(address, data)


def read(
    batch: Batch, access: access_shape.Access, space: str, address: Array, lanes: Array
) -> Array:
    """Read data[element, i] at address[i] for lanes[i]."""
    if space == "global":
        global_access.locate(batch, access, address, lanes, READ)
    elif space == "shared":
        offset = shared_access.locate(batch, access, address, lanes, READ)
        compared = access.site.instruction.start in batch.launch.apart.compared
        if batch.shared.checked and not compared:
            shared_access.note_reads(batch, access.site, access.nbytes, offset, lanes)
        address = batch.shared.host(offset)
    else:
        address = _locate_local(batch, access, address, lanes)
    out = access_shape.data_of(access, lanes.size)
    native.gather(address, out)
    return out


def _load(ex: Execution, access: access_shape.Access, space: str, address: Array) -> list[Array]:
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
    """Return the addresses of all lanes of the group; in shared memory only one CTA's, if all CTAs
    use the same."""
    group = ex.group
    alike = chosen is None and space == "shared" and ex.batch.cluster_size == 1
    if alike and group.full and address.shape[0] == 1 and group.grid.ctas > 1:
        return np.broadcast_to(address.reshape(-1), group.grid.threads).copy()
    return group.spread(address)


def _locate_local(batch: Batch, access: access_shape.Access, address: Array, lanes: Array) -> Array:
    """Host addresses of accesses to the lanes' local memory, checked and counted: a line of 128
    bytes holds the same word of a warp's 32 lanes."""
    address = in_window(address)
    offset, bad = batch.local.locate(address, lanes, access.nbytes)
    if bad >= 0:
        access.site.lane(batch, lanes[bad]).fault(
            OutOfBounds,
            f"access of {access.nbytes} bytes at local address {int(address[bad]):#x}, outside "
            f"the thread's {batch.local.size} bytes of local memory",
        )
    words, requests = _different(batch, access.site, lanes >> 5, address >> np.uint64(2))
    asked = batch.launch.work.asked[access.site.instruction.start]
    asked.requests += requests
    asked.local_lines += words * max(1, access.nbytes // 4)
    return batch.local.host(offset)


@instruction("ld", operands="_ [] _?")
def ld(site: Site) -> Action:
    """ld{.weak...}{.space}{.hints}{.v2|.v4|.v8}.type d, [a]{, cache-policy}."""
    access_shape.known_modifiers(site)
    memory = site.memory(1)
    targets = site.items(0)
    what = access_shape.access_of(site, memory, access_shape.elements_of(site, 0))
    signed = site.type().startswith("s")
    results = [Result(target, register_class(what.size), signed) for target in targets]

    space = access_shape.space_of(site)
    is_small = space in ("param", "const") and what.space == "global"

    def run(ex: Execution, address: Array) -> tuple[Array, ...]:
        if is_small:
            address = ex.batch.launch.whole_address(space, address)
            if address.size > 1:
                _count_constants(ex, site, address)
        return tuple(load(ex, what, address))

    base = memory.base
    if isinstance(base, SymbolAddress) and base.space == "param":
        return _parameter(base.offset + memory.offset, what, results)
    site.results.extend(results)
    if what.space == "global":
        return site.action("load", run)

    def shadow(ex: Execution, values: Arrays, shadows: Arrays) -> tuple[Array, ...]:
        return undefined_memory.loaded(ex, what, values[0])

    return site.action("load", run, shadow=shadow, loads=True)


def _count_constants(ex: Execution, site: Site, address: Array) -> None:
    """Count the addresses of each warp, which the constant cache serves one after the other.

    Source: CUDA C++ Programming Guide, Device Memory Accesses, Constant Memory.
    """
    positions, asked = ex.positions(), ex.batch.launch.work.asked[site.instruction.start]
    whole = ex.group.spread(address)[positions]
    passes, requests = _different(ex.batch, site, ex.group.warp[positions], whole)
    asked.requests += requests
    asked.passes += passes


def _different(batch: Batch, site: Site, warp: Array, place: Array) -> tuple[int, int]:
    """Return how many different places the lanes of each warp access, all together, and how many
    warps do."""
    pairs = distinct(pairs_of(warp, place))
    warps, places = np.unique(halves_of(pairs)[0], return_counts=True)
    batch.launch.work.spend(site.instruction.start, batch.by_cta(warps, places))
    return pairs.size, warps.size


def _parameter(offset: int, what: access_shape.Access, results: list[Result]) -> Action:
    """Return a kernel parameter at a known offset, which is the same for all threads."""

    def run(ex: Execution) -> tuple[Array, ...]:
        values = ex.batch.launch.parameters[offset : offset + what.nbytes].copy().view(what.dtype)
        return tuple(values[i : i + 1] for i in range(what.elements))

    return Action("load", [], results, run)


@instruction("st", operands="[] _ _?")
def st(site: Site) -> Action:
    """st{.weak...}{.space}{.hints}{.v2|.v4|.v8}.type [a], b{, cache-policy}."""
    access_shape.known_modifiers(site)
    memory = site.memory(0)
    values = site.items(1)
    what = access_shape.access_of(site, memory, access_shape.elements_of(site, 1))
    base = memory.base
    is_parameter = isinstance(base, SymbolAddress) and base.space == "param"
    if access_shape.space_of(site) == "const" or is_parameter:
        message = f"{site.opcode}: {access_shape.space_of(site)} memory cannot be written"
        raise site.unsupported(message)
    site.sources.extend(Source(value, register_class(what.size)) for value in values)

    def run(ex: Execution, address: Array, *data: Array) -> None:
        store(ex, what, address, list(data))

    def shadow(ex: Execution, values: Arrays, shadows: Arrays) -> tuple[Array, ...]:
        return (undefined_memory.stored(ex, what, values[0], shadows[1:]),)

    return site.action("store", run, shadow=None if what.space == "global" else shadow)
