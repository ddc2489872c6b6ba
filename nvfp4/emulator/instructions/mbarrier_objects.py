"""mbarrier objects: 64 bits of shared memory in a format of our own.

bits 0-19 arrivals still pending, 20-39 arrivals of a phase, 40-61 bytes still to come (biased by
2^20), 62 set in every live object, 63 parity of the phase that is under way. A phase completes
when no arrival and no byte is pending.
"""

import numpy as np

from nvfp4.emulator.arrays import Array, begin_of_runs, distinct
from nvfp4.emulator.errors import BarrierMisuse, Misaligned, NoArrivals, OutOfBounds, SharedRace
from nvfp4.emulator.instructions import shared_access
from nvfp4.emulator.instructions.action import LaneSite, Site
from nvfp4.emulator.loops import loop
from nvfp4.emulator.state.batch import COPIES, Batch
from nvfp4.emulator.state.memory import in_window
from nvfp4.emulator.state.native import load, store
from nvfp4.emulator.state.tensor_pipe import TensorPipe

MOST = (1 << 20) - 1
LIVE = np.uint64(1 << 62)
_COUNTS = f"the count is 1 to {MOST}"
_NO_FAULT, _NOT_LIVE, _TOO_MANY, _TX_RANGE = 0, 1, 2, 3


