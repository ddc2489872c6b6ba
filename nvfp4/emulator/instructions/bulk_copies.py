"""cp.async.bulk and cp.async.bulk.tensor: copies by the copy engine. Also st.async, a store that
completes bytes at an mbarrier. Here the engine performs it, in the proxy of threads.
"""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import NamedTuple

import numpy as np

from nvfp4.emulator.errors import BarrierMisuse, Misaligned, TensorMapError
from nvfp4.emulator.instructions import action, copy_engine, global_access, shared_access, tiles
from nvfp4.emulator.instructions.access_shape import spaces_of
from nvfp4.emulator.instructions.copy_engine import BulkGroups
from nvfp4.emulator.ptx.syntax import Memory, Operand
from nvfp4.emulator.ptx.types import REGISTER_DTYPES, Array, register_class, type_bits
from nvfp4.emulator.state.batch import Execution
from nvfp4.emulator.state.memory import RANK_SHIFT, READ, WRITTEN, host_bytes
from nvfp4.records.base import Record

COMPLETION = "mbarrier::complete_tx::bytes"
_MULTICAST = "multicast::cluster"
_KNOWN = (
    f"tile global shared::cta shared::cluster bulk_group {COMPLETION} cta_group::1 cta_group::2 "
    f"{_MULTICAST} 1d 2d 3d 4d 5d hints"
)


class Way(NamedTuple):
    """Indices of a copy's parts among its values; None for a missing part.

    The parts are the address in shared memory that it writes, the mbarrier, and the mask of
    destination CTAs.
    """

    target: int
    mbar: int | None
    mask: int | None = None


@action.instruction("cp.async.bulk", operands="[] [] b32 _? _? _?", modifiers=_KNOWN)
def bulk(site: action.Site) -> action.Action:
    """cp.async.bulk.dst.src.completion [dst], [src], bytes{, [mbar]}."""
    spaces = spaces_of(site)
    if len(spaces) != 2:
        raise site.unsupported(f"{site.opcode} names no source and destination space")
    into, out_of = spaces
    by_mbarrier = COMPLETION in site.parts
    if by_mbarrier:
        site.sources.append(action.Source(site.memory(3), "b64"))
    if _MULTICAST in site.parts:
        site.sources.append(action.Source(site.operands[4], "b16"))
    way = Way(0, 3 if by_mbarrier else None, 4 if _MULTICAST in site.parts else None)

    def move(at: action.LaneSite, values: list[int]) -> int:
        target, origin, nbytes, *_ = values
        if nbytes % 16:
            at.fault(Misaligned, f"bulk copy of {nbytes} bytes, which is not a multiple of 16")
        if nbytes:
            data = _side(at, out_of, origin, nbytes, READ)
            place = _side(at, into, target, nbytes, WRITTEN)
            if into == "global" and at.batch.launch.races is not None:
                where = np.array([target], np.uint64), np.array([at.lane])
                global_access.write_bytes(at.batch, site, *where, data.reshape(1, -1).copy())
            else:
                place[:] = data
        return nbytes

    return site.action("copy", _Copies(site, move, way).run)


Move = Callable[[action.LaneSite, list[int]], int]
"""Performs one copy, given a lane's operands, and returns its bytes."""


class _Copies(Record):
    """Copies lane by lane."""

    site: action.Site
    move: Move
    way: Way

    def run(self, ex: Execution, *values: Array) -> None:
        """Copy for each lane."""
        batch, mbar = ex.batch, self.way.mbar
        lanes, where, nbytes = [], [], []
        for at, own in action.issuing_lanes(self.site, ex, values):
            for number, each in enumerate(_deliveries(at, own, self.way)):
                deliver = partial(self._deliver, at, each, number)
                if mbar is not None and batch.launch.order.shifts_copies:
                    copy_engine.postpone(at, each[mbar], deliver)
                else:
                    copy_engine.choose(batch, None if mbar is None else each[mbar], at.lane)
                    nbytes.append(deliver())
                    lanes.append(at.lane)
                    where.append(each[mbar or 0])
            if mbar is None:
                batch.kept(BulkGroups).add(at, partial(self.move, at, own))
        if mbar is not None and nbytes:
            addresses, count = np.array(where, np.uint64), np.array(nbytes, np.int64)
            copy_engine.complete(self.site, batch, np.array(lanes), addresses, count)
        copy_engine.advance(batch, ex.lanes())

    def _deliver(self, at: action.LaneSite, values: list[int], number: int) -> int:
        """Make one delivery of a copy. number: 0 for the first, which alone is counted, since the
        source is read once for all."""
        with copy_engine.uncounted(at.batch) if number else nullcontext():
            return self.move(at, values)


def _deliveries(at: action.LaneSite, values: list[int], way: Way) -> list[list[int]]:
    """Return the values of a lane's copy for each CTA that it goes to."""
    pairs = "cta_group::2" in at.site.parts
    if way.mask is None:
        if way.mbar is not None:
            # The mbarrier of a copy must be in the CTA to which its bytes go.
            ends = values[way.mbar], values[way.target]
            there, here = (each >> RANK_SHIFT & 0xFF for each in ends)
            if there != here and not (pairs and there ^ here == 1):
                at.fault(
                    BarrierMisuse,
                    f"the copy goes to the CTA with rank {here}, and its mbarrier is in the one "
                    f"with rank {there}",
                    hint="map both addresses to the same CTA",
                )
        return [values]
    assert way.mbar is not None
    found = []
    for rank in shared_access.ranks_in(at, values[way.mask]):
        mbar = values[way.mbar]
        home = rank & ~1 | mbar >> RANK_SHIFT & 1 if pairs else rank
        each = list(values)
        each[way.target] = copy_engine.with_rank(values[way.target], rank)
        each[way.mbar] = copy_engine.with_rank(mbar, home)
        found.append(each)
    return found


