"""atom and red on global and shared memory.

Lanes act one after the other, in lane order. Those with different addresses go at the same time,
by the lane function that the same arithmetic instruction uses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nvfp4.emulator.arithmetic import resolve
from nvfp4.emulator.engine import access, native
from nvfp4.emulator.engine.access import WRITTEN, Access
from nvfp4.emulator.engine.action import (
    CLASS_OF_BYTES,
    Action,
    Result,
    Site,
    Source,
    instruction,
    type_bits,
    type_of,
)
from nvfp4.emulator.engine.batch import Batch, lanes_of
from nvfp4.emulator.engine.group import Group
from nvfp4.emulator.engine.instructions.access import known_modifiers, space_of
from nvfp4.emulator.errors import UninitialisedShared

Array = np.ndarray[Any, Any]
Update = Callable[[Array, Array, Array], Array]

_OPERATIONS = ("and", "or", "xor", "exch", "add", "inc", "dec", "min", "max", "cas")
_UINT = {2: np.uint16, 4: np.uint32, 8: np.uint64}


def _update(site: Site, space: str) -> Update:
    """(old, b, c) -> new."""
    operation = next((p for p in site.parts if p in _OPERATIONS), None)
    if operation is None:
        raise site.unsupported(f"{site.opcode} names no operation")
    if operation == "exch":
        return lambda old, b, c: b
    if operation == "cas":
        return lambda old, b, c: np.where(old == b, c, old)
    if operation == "inc":
        return lambda old, b, c: np.where(old >= b, old.dtype.type(0), old + old.dtype.type(1))
    if operation == "dec":
        one = np.uint32(1)
        return lambda old, b, c: np.where((old == 0) | (old > b), b, old - one)
    type_name = type_of(site)
    if type_name == "f32" and operation == "add" and space == "global":
        # In global memory the addition flushes subnormal numbers; in shared memory it does not.
        function = resolve("add.ftz.f32").function
    else:
        function = resolve(f"{operation}.{type_name}").function
    return lambda old, b, c: function(old, b)[0]


def _build(site: Site, returns: bool) -> Action:
    known_modifiers(site, "noftz", *_OPERATIONS)
    if "async" in site.parts:
        raise site.unsupported(f"{site.opcode} is not emulated")
    bits = type_bits(type_of(site))
    if bits not in (16, 32, 64):
        raise site.unsupported(f"{site.opcode}: {bits}-bit atomics are not emulated")
    first = 1 if returns else 0
    compare = "cas" in site.parts
    site.takes(first + 2 + compare, first + 3 + compare)
    memory = site.memory(first)
    values = site.items(first + 1)
    third = site.items(first + 2) if compare else ()
    count = len(values)
    space = space_of(site)
    what = Access(site, space, bits // 8, count)
    updates = {s: _update(site, s) for s in ("global", "shared")}
    cls = CLASS_OF_BYTES[what.size]
    sources = [Source(memory, "b64")]
    sources += [Source(value, cls) for value in (*values, *third)]
    results = [Result(target, cls) for target in site.items(0)] if returns else []

    def run(
        batch: Batch, group: Group, guard: Array | None, address: Array, *data: Array
    ) -> tuple[Array, ...]:
        chosen = lanes_of(group, guard)
        positions = np.arange(group.lanes.size) if chosen is None else chosen
        flat = group.spread(address)[positions]
        lanes = group.lanes[positions]
        b = [group.spread(value)[positions] for value in data[:count]]
        c = [group.spread(value)[positions] for value in data[count:]] or b
        old = np.zeros((count, group.lanes.size), _UINT[what.size])
        if positions.size:
            spaces = [(space, None)] if space != "generic" else access.split_windows(flat)
            for where, mask in spaces:
                some = np.arange(positions.size) if mask is None else np.flatnonzero(mask)
                before = _apply(
                    batch,
                    what,
                    where,
                    updates[where],
                    flat[some],
                    lanes[some],
                    [v[some] for v in b],
                    [v[some] for v in c],
                )
                old[:, positions[some]] = before
        if not returns:
            return ()
        return tuple(group.fold(row) for row in old)

    return Action("atomic", sources, results, run)


def _apply(
    batch: Batch,
    what: Access,
    space: str,
    update: Update,
    address: Array,
    lanes: Array,
    b: list[Array],
    c: list[Array],
) -> Array:
    """Update memory; the values from before, [elements, lanes]."""
    batch.traffic.atomics += address.size
    if space == "shared":
        offset = access.locate_shared(batch, what, address, lanes, written=True)
        if batch.shared.checked:
            _check_written(batch, what, offset, lanes)
            access.note_shared_writes(
                batch, what.site, what.nbytes, offset, lanes, np.stack(b), atomic=True
            )
        address = offset + np.uint64(batch.shared.address)
    else:
        access.locate_global(batch, what, address, lanes, WRITTEN)
    old = np.empty((what.elements, address.size), _UINT[what.size])
    order = np.argsort(address, kind="stable")
    ordered = address[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    length = np.diff(np.append(starts, address.size))
    for turn in range(int(length.max())):
        now = order[starts[length > turn] + turn]
        held = np.empty((what.elements, now.size), old.dtype)
        native.gather[what.size](address[now], held)
        old[:, now] = held
        new = [update(held[i], b[i][now], c[i][now]) for i in range(what.elements)]
        native.scatter[what.size](address[now], np.stack(new).astype(old.dtype, copy=False))
    batch.scheduler.stir()
    return old


def _check_written(batch: Batch, what: Access, offset: Array, lanes: Array) -> None:
    unset = np.flatnonzero(batch.shared.writers[offset.astype(np.int64)] == 0)
    if unset.size:
        i = int(unset[0])
        address = int(offset[i]) % batch.shared.stride + batch.shared.base
        raise what.site.fail(
            UninitialisedShared,
            f"atomic on shared address {address:#x}, where nothing was written",
            batch,
            int(lanes[i]),
        )


@instruction("atom")
def atom(site: Site) -> Action:
    """atom{.sem}{.scope}{.space}.op.type d, [a], b{, c}."""
    return _build(site, returns=True)


@instruction("red")
def red(site: Site) -> Action:
    """red{.sem}{.scope}{.space}.op.type [a], b."""
    return _build(site, returns=False)