@loop
def _change(address, arrivals, expect, drop, before):  # type: ignore[no-untyped-def]
    """For each lane, add the bytes to expect (negative: bytes came), then count its arrivals.

    drop: also lower the arrivals of later phases. before: receives the states from before. Returns
    (lane, fault) of the first fault.
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


def locate(
    site: Site, batch: Batch, address: Array, lanes: Array, abroad: bool = False,
    engine: bool = False,
) -> Array:  # fmt: skip
    """Return the offsets of mbarriers in the batch's shared memory; count accesses whose lanes meet
    in a bank.

    abroad: whether the instruction accepts those of other CTAs of the cluster. engine: whether the
    copy engine uses them.
    """
    address = in_window(address)
    spent = np.zeros(batch.grid.ctas, np.int64)
    offset, visited = batch.shared.visit(address, lanes, 8, 8, abroad, spent)
    bad, requests, passes, least_passes = visited
    if bad >= 0:
        at = site.lane(batch, lanes[bad])
        place = shared_access.check_rank(at, "mbarrier", int(address[bad]), abroad)
        kind = Misaligned if place % 8 else OutOfBounds
        at.fault(
            kind,
            f"mbarrier at shared address {place:#x}: "
            + ("it must be a multiple of 8" if kind is Misaligned else "outside shared memory"),
        )
    if passes > least_passes and not engine:
        work, start = batch.launch.work, site.instruction.start
        work.asked[start].shared_requests += requests
        work.asked[start].passes += passes
        work.spend(start, spent)
    if abroad:
        shared_access.visit(batch, site, offset, lanes, engine)
    return offset


def initialise(site: Site, batch: Batch, offset: Array, lanes: Array, count: Array) -> None:
    """mbarrier.init. A count of 0, which the manual forbids, works on a B200: then bytes alone
    complete a phase."""
    count = count.astype(np.uint64)
    wrong = np.flatnonzero((count < 1) | (count > MOST))
    if wrong.size:
        number, at = int(count[wrong].max()), site.lane(batch, lanes[wrong[count[wrong].argmax()]])
        what = f"an mbarrier cannot expect {number} arrivals"
        if number:
            at.fault(BarrierMisuse, what, _COUNTS)
        at.note(NoArrivals, what, _COUNTS)
    bias = np.uint64(1 << 60)
    live = batch.kept(_Inits).live
    again = np.flatnonzero(live[_word(offset)])
    if again.size:
        where = batch.shared.address(int(offset[again[0]]))
        site.lane(batch, lanes[again[0]]).note(
            BarrierMisuse,
            f"the mbarrier at shared address {where:#x} is initialised again, and no "
            "mbarrier.inval has ended it before",
            hint="put mbarrier.inval behind its last use, before its memory is used for anything "
            "else, even another mbarrier",
            count=again.size,
        )
    live[_word(offset)] = True
    batch.kept(_Inits).note(offset, lanes)
    batch.shared.words()[_word(offset)] = count | (count << np.uint64(20)) | bias | LIVE


def invalidate(batch: Batch, offset: Array) -> None:
    """Do mbarrier.inval: the bytes are plain memory again."""
    batch.kept(_Inits).live[_word(offset)] = False
    batch.shared.words()[_word(offset)] = 0


def change(
    site: Site, batch: Batch, offset: Array, lanes: Array, arrivals: Array, expect: Array,
    drop: bool = False
) -> Array:  # fmt: skip
    """Count arrivals and expected bytes at mbarriers (negative: bytes that came), and return their
    states from before."""
    _check_live(site, batch, offset, lanes)
    _check_seen(site, batch, offset, lanes)
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
    if batch.launch.work.samples:
        chain = batch.chained[COPIES, lanes >> 5] + site.opcode.startswith("cp.")
        np.maximum.at(batch.kept(_Chains).rows[COPIES], _word(offset), chain)
    if batch.shared.checked:
        word = _word(offset)
        ended = (batch.shared.words()[word] ^ before) >> np.uint64(63) != 0
        if ended.any():
            heard = batch.kept(_Heard)
            rows = heard.rows(word[ended])
            heard.of_ended[rows] = heard.clocks[rows]
    return before


class _Chains:
    """For each mbarrier, the longest chains that an arrival has told of, in the rows of
    `Batch.chained`: of instructions and loads where threads arrived, and of copies."""

    def __init__(self, batch: Batch) -> None:
        self.rows = np.zeros((len(batch.chained), batch.shared.words().size), np.int64)


def precede(batch: Batch, offset: Array, lanes: Array) -> None:
    """Let what waits at mbarriers follow what these lanes, which arrive there, have executed."""
    if batch.launch.work.samples:
        told_of = batch.kept(_Chains).rows[:COPIES]
        for told, chain in zip(told_of, batch.chained[:COPIES], strict=True):
            np.maximum.at(told, _word(offset), chain[lanes >> 5])


def follow(batch: Batch, offset: Array, lanes: Array) -> None:
    """Let what these lanes do next follow what they have waited for at mbarriers."""
    if batch.launch.work.samples:
        for told, chain in zip(batch.kept(_Chains).rows, batch.chained, strict=True):
            np.maximum.at(chain, lanes >> 5, told[_word(offset)])


def phases(site: Site, batch: Batch, offset: Array, lanes: Array) -> Array:
    """Parity of the phase under way, 0 or 1."""
    _check_live(site, batch, offset, lanes)
    return batch.shared.words()[_word(offset)] >> np.uint64(63)


def state_of(batch: Batch, offset: int) -> tuple[int, int, int]:
    """The arrivals that a phase of the mbarrier at an offset expects, arrivals still pending, and
    bytes still to come."""
    word = int(batch.shared.words()[offset >> 3])
    field = (1 << 20) - 1
    nbytes = (word >> 40 & ((1 << 22) - 1)) - (1 << 20)
    return word >> 20 & field, word & field, nbytes


def parity_of(batch: Batch, offset: int) -> int:
    """The parity of the phase under way of the mbarrier at an offset."""
    return int(batch.shared.words()[offset >> 3]) >> 63


def _check_live(site: Site, batch: Batch, offset: Array, lanes: Array) -> None:
    dead = np.flatnonzero(~batch.kept(_Inits).live[_word(offset)])
    if dead.size:
        site.lane(batch, lanes[dead[0]]).fault(
            BarrierMisuse,
            f"mbarrier at shared address {batch.shared.address(offset[dead[0]]):#x} was never "
            "initialised",
            hint="mbarrier.init it, then let a barrier pass before others use it",
        )


class _Inits:
    """The mbarriers that were initialised, and by whom, for CTAs that use those of another CTA.

    live: whether each 8-byte word of shared memory is an mbarrier; memory that nothing has written
    may look like one. thread, clock: for each word, as in a stamp of `races`. fenced: how many
    phases the cluster's barrier had completed at the fence.mbarrier_init that followed, or -1.
    """

    def __init__(self, batch: Batch) -> None:
        words = batch.shared.data.size // 8 if batch.cluster_size > 1 else 0
        self.batch = batch
        self.live = np.zeros(batch.shared.data.size // 8, np.bool_)
        self.thread = np.zeros(words, np.int64)
        self.clock = np.zeros(words, np.int32)
        self.fenced = np.full(words, -1, np.int64)

    def note(self, offset: Array, lanes: Array) -> None:
        """Record that these lanes initialise mbarriers."""
        if not self.thread.size:
            return
        word, thread = _word(offset), self.batch.clusters.thread[lanes]
        known = self.batch.shared.clocks.known
        self.thread[word] = thread
        self.clock[word] = known[self.batch.clusters.cta[lanes], thread >> 5, thread >> 5]
        self.fenced[word] = -1

    def fence(self, lanes: Array) -> None:
        """Record that these lanes execute fence.mbarrier_init."""
        if not self.thread.size:
            return
        grid, size = self.batch.clusters, self.thread.size // self.batch.clusters.ctas
        phases = self.batch.cluster_barrier.phases
        for cluster in distinct(grid.cta[lanes]).tolist():
            words = slice(cluster * size, (cluster + 1) * size)
            own = grid.thread[lanes[grid.cta[lanes] == cluster]]
            fenced = (self.clock[words] > 0) & np.isin(self.thread[words], own)
            self.fenced[words][fenced & (self.fenced[words] < 0)] = phases[cluster]

    def unseen(self, offset: Array, lanes: Array) -> Array:
        """Which of these lanes may not have seen yet that their mbarriers are initialised: bool."""
        word, grid = _word(offset), self.batch.clusters
        cluster, warp = grid.cta[lanes], grid.thread[lanes] >> 5
        known = self.batch.shared.clocks.known[cluster, warp, self.thread[word] >> 5]
        since = self.batch.cluster_barrier.seen(lanes) > self.fenced[word]
        told = (self.fenced[word] >= 0) & since
        return (known < self.clock[word]) & ~told & (self.thread[word] >> 5 != warp)


def fence_inits(batch: Batch, lanes: Array) -> None:
    """Record fence.mbarrier_init of these lanes.

    The cluster's next barrier then announces their mbarriers, even if its arrivals are relaxed.
    """
    batch.kept(_Inits).fence(lanes)


def _check_seen(site: Site, batch: Batch, offset: Array, lanes: Array) -> None:
    """Note a use of another CTA's mbarrier whose initialisation the lane need not have seen."""
    if batch.cluster_size == 1 or not batch.shared.checked:
        return
    foreign = offset.astype(np.int64) // batch.shared.stride != batch.grid.cta[lanes]
    if not foreign.any():
        return
    offset, lanes = offset[foreign], lanes[foreign]
    unseen = np.flatnonzero(batch.kept(_Inits).unseen(offset, lanes))
    if unseen.size:
        where, at = int(offset[unseen[0]]), site.lane(batch, lanes[unseen[0]])
        whose = shared_access.owner(at, where)
        at.note(
            SharedRace,
            f"the mbarrier at shared address {batch.shared.address(where):#x}"
            f"{whose} is used, and nothing orders that after its initialisation",
            "put fence.mbarrier_init and a barrier of the cluster behind mbarrier.init",
            unseen.size,
        )