def _side(at: action.LaneSite, space: str, address: int, nbytes: int, flag: int) -> Array:
    """Return the bytes at one end of a bulk copy, checked and counted."""
    if space == "shared":
        abroad = flag == WRITTEN and copy_engine.goes_abroad(at.site)
        offset, data = copy_engine.shared_range(at, address, nbytes, 16, abroad)
        copy_engine.note(at, offset, nbytes, flag)
        if flag == READ and COMPLETION in at.site.parts:
            shared_access.send(at)
        return data
    if address % 16:
        place = at.batch.memory.describe(address)
        at.fault(Misaligned, f"bulk copy at {place}, which is not a multiple of 16")
    index = copy_engine.global_range(at, address, nbytes, flag)
    copy_engine.touch(at, index, address, nbytes, flag)
    where = np.array([address], np.uint64)
    global_access.check_order_of_launches(at.batch, at.site, where, nbytes, lambda _: at.lane, flag)
    if flag == READ:
        global_access.note_range_read(at.batch, at.site, where, nbytes, at.lane)
    return host_bytes(address, nbytes)


@action.instruction("cp.async.bulk.tensor", modifiers=_KNOWN)
def tensor(site: action.Site) -> action.Action:
    """cp.async.bulk.tensor.Nd: [smem], [map, {c}], [mbar] or [map, {c}], [smem]."""
    site.takes(2, 5)
    rank = next((int(p[0]) for p in site.parts if len(p) == 2 and p[1] == "d"), 0)
    loads = spaces_of(site)[:1] == ["shared"]
    mapped, plain = (1, 0) if loads else (0, 1)
    operand = site.memory(mapped)
    coordinates: tuple[Operand, ...] = operand.coordinates or ()
    if len(coordinates) != rank:
        raise site.unsupported(f"{site.opcode} needs {rank} coordinates")
    bare = Memory(operand.base, operand.offset)
    site.sources.extend(action.Source(each, "b64") for each in (bare, site.memory(plain)))
    site.sources.extend(action.Source(c, "b32") for c in coordinates)
    if loads:
        site.sources.append(action.Source(site.memory(2), "b64"))
    if _MULTICAST in site.parts:
        site.sources.append(action.Source(site.operands[3], "b16"))
    way = Way(1, 2 + rank if loads else None, 3 + rank if _MULTICAST in site.parts else None)
    transfer = tiles.load_tile if loads else tiles.store_tile

    def move(at: action.LaneSite, values: list[int]) -> int:
        descriptor, smem, *rest = values
        tile = tiles.read_map(at, descriptor)
        if tile.rank != rank:
            at.fault(TensorMapError, f"{site.opcode} with a tensor map of rank {tile.rank}")
        start = tuple(c - (1 << 32) if c >> 31 else c for c in rest[:rank])
        transfer(at, tile, start, smem)
        return tile.box_bytes

    def run(ex: Execution, *values: Array) -> None:
        positions = ex.positions()
        lanes = ex.group.lanes[positions]
        if loads and way.mask is None and lanes.size > 1:
            own = [ex.group.spread(each)[positions] for each in values]
            nbytes = tiles.load_together(site, ex.batch, lanes, own)
            if nbytes:
                copy_engine.complete(site, ex.batch, lanes, own[-1], np.full(lanes.size, nbytes))
                copy_engine.advance(ex.batch, lanes)
                return
        _Copies(site, move, way).run(ex, *values)

    return site.action("copy", run)


@action.instruction("cp.async.bulk.commit_group")
def commit_group(site: action.Site) -> action.Action:
    """Make a group of what the thread has issued since its last commit."""
    return site.action("copy", lambda ex: ex.batch.kept(BulkGroups).commit(ex.lanes()))


@action.instruction("cp.async.bulk.wait_group", operands="_")
def wait_group(site: action.Site) -> action.Action:
    """Wait until at most N groups are under way: cp.async.bulk.wait_group{.read} N."""
    groups = site.integer(0)
    return site.action("copy", lambda ex: ex.batch.kept(BulkGroups).wait(ex.lanes(), groups))


@action.instruction(
    "st.async", operands="[] _ []",
    modifiers=f"weak shared::cluster! {COMPLETION}! v2 v4 b32 u32 s32 b64 u64 s64 f32 f64",
)  # fmt: skip
def st_async(site: action.Site) -> action.Action:
    """st.async{.weak}.shared::cluster.mbarrier::complete_tx::bytes{.v2,.v4}.type [a], b, [mbar]."""
    items = site.items(1)
    cls = register_class(type_bits(site.type()) // 8)
    dtype = REGISTER_DTYPES[cls]
    nbytes = len(items) * dtype.itemsize
    way = Way(0, 1 + len(items))

    def move(at: action.LaneSite, values: list[int]) -> int:
        offset, place = copy_engine.shared_range(at, values[0], nbytes, nbytes, abroad=True)
        copy_engine.note(at, offset, nbytes, WRITTEN, by_threads=True)
        place[:] = np.array(values[1 : 1 + len(items)], dtype).view(np.uint8)
        return nbytes

    mbar = site.sources.pop()
    site.sources.extend([*(action.Source(item, cls) for item in items), mbar])
    return site.action("store", _Copies(site, move, way).run)
