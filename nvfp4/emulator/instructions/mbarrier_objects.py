"""mbarrier objects: 64 bits of shared memory in a format of our own.

bits 0-19 arrivals still pending, 20-39 arrivals of a phase, 40-61 bytes still to come (biased by
2^20), 62 set in every live object, 63 parity of the phase that is under way. A phase completes
when no arrival and no byte is pending.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nvfp4.emulator.errors import BarrierMisuse, Misaligned, OutOfBounds
from nvfp4.emulator.instructions.action import Site
from nvfp4.emulator.loops import loop
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.batch import Batch
from nvfp4.emulator.state.memory import in_window
from nvfp4.emulator.state.native import load, store

MOST = (1 << 20) - 1
LIVE = np.uint64(1 << 62)
_NO_FAULT, _NOT_LIVE, _TOO_MANY, _TX_RANGE = 0, 1, 2, 3


@loop
def _change(address, arrivals, expect, drop, before):  # type: ignore[no-untyped-def]
    """Per lane: expect bytes (negative: bytes came), then count arrivals; drop lowers the
    arrivals of later phases as well. before: the state found. Returns (lane, fault).
    """
    one = np.uint64(1)
    for i in range(address.shape[0]):
        state = load(address[i], np.uint64)
        before[i] = state
        if (state >> np.uint64(62)) & one == 0:
            return i, _NOT_LIVE
        pending = np.int64(state & np.uint64(0xFFFFF))
        whole = np.int64((state >> np.uint64(20)) & np.uint64(0xFFFFF))
        bytes_left = np.int64((state >> np.uint64(40)) & np.uint64(0x3FFFFF)) - 0x100000
        phase = np.int64(state >> np.uint64(63))
        bytes_left += expect[i]
        if bytes_left > 0xFFFFF or bytes_left < -0xFFFFF:
            return i, _TX_RANGE
        if arrivals[i] > pending:
            return i, _TOO_MANY
        pending -= arrivals[i]
        if drop:
            whole -= arrivals[i]
        if pending == 0 and bytes_left == 0:
            phase ^= 1
            pending = whole
        store(
            address[i],
            np.uint64(pending)
            | (np.uint64(whole) << np.uint64(20))
            | (np.uint64(bytes_left + 0x100000) << np.uint64(40))
            | (one << np.uint64(62))
            | (np.uint64(phase) << np.uint64(63)),
        )
    return -1, _NO_FAULT


def locate(site: Site, batch: Batch, address: Array, lanes: Array) -> Array:
    """Offsets of mbarriers in the batch's shared memory."""
    address = in_window(address)
    offset, bad = batch.shared.locate(address, batch.grid.cta[lanes], 8, 8)
    if bad >= 0:
        kind = Misaligned if int(address[bad]) % 8 else OutOfBounds
        site.lane(batch, lanes[bad]).fault(
            kind,
            f"mbarrier at shared address {int(address[bad]):#x}: "
            + ("it must be a multiple of 8" if kind is Misaligned else "outside shared memory"),
        )
    return offset


def initialise(site: Site, batch: Batch, offset: Array, lanes: Array, count: Array) -> None:
    """mbarrier.init with counts from 1 to 2^20 - 1."""
    count = count.astype(np.uint64)
    wrong = np.flatnonzero((count < 1) | (count > MOST))
    if wrong.size:
        site.lane(batch, lanes[wrong[0]]).fault(
            BarrierMisuse,
            f"an mbarrier cannot expect {int(count[wrong[0]])} arrivals",
            hint=f"the count is 1 to {MOST}",
        )
    bias = np.uint64(1 << 60)
    batch.kept(_Live).words[_word(offset)] = True
    batch.shared.words()[_word(offset)] = count | (count << np.uint64(20)) | bias | LIVE


def invalidate(batch: Batch, offset: Array) -> None:
    """mbarrier.inval: the bytes are plain memory again."""
    batch.kept(_Live).words[_word(offset)] = False
    batch.shared.words()[_word(offset)] = 0