class _Heard:
    """Clocks known to the threads that arrived at each mbarrier: int32[mbarriers, clocks].

    of_ended: the clocks of threads that arrived in a phase that has completed.
    """

    def __init__(self, batch: Batch) -> None:
        self.clocks = np.zeros((1, batch.shared.clocks.known.shape[2]), np.int32)
        self.of_ended = self.clocks
        self._rows = np.zeros(batch.shared.data.size // 8, np.int32)
        self._loads: list[Site] = []
        # Of each mbarrier's latest load, the instruction's place among them, and the lane.
        self._latest = np.zeros((2, self._rows.size), np.int64)

    def load(self, site: Site, offset: Array, lanes: Array) -> None:
        """Record that lanes have bytes loaded that complete at mbarriers."""
        if site not in self._loads:
            self._loads.append(site)
        self._latest[:, _word(offset)] = np.full(lanes.size, self._loads.index(site)), lanes

    def unwaited(self, batch: Batch) -> list[LaneSite]:
        """Return the loads that no thread of their cluster knows to be complete."""
        words, clocks, warps = np.flatnonzero(self._rows), batch.shared.clocks, batch.clusters.warps
        cluster = words * 8 // (batch.shared.stride * batch.cluster_size)
        engines = slice(warps, batch.first_pipe)
        known = np.maximum(clocks.known[:, :warps, engines], clocks.seen[:, :, engines]).max(axis=1)
        late = (self.clocks[self._rows[words], engines] > known[cluster]).any(axis=1)
        return [self._loads[i].lane(batch, at) for i, at in self._latest[:, words[late]].T.tolist()]

    def rows(self, word: Array) -> Array:
        """Return the mbarriers' places among the clocks."""
        new = distinct(word[self._rows[word] == 0])
        if new.size:
            self._rows[new] = np.arange(new.size) + len(self.clocks)
            more = np.zeros((new.size, self.clocks.shape[1]), np.int32)
            self.clocks = np.concatenate((self.clocks, more))
            self.of_ended = np.concatenate((self.of_ended, more))
        return self._rows[word]


def _word(offset: Array) -> Array:
    """Index of each mbarrier among the 8-byte words of shared memory."""
    return (offset >> np.uint64(3)).astype(np.int64)


def _warps(batch: Batch, offset: Array, lanes: Array) -> tuple[Array, Array, Array]:
    """Return distinct (object, cluster, warp) of some lanes, as three arrays."""
    word = _word(offset)
    warp = lanes >> 5
    first = begin_of_runs(warp) | begin_of_runs(word)
    word, warp = word[first], warp[first]
    return word, warp // batch.clusters.warps, warp % batch.clusters.warps


def release(batch: Batch, offset: Array, lanes: Array, relaxed: bool = False) -> None:
    """Record for the race check what the arriving threads did before. relaxed: only what a fence
    has ordered."""
    if batch.shared.checked and lanes.size:
        word, cluster, warp = _warps(batch, offset, lanes)
        known = batch.shared.clocks.known
        told = batch.shared.clocks.ordered if relaxed else known
        heard = batch.kept(_Heard)
        rows = heard.rows(word)  # which may make room for more clocks
        np.maximum.at(heard.clocks, rows, told[cluster, warp])
        known[cluster, warp, warp] += 1


def acquire(batch: Batch, offset: Array, lanes: Array, relaxed: bool = False) -> None:
    """Record that these threads saw a phase complete, and so know what came before it.

    relaxed: they know it from their next fence on.
    """
    if batch.shared.checked and lanes.size:
        word, cluster, warp = _warps(batch, offset, lanes)
        heard, pipes = batch.kept(_Heard), batch.held(TensorPipe)
        rows = heard.rows(word)  # which may make room for more clocks
        told = heard.of_ended[rows]
        if relaxed and pipes is not None:
            pipes.relax(cluster, warp, told)
        known = batch.shared.clocks.seen if relaxed else batch.shared.clocks.known
        np.maximum.at(known, (cluster, warp), told)


def engine_done(site: Site, batch: Batch, offset: Array, lanes: Array) -> None:
    """Record that the copy engines of these lanes' CTAs completed bytes at mbarriers."""
    if batch.shared.checked:
        batch.kept(_Heard).load(site, offset, lanes)
        engine = batch.engine_warps(lanes)
        clock = batch.shared.clocks.known[batch.clusters.cta[lanes], engine, engine]
        tell(batch, offset, engine, clock)


def unwaited_loads(batch: Batch) -> list[LaneSite]:
    """Return the bulk copies to shared memory that may still be under way when all CTAs of a batch
    have ended: the latest of each mbarrier."""
    heard = batch.held(_Heard)
    return heard.unwaited(batch) if heard is not None else []


def tell(batch: Batch, offset: Array, warp: Array, clock: Array) -> None:
    """Record that mbarriers hear from these warps of their clusters, at these clocks."""
    heard = batch.kept(_Heard)
    rows = heard.rows(_word(offset))  # which may make room for more clocks
    np.maximum.at(heard.clocks, (rows, warp), clock)
