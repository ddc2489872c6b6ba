"""cp.async.bulk and cp.async.bulk.tensor: copies by the copy engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from nvfp4.emulator.engine import engine_copies, tiles
from nvfp4.emulator.engine.access import READ, WRITTEN
from nvfp4.emulator.engine.action import Action, Site, Source, instruction
from nvfp4.emulator.engine.batch import Batch
from nvfp4.emulator.engine.group import Group
from nvfp4.emulator.engine.instructions.access import is_hint
from nvfp4.emulator.engine.instructions.mbarrier import taking_part
from nvfp4.emulator.errors import Misaligned, TensorMapError
from nvfp4.emulator.ptx.program import Memory, Operand

Array = np.ndarray[Any, Any]

_COMPLETION = "mbarrier::complete_tx::bytes"
_KNOWN = {
    "cp", "async", "bulk", "tensor", "tile", "global", "shared::cta", "shared::cluster",
    "bulk_group", _COMPLETION, "cta_group::1", "1d", "2d", "3d", "4d", "5d",
}  # fmt: skip


def _check(site: Site) -> None:
    for part in site.parts:
        if part == "multicast::cluster":
            raise site.unsupported(
                f"{site.opcode}: multicast is not emulated",
                hint="only clusters of one CTA are emulated",
            )
        if part not in _KNOWN and not is_hint(part):
            raise site.unsupported(f"{site.opcode}: modifier .{part} is not emulated")


def _lanes(
    group: Group, guard: Array | None, sources: tuple[Array, ...]
) -> Iterator[tuple[int, list[int]]]:
    """(lane, its operands) of those that execute the instruction."""
    at = taking_part(group, guard)
    columns = [group.spread(source)[at] for source in sources]
    for i, lane in enumerate(group.lanes[at].tolist()):
        yield lane, [int(column[i]) for column in columns]


def _spaces(site: Site) -> list[str]:
    return [p.split("::")[0] for p in site.parts if p.split("::")[0] in ("global", "shared")]


@instruction("cp.async.bulk")
def bulk(site: Site) -> Action:
    """cp.async.bulk.dst.src.completion [dst], [src], bytes{, [mbar]}."""
    if "tensor" in site.parts:
        return tensor(site)
    _check(site)
    site.takes(3, 6)
    spaces = _spaces(site)
    if len(spaces) != 2:
        raise site.unsupported(f"{site.opcode} names no source and destination space")
    into, out_of = spaces
    by_mbarrier = _COMPLETION in site.parts
    sources = [
        Source(site.memory(0), "b64"),
        Source(site.memory(1), "b64"),
        Source(site.operands[2], "b32"),
    ]
    if by_mbarrier:
        sources.append(Source(site.memory(3), "b64"))

    def run(batch: Batch, group: Group, guard: Array | None, *values: Array) -> tuple[Array, ...]:
        for lane, (target, origin, nbytes, *_) in _lanes(group, guard, values):
            if nbytes % 16:
                raise site.fail(
                    Misaligned,
                    f"bulk copy of {nbytes} bytes, which is no multiple of 16",
                    batch,
                    lane,
                )
            if nbytes:
                data = _side(site, batch, lane, out_of, origin, nbytes, write=False)
                _side(site, batch, lane, into, target, nbytes, write=True)[:] = data
        at = taking_part(group, guard)
        nbytes_each = group.spread(values[2])[at].astype(np.int64)
        _finish(site, batch, group, at, values[3:], nbytes_each)
        return ()

    return Action("copy", sources, [], run)


def _finish(
    site: Site, batch: Batch, group: Group, at: Array, mbar: tuple[Array, ...], nbytes: Array
) -> None:
    """After the copies of the lanes at these positions: complete their mbarriers, if any."""
    lanes = group.lanes[at]
    if mbar and lanes.size:
        engine_copies.complete(site, batch, lanes, group.spread(mbar[0])[at], nbytes)
    engine_copies.advance(batch, lanes)


def _side(
    site: Site, batch: Batch, lane: int, space: str, address: int, nbytes: int, write: bool
) -> Array:
    """The bytes at one end of a bulk copy, checked and counted."""
    if space == "shared":
        offset, data = engine_copies.shared_range(site, batch, lane, address, nbytes, 16)
        engine_copies.note(site, batch, lane, offset, nbytes, write)
        if write:
            batch.traffic.shared_written_bytes += nbytes
        else:
            batch.traffic.shared_read_bytes += nbytes
        return data
    if address % 16:
        raise site.fail(
            Misaligned,
            f"bulk copy at {batch.memory.describe(address)}, which is no multiple of 16",
            batch,
            lane,
        )
    flag = WRITTEN if write else READ
    index = engine_copies.global_range(site, batch, lane, address, nbytes, flag)
    engine_copies.touch(batch, index, address, nbytes, flag)
    return engine_copies.host_view(address, nbytes)


def tensor(site: Site) -> Action:
    """cp.async.bulk.tensor.Nd: [smem], [map, {c}], [mbar] or [map, {c}], [smem]."""
    site.takes(2, 5)
    _check(site)
    rank = next((int(p[0]) for p in site.parts if len(p) == 2 and p[1] == "d"), 0)
    loads = _spaces(site)[:1] == ["shared"]
    mapped, plain = (1, 0) if loads else (0, 1)
    operand = site.memory(mapped)
    coordinates: tuple[Operand, ...] = operand.coordinates or ()
    if len(coordinates) != rank:
        raise site.unsupported(f"{site.opcode} needs {rank} coordinates")
    bare = Memory(operand.base, operand.offset)
    sources = [Source(bare, "b64"), Source(site.memory(plain), "b64")]
    sources += [Source(c, "b32") for c in coordinates]
    if loads:
        sources.append(Source(site.memory(2), "b64"))
    move: Callable[..., None] = tiles.load_tile if loads else tiles.store_tile

    def run(batch: Batch, group: Group, guard: Array | None, *values: Array) -> tuple[Array, ...]:
        box_bytes = []
        for lane, (descriptor, smem, *rest) in _lanes(group, guard, values):
            tile = tiles.read_map(site, batch, lane, descriptor)
            if tile.rank != rank:
                raise site.fail(
                    TensorMapError,
                    f"{site.opcode} with a tensor map of rank {tile.rank}",
                    batch,
                    lane,
                )
            start = tuple(c - (1 << 32) if c >> 31 else c for c in rest[:rank])
            move(site, batch, lane, tile, start, smem)
            box_bytes.append(tile.box_bytes)
        at = taking_part(group, guard)
        mbar = values[2 + rank :] if loads else ()
        _finish(site, batch, group, at, mbar, np.array(box_bytes, np.int64))
        return ()

    return Action("copy", sources, [], run)


@instruction("cp.async.bulk.commit_group")
def commit_group(site: Site) -> Action:
    """Bulk copies are performed when issued; their groups need no record."""

    def run(batch: Batch, group: Group, guard: Array | None) -> tuple[Array, ...]:
        return ()

    return Action("copy", [], [], run)


@instruction("cp.async.bulk.wait_group")
def wait_group(site: Site) -> Action:
    """cp.async.bulk.wait_group{.read} N."""

    def run(batch: Batch, group: Group, guard: Array | None) -> tuple[Array, ...]:
        engine_copies.learn(batch, group.lanes[taking_part(group, guard)])
        return ()

    return Action("copy", [], [], run)


@instruction("cp.reduce")
def reduce(site: Site) -> Action:
    """cp.reduce.async.bulk."""
    raise site.unsupported(f"{site.opcode}: bulk reductions are not emulated")