def change(
    site: Site,
    batch: Batch,
    offset: Array,
    lanes: Array,
    arrivals: Array,
    expect: Array,
    drop: bool = False,
) -> Array:
    """Arrive, expect bytes (or, negative, complete them); returns the states from before."""
    _check_live(site, batch, offset, lanes)
    before = np.empty(offset.size, np.uint64)
    address = batch.shared.host(offset)
    bad, fault = _change(address, arrivals.astype(np.int64), expect.astype(np.int64), drop, before)
    if fault:
        place = f"mbarrier at shared address {batch.shared.address(offset[bad]):#x}"
        messages = {
            _NOT_LIVE: f"{place} was overwritten",
            _TOO_MANY: f"{place} gets more arrivals than this phase expects",
            _TX_RANGE: f"{place}: the bytes it waits for leave the range of 2^20 - 1",
        }
        site.lane(batch, lanes[bad]).fault(BarrierMisuse, messages[fault])
    batch.signals.changed = True
    if batch.shared.checked:
        word = _word(offset)
        ended = (batch.shared.words()[word] ^ before) >> np.uint64(63) != 0
        if ended.any():
            heard = batch.kept(_Heard)
            heard.of_ended[word[ended]] = heard.clocks[word[ended]]
    return before


def phases(site: Site, batch: Batch, offset: Array, lanes: Array) -> Array:
    """Parity of the phase under way, 0 or 1."""
    _check_live(site, batch, offset, lanes)
    parity: Array = batch.shared.words()[_word(offset)] >> np.uint64(63)
    return parity


@dataclass(frozen=True)
class State:
    """Of an mbarrier: arrivals that a phase expects and those still pending, bytes to come."""

    expected: int
    pending: int
    bytes: int
    parity: int


def state_of(batch: Batch, offset: int) -> State:
    """The state of the mbarrier at an offset."""
    word = int(batch.shared.words()[offset >> 3])
    field = (1 << 20) - 1
    return State(
        expected=word >> 20 & field,
        pending=word & field,
        bytes=(word >> 40 & ((1 << 22) - 1)) - (1 << 20),
        parity=word >> 63,
    )


class _Live:
    """Which words of shared memory are mbarriers: bool[words]. Memory that nothing has written may
    look like one."""

    def __init__(self, batch: Batch) -> None:
        self.words = np.zeros(batch.shared.data.size // 8, np.bool_)


def _check_live(site: Site, batch: Batch, offset: Array, lanes: Array) -> None:
    dead = np.flatnonzero(~batch.kept(_Live).words[_word(offset)])
    if dead.size:
        site.lane(batch, lanes[dead[0]]).fault(
            BarrierMisuse,
            f"mbarrier at shared address {batch.shared.address(offset[dead[0]]):#x} was never "
            "initialised",
            hint="mbarrier.init it, then let a barrier pass before others use it",
        )


class _Heard:
    """What the threads that arrived at each mbarrier knew: int32[words of shared, clocks].

    of_ended: those that arrived in a phase that has completed.
    """

    def __init__(self, batch: Batch) -> None:
        clocks = batch.shared.clocks.known.shape[2]
        self.clocks = np.zeros((batch.shared.data.size // 8, clocks), np.int32)
        self.of_ended = self.clocks.copy()


def _word(offset: Array) -> Array:
    """Index of each mbarrier among the 8-byte words of shared memory."""
    return (offset >> np.uint64(3)).astype(np.int64)


def _warps(batch: Batch, offset: Array, lanes: Array) -> tuple[Array, Array, Array]:
    """Distinct (object, CTA, warp) of some lanes, as three arrays."""
    word = _word(offset)
    warp = lanes >> 5
    first = np.ones(lanes.size, np.bool_)
    first[1:] = (warp[1:] != warp[:-1]) | (word[1:] != word[:-1])
    word, warp = word[first], warp[first]
    return word, warp // batch.grid.warps, warp % batch.grid.warps


def release(batch: Batch, offset: Array, lanes: Array) -> None:
    """Remember for the race check what the arriving threads did before."""
    if batch.shared.checked and lanes.size:
        word, cta, warp = _warps(batch, offset, lanes)
        known = batch.shared.clocks.known
        np.maximum.at(batch.kept(_Heard).clocks, word, known[cta, warp])
        known[cta, warp, warp] += 1


def acquire(batch: Batch, offset: Array, lanes: Array) -> None:
    """These threads saw a phase complete: what came before it is known to them."""
    if batch.shared.checked and lanes.size:
        word, cta, warp = _warps(batch, offset, lanes)
        known = batch.shared.clocks.known
        heard = batch.kept(_Heard).of_ended[word]
        rows = np.maximum(known[cta, warp], heard)
        np.maximum.at(known, (cta, warp), rows)


def engine_done(batch: Batch, offset: Array, cta: Array) -> None:
    """The copy engine completed bytes at mbarriers of these CTAs."""
    if batch.shared.checked:
        engine = batch.grid.warps
        word = _word(offset)
        clock = batch.shared.clocks.known[cta, engine, engine]
        heard = batch.kept(_Heard).clocks[:, engine]
        np.maximum.at(heard, word, clock)
