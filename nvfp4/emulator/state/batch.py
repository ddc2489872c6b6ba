"""Everything that the CTAs of one batch share while they run: shared memory, barriers, and what
instructions tell the scheduler."""

import math
import mmap
import time
from collections import deque
from dataclasses import field
from typing import Any, NamedTuple, TypeVar

import numpy as np

from nvfp4.emulator.errors import EmulatorError, LaunchError, Related
from nvfp4.emulator.ptx.flow import Apart
from nvfp4.emulator.ptx.syntax import RESERVED_FOR_GROUPS, SHARED_BASE, Program
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.report import Findings, Traffic
from nvfp4.emulator.state.barriers import ClusterBarrier, CtaBarrier
from nvfp4.emulator.state.global_races import GlobalRaces
from nvfp4.emulator.state.group import Grid, Group
from nvfp4.emulator.state.memory import RANK_SHIFT, GlobalMemory
from nvfp4.emulator.state.native import Visited, locate_window, visit_shared
from nvfp4.emulator.state.order import Order
from nvfp4.emulator.state.races import CELLS_OF_CHUNK, ENGINES, WRITTEN_BEFORE, Clocks
from nvfp4.emulator.state.tally import Tally
from nvfp4.emulator.state.under_way import Hazards
from nvfp4.emulator.state.witness import Witness
from nvfp4.emulator.work import WorkCounter
from nvfp4.records.base import Record
from nvfp4.records.launch import Dim3, Launch

MULTIPROCESSORS, WARPS_OF_A_MULTIPROCESSOR = 148, 64
"""SMs of a B200. %smid assigns CTAs to them in pairs; how a device does so is undocumented."""

_MOST_PRINTED = 1 << 14
"""Most texts of a kernel to keep, the last ones, as in the 1 MiB buffer of a device."""


class ClusterQueue:
    """The clusters of a launch that have not started: they do in batches, unless they are
    cancelled.

    clusters: the linear CTA numbers of each cluster, int64[clusters, CTAs], in the order in
    which they start."""

    def __init__(self, clusters: Array) -> None:
        self._clusters = clusters
        self._at = 0

    def __len__(self) -> int:
        return len(self._clusters) - self._at

    def start(self, ctas: int) -> Array:
        """Return the CTAs of the next clusters, `ctas` in all, or fewer at the end."""
        begun = self._clusters[self._at : self._at + max(1, ctas // self._clusters.shape[1])]
        self._at += len(begun)
        return begun.reshape(-1)

    def cancel(self) -> int | None:
        """Cancel the next cluster and return the number of its first CTA; None if there is none."""
        if not len(self):
            return None
        self._at += 1
        return int(self._clusters[self._at - 1].min())


NONE_WAITS = ClusterQueue(np.zeros((0, 1), np.int64))


COPIES = 2
"""The row of copies in `Batch.chained`."""


class Origin(NamedTuple):
    """The origin of undefined bits: the kind of finding, the place in words, a hint unless it is
    the kind's default, and related places."""

    kind: type[EmulatorError]
    place: str
    hint: str | None = None
    related: tuple[Related, ...] = ()


class LaunchState(Record, frozen=False):
    """A launch while it runs."""

    asked: Launch
    program: Program
    """The kernel."""
    cluster: Dim3
    """CTAs of a cluster along x, y and z."""
    parameters: Array
    """Bytes of the kernel's parameters, at a host address inside one of the buffers."""
    symbols: dict[str, int]
    """Host addresses of the module's variables."""
    shared_base: int
    shared_bytes: int
    """Static and dynamic shared memory, and the first KiB, which is the system's."""
    memory: GlobalMemory
    check: bool
    """Whether to look for findings."""
    hazards: Hazards
    """Writes of earlier launches that may still be under way."""
    apart: Apart
    races: GlobalRaces | None = None
    """None unless the launch is checked."""
    rounds: bool = False
    """Whether results of floating-point atomics depend on the order, if only by rounding."""
    tracks_memory: bool = False
    """Whether to record which bits of shared and local memory are undefined."""
    order: Order = field(default_factory=Order)
    undefined_memory: dict[int, Origin] = field(default_factory=dict)
    """By PTX line, the loads that read undefined bits, shuffles from absent lanes, and, if memory
    is not tracked, stores of undefined bits."""
    undefined_results: set[int] = field(default_factory=set)
    """Indices of the instructions that have passed on undefined bits."""
    undefined_stores: dict[str, int] = field(default_factory=dict)
    """By state space, the PTX line of the first store of undefined bits."""
    findings: Findings = field(default_factory=Findings)
    traffic: Traffic = field(default_factory=Traffic)
    output: deque[str] = field(default_factory=lambda: deque(maxlen=_MOST_PRINTED))
    """The last texts that the kernel printed."""
    fault: EmulatorError | None = None
    """The error that stopped the launch."""
    fenced_maps: set[int] = field(default_factory=set)
    """Addresses of tensor maps in global memory with an acquiring fence since their last change by
    `tensormap`."""
    witness: Witness | None = None
    """Observer of a race under investigation."""
    began: float = field(default_factory=time.monotonic)
    """When the launch started, on the monotonic clock."""
    cpu_began: float = field(default_factory=time.process_time)
    """When the launch started, on the CPU clock of the process."""
    tally: Tally | None = None
    """Counts by instruction, if requested."""
    work: WorkCounter = field(default_factory=WorkCounter)
    """Counts what each warp executes."""
    not_started: ClusterQueue = NONE_WAITS
    """The clusters that have not started yet."""
    lent: dict[str, Array] = field(default_factory=dict)
    """Memory that one batch after another uses; see `lend`."""

    def lend(self, name: str, shape: tuple[int, ...], dtype: Any) -> Array:
        """Return an array of this shape, or of that for the first batch, which is the largest. It
        holds what the batch before has left there, so that the system clears pages once. Pages are
        small, as most of the memory may never be touched."""
        if name not in self.lent:
            size = max(1, math.prod(shape) * np.dtype(dtype).itemsize)
            memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            self.lent[name] = np.ndarray(shape, dtype, memory)
        return self.lent[name]

    def whole_address(self, space: str, address: Array) -> Array:
        """Return the host addresses of parameters or constants. A compiler may keep only 32 bits of
        an address in these small state spaces; the upper bits are those of the variables there."""
        if address.size == 0 or address.min() >> np.uint64(32):
            return address
        mine = self.parameters.ctypes.data
        others = [each for each in self.symbols.values() if each != mine]
        first = np.uint64(mine if space == "param" else min(others, default=mine))
        whole = first + ((address - first) & np.uint64(0xFFFFFFFF))
        return np.where(address >> np.uint64(32), address, whole)


MOST_CTAS_OF_A_CLUSTER = 16
"""The most CTAs of a cluster; more than 8 need host code that allows non-portable sizes."""


def check_cluster(kernel: str, grid: Dim3, cluster: Dim3, required: Dim3 | None) -> None:
    """Check that a device accepts this grid of clusters. Raises LaunchError if it does not.

    required: the cluster size that the kernel declares, if any.
    """
    if required is not None and cluster != required:
        raise LaunchError(f"{kernel} requires clusters of {required} CTAs, not {cluster}")
    size = math.prod(cluster)
    if min(cluster) < 1 or size > MOST_CTAS_OF_A_CLUSTER:
        raise LaunchError(
            f"a cluster of {cluster} has {size} CTAs",
            hint="8 CTAs at most, or 16 where cudaFuncAttributeNonPortableClusterSizeAllowed is "
            "set",
        )
    if any(extent % by for extent, by in zip(grid, cluster, strict=True)):
        message = f"a grid of {grid} CTAs cannot be divided into clusters of {cluster}"
        hint = "a grid counts CTAs: each of its extents is a multiple of the cluster's"
        raise LaunchError(message, hint=hint)


def check_shape(grid: Dim3, block: Dim3, shared_bytes: int) -> None:
    """Check the limits of devices of compute capability 9 and 10. Raises LaunchError."""
    x, y, z = block
    if min(*grid, *block) < 1:
        raise LaunchError(f"grid {grid} and block {block} must be positive")
    if x * y * z > 1024 or z > 64:
        message = f"block {block} has {x * y * z} threads"
        raise LaunchError(message, hint="a block has at most 1024 threads")
    if grid[0] >= 1 << 31 or grid[1] > 65535 or grid[2] > 65535:
        raise LaunchError(f"grid {grid} is larger than (2147483647, 65535, 65535)")
    if not 0 <= shared_bytes <= 228 * 1024:
        message = f"the kernel wants {shared_bytes} bytes of shared memory"
        raise LaunchError(message, hint="a CTA has at most 227 KiB and the system's first KiB")


# The registers that tell the time, with their register classes.
CLOCK_REGISTERS = {
    "clock": "b32", "clock_hi": "b32", "clock64": "b64",
    "globaltimer": "b64", "globaltimer_lo": "b32", "globaltimer_hi": "b32",
}  # fmt: skip
_TICK = 16


class Signals(Record, frozen=False):
    """A record that instructions write and the scheduler reads after every basic block."""

    released: list[tuple[Array, int]] = field(default_factory=list)
    """Lanes that may run again, and the block where they go on."""
    arrived: list[Array] = field(default_factory=list)
    """Warps that have arrived at barriers and go on."""
    met: list[tuple[Array, Array, Array, Array]] = field(default_factory=list)
    """Barriers that have opened: numbers of warps in the batch, int64[barriers, warps], and which
    of them have arrived, waited, and gone on in between."""
    changed: bool = False
    """Whether something has changed that threads may wait for at a gate."""
    atomics: int = 0
    """Atomic instructions that have run."""
    ticks: int = 0
    """Basic blocks run so far, and reads of a clock."""
    epoch: int = 0
    """The time at which clocks begin."""
    timed: bool = False
    """Whether a clock was read."""

    def release(self, lanes: Array, block: int) -> None:
        """Let these lanes continue at a block."""
        self.released.append((lanes, block))
        self.changed = True

    def clock(self, name: str) -> Array:
        """A clock register. A tick takes 16 cycles, or 16 ns."""
        self.ticks += 1
        self.timed = True
        now = self.epoch + self.ticks * _TICK
        if CLOCK_REGISTERS[name] == "b64":
            return np.array([now], np.uint64)
        return np.array([(now >> 32 if name.endswith("_hi") else now) & 0xFFFFFFFF], np.uint32)


class RowMemory:
    """Memory of which each CTA, or each thread, has a row of its own.

    base: the address of a row's first byte. size: of a row, in bytes. stride: bytes from one row to
    the next. data: all rows. undefined: the bits of `data` that are undefined, if that is tracked.
    """

    def __init__(self, base: int, size: int, stride: int, data: Array, tracked: bool) -> None:
        self.base, self.size, self.stride, self.data = base, size, stride, data
        self.host_address = data.ctypes.data
        self.undefined = np.full(data.size, 255, np.uint8) if tracked else None

    def locate(self, address: Array, row: Array, nbytes: int, align: int = 1) -> tuple[Array, int]:
        """Return the offsets in `data` of these addresses of rows, and the first position of an
        access of `nbytes` that is out of bounds or misaligned, or -1. From that position on all
        offsets are 0."""
        offset = np.zeros(address.size, np.uint64)
        bad = locate_window(address, row, self.base, self.size, self.stride, nbytes, align, offset)
        return offset, bad

    def host(self, offset: Array) -> Array:
        """Host addresses of bytes of `data`."""
        return offset + np.uint64(self.host_address)

    def address(self, offset: int) -> int:
        """Return the address, in its row, of a byte of `data`."""
        return int(offset) % self.stride + self.base


class SharedMemory(RowMemory):
    """A row for each CTA, and its shadow when races are looked for.

    stamps: see races.py.
    """

    def __init__(self, ctas: int, launch: LaunchState, warps: int) -> None:
        self.cluster_size = math.prod(launch.cluster)
        base = launch.shared_base
        size = max(0, launch.shared_bytes - base)
        stride = -(-size // 128) * 128 + 128
        # Rows start at multiples of 128, so that an offset is aligned as its address is.
        block = launch.lend("shared", (ctas * stride + 128,), np.uint8)
        skip = -block.ctypes.data % 128
        data = block[skip : skip + ctas * stride]
        data[:] = launch.order.bytes(data.size)
        super().__init__(base, size, stride, data, launch.tracks_memory)
        self.checked = launch.check
        self.clocks = Clocks(ctas // self.cluster_size, self.cluster_size, warps)
        self._threads = 32 * warps
        chunks = data.size // 16 if self.checked else 0
        self.stamps = launch.lend("stamps", (3, chunks * CELLS_OF_CHUNK), np.int64)
        self.stamps[:, :chunks] = 0
        for row in range(0, ctas * stride if base < SHARED_BASE else 0, stride):
            systems = slice(row, row + SHARED_BASE - base)
            if self.checked:
                self.stamps[0, systems.start // 16 : systems.stop // 16] = WRITTEN_BEFORE
            if self.undefined is not None:
                self.undefined[systems] = 0

    def visit(
        self, address: Array, lanes: Array, nbytes: int, align: int, abroad: bool,
        spent: Array | None = None,
    ) -> tuple[Array, Visited]:  # fmt: skip
        """Return the offsets in `data` of the lanes' shared addresses, and the counts of
        `visit_shared`.

        address: one for each lane, or those of one CTA's lanes if all CTAs use the same. abroad:
        whether the instruction can access shared memory of other CTAs in the cluster. spent: see
        `visit_shared`, of one CTA if the address is.
        """
        offset = np.empty(address.size, np.uint64)
        if spent is None:
            spent = np.zeros(self.data.size // self.stride, np.int64)
        visited = Visited(*visit_shared(
            address, lanes, self._threads, self.cluster_size, abroad, self.base, self.size,
            self.stride, nbytes, align, offset, spent
        ))  # fmt: skip
        if address.size < lanes.size:
            ctas = lanes.size // address.size
            rows = np.arange(0, ctas * self.stride, self.stride, dtype=np.uint64)
            offset = (rows[:, None] + offset).reshape(-1)
            visited = Visited(visited.bad, *(ctas * count for count in visited[1:]))
        return offset, visited

    def row_of(self, offset: int) -> int:
        """Return the CTA of the batch that owns a byte of `data`."""
        return int(offset) // self.stride

    def words(self) -> Array:
        """Return a view of `data` as 64-bit words, uint64[nbytes / 8]."""
        return self.data.view(np.uint64)


T = TypeVar("T")


class Batch:
    """CTAs that run together.

    numbers: their linear CTA numbers, int64[CTAs]; CTAs of a cluster are adjacent, in the order of
    their ranks. clusters: the batch's shape if each cluster counts as one large CTA; lanes have the
    same numbers in both. alive: bool[lanes], threads that have not exited. triggered: whether all
    CTAs have allowed the next launch to begin. engine_at_work: which of its CTA's engines does each
    of the copies at hand.
    """

    def __init__(self, launch: LaunchState, numbers: Array) -> None:
        x, y, z = launch.asked.block
        count = x * y * z
        self.launch = launch
        self.numbers = numbers
        self.grid = Grid(numbers.size, -(-count // 32) * 32)
        size = self.cluster_size = math.prod(launch.cluster)
        of_clusters = numbers.size // size, self.grid.threads * size
        self.clusters = Grid(*of_clusters) if size > 1 else self.grid
        self.thread_count = count
        self.alive = self.grid.thread < count
        self.triggered = False
        self.engine_at_work: Any = 0
        self.shared = SharedMemory(numbers.size, launch, self.grid.warps)
        local_bytes = launch.program.local_bytes
        stride = max(local_bytes, 1)
        held = launch.order.bytes(self.grid.lane.size * stride, salt=2)
        self.local = RowMemory(0, local_bytes, stride, held, launch.tracks_memory)
        self.traffic = launch.traffic
        self.memory = launch.memory
        self.signals = Signals(epoch=launch.asked.salt)
        self.chained = np.zeros((3, self.grid.ctas * self.grid.warps), np.int64)
        """How many instructions, loads and copies each warp has executed or waited for, one after
        the other, int64[3, warps]."""
        self.barriers: dict[int, CtaBarrier] = {}
        self.cluster_barrier = ClusterBarrier(self.clusters, self.shared.clocks)
        self._kept: dict[type, Any] = {}

    @property
    def shared_windows(self) -> Array:
        """Start of the shared memory of each CTA in the window of its cluster: uint64, (1,) or
        (CTAs, 1)."""
        if self.cluster_size == 1:
            return np.zeros(1, np.uint64)
        ranks = np.arange(self.grid.ctas, dtype=np.uint64) % np.uint64(self.cluster_size)
        return (ranks << np.uint64(RANK_SHIFT)).reshape(-1, 1)

    def cluster_numbers(self, rows: Array) -> Array:
        """Return a number for each of these clusters of the batch that is unique in the launch:
        that of its first CTA."""
        return self.numbers[rows * self.cluster_size]

    def cta_alive(self) -> Array:
        """Return whether any thread of each CTA is alive: bool[CTAs]."""
        return np.asarray(self.alive.reshape(self.grid.ctas, self.grid.threads).any(axis=1))

    def engine(self, lane: Any) -> Any:
        """Return the number, in its cluster, of the thread that stands for the copy engine of a
        lane's CTA that is at work, or of each of several."""
        return 32 * self.engine_warps(lane)

    def engine_warps(self, lanes: Any) -> Any:
        """Return the warps, in their clusters, that stand for the copy engines of the lanes' CTAs
        that are at work."""
        return self.first_engines(lanes) + self.engine_at_work

    def first_engines(self, lanes: Any) -> Any:
        """Return the same for the first of each CTA's engines."""
        return self.clusters.warps + ENGINES * (lanes // self.grid.threads % self.cluster_size)

    @property
    def first_pipe(self) -> int:
        """The first warp of a cluster that stands for a CTA's tensor pipe; engines come before."""
        return self.clusters.warps + ENGINES * self.cluster_size

    def by_cta(self, warps: Array, cycles: Array) -> Array:
        """Return the cycles of each CTA, int64[CTAs]. warps: of each request."""
        return np.bincount(warps // self.grid.warps, cycles, self.grid.ctas).astype(np.int64)

    def member(self, cluster: int, thread: int) -> tuple[int, int]:
        """Return the linear number of the CTA in the grid, and the thread in it, of a cluster's
        thread.

        cluster: its number of `cluster_numbers`. A copy engine is the thread after the CTA's last.
        """
        threads = self.grid.threads
        if thread >= self.clusters.threads:
            rank, thread = (thread - self.clusters.threads) // 32 // ENGINES, threads
        else:
            rank, thread = divmod(thread, threads)
        x, y, z = _unravel(rank, self.launch.cluster)
        columns, lines, _ = self.launch.asked.grid
        return cluster + x + columns * (y + lines * z), thread

    def coordinates(self, lane: int) -> tuple[Dim3, Dim3]:
        """Return CTA and thread (x, y, z) of a lane of the batch."""
        return self.place(int(self.numbers[lane // self.grid.threads]), lane % self.grid.threads)

    def place(self, cta: int, thread: int) -> tuple[Dim3, Dim3]:
        """CTA and thread (x, y, z) of linear numbers in the grid and in the block."""
        asked = self.launch.asked
        return _unravel(cta, asked.grid), _unravel(thread, asked.block)

    def kept(self, kind: type[T]) -> T:
        """Return the batch's one object of a class, made from the batch when first asked for.

        Families of instructions keep here what only they use.
        """
        found: T | None = self._kept.get(kind)
        if found is None:
            found = self._kept[kind] = kind(self)  # type: ignore[call-arg]
        return found

    def held(self, kind: type[T]) -> T | None:
        """Return the object of this kind if it exists already, else None."""
        return self._kept.get(kind)

    def barrier(self, number: int) -> CtaBarrier:
        """The barrier with a number, in all CTAs."""
        if number not in self.barriers:
            self.barriers[number] = CtaBarrier(f"barrier {number}", self.grid, self.thread_count)
        return self.barriers[number]

    def all_barriers(self) -> list[CtaBarrier | ClusterBarrier]:
        """The barriers of CTAs and of clusters."""
        return [*self.barriers.values(), self.cluster_barrier]

    def open_barrier(self, barrier: CtaBarrier | ClusterBarrier) -> None:
        """Open the barrier where it is complete: count the opening, order the warps, release the
        lanes."""
        opening = barrier.open(self.alive)
        if opening is None:
            return
        self.traffic.barriers += opening.ctas.size
        split = isinstance(barrier, ClusterBarrier)
        self.met(opening.ctas, opening.came, opening.stayed, ~opening.stayed | split)
        if isinstance(barrier, CtaBarrier) and self.shared.checked:
            self.shared.clocks.meet(opening.ctas, opening.came, opening.stayed)
        for waiting in opening.released:
            self.signals.release(waiting.lanes, waiting.block)

    def arrived(self, lanes: Array) -> None:
        """Record that the warps of these lanes have arrived at a barrier and go on."""
        if self.launch.work.samples:
            self.signals.arrived.append(lanes >> 5)

    def all_met(self) -> None:
        """Record that all warps of each CTA have met."""
        if self.launch.work.samples:
            everybody = np.ones((self.grid.ctas, self.grid.warps), np.bool_)
            self.met(np.arange(self.grid.ctas), everybody, everybody, ~everybody)

    def met(self, ctas: Array, came: Array, stayed: Array, went_on: Array) -> None:
        """Record that warps of these CTAs, or clusters, have met: those that have arrived, waited,
        and gone on in between, each bool[CTAs, warps]."""
        if self.launch.work.samples:
            warps = came.shape[1]
            numbers = ctas[:, None] * warps + np.arange(warps)
            self.signals.met.append((numbers, came, stayed, went_on))

    def exit(self, lanes: Array) -> None:
        """End these lanes. Barriers that expect all living threads may open."""
        self.alive[lanes] = False
        self.signals.changed = True
        for barrier in self.all_barriers():
            if barrier.arrived.any():
                self.open_barrier(barrier)


def ctas_by_cluster(grid: Dim3, cluster: Dim3) -> Array:
    """Return the linear CTA numbers of each cluster by rank: int64[clusters, CTAs]."""
    numbers = np.arange(math.prod(grid), dtype=np.int64)
    if cluster == (1, 1, 1):
        return numbers.reshape(-1, 1)
    (x, y, z), (a, b, c) = grid, cluster
    split = numbers.reshape(z // c, c, y // b, b, x // a, a)
    return split.transpose(0, 2, 4, 1, 3, 5).reshape(-1, a * b * c)


def _unravel(index: Any, extent: Dim3) -> tuple[Any, Any, Any]:
    x, y, _ = extent
    return index % x, index // x % y, index // (x * y)


class Execution(NamedTuple):
    """The batch, the group of threads, and the guard with which an instruction executes."""

    batch: Batch
    group: Group
    guard: Array | None
    """A predicate register of the group; None if all of its lanes take part."""

    def mask(self) -> Array:
        """Whether each lane of the group takes part: bool[lanes]."""
        if self.guard is None:
            return np.ones(self.group.lanes.size, np.bool_)
        return self.group.spread(self.guard)

    def positions(self) -> Array:
        """Positions in the group of the lanes that take part."""
        return np.flatnonzero(self.mask())

    def some_positions(self) -> Array | None:
        """Positions in the group of the lanes that take part; None if all lanes do."""
        if self.guard is None:
            return None
        mask = self.group.spread(self.guard)
        return None if mask.all() else np.flatnonzero(mask)

    def lanes(self) -> Array:
        """Numbers in the batch of the lanes that take part."""
        chosen = self.some_positions()
        return self.group.lanes if chosen is None else self.group.lanes[chosen]


def special_register(name: str, batch: Batch) -> Array | None:
    """Return a special register of a batch, as the smallest array that broadcasts to it; None if it
    is not emulated."""
    launch, grid, numbers = batch.launch, batch.grid, batch.numbers
    ctas, block = launch.asked.grid, launch.asked.block
    thread = np.arange(grid.threads)
    lane = thread & 31
    head, _, axis = name.partition(".")
    if axis:
        i = "xyz".find(axis)
        if i < 0:
            return None
        if head == "tid":
            return _row(_unravel(thread, block)[i].astype(np.uint32))
        by, place = launch.cluster[i], _unravel(numbers, ctas)[i]
        columns = {"ctaid": place, "clusterid": place // by, "cluster_ctaid": place % by}
        if head in columns:
            return _column(columns[head].astype(np.uint32))
        extents = {
            "ntid": block[i], "nctaid": ctas[i], "nclusterid": ctas[i] // by, "cluster_nctaid": by
        }  # fmt: skip
        return _one(extents[head]) if head in extents else None
    one = np.uint32(1)
    bit = one << lane.astype(np.uint32)
    rows: dict[str, Array] = {
        "laneid": lane,
        "lanemask_eq": bit,
        "lanemask_lt": bit - one,
        "lanemask_le": (bit - one) | bit,
        "lanemask_ge": ~(bit - one),
        "lanemask_gt": ~((bit - one) | bit),
    }
    if name in rows:
        return _row(rows[name].astype(np.uint32))
    constants = {
        "nwarpid": WARPS_OF_A_MULTIPROCESSOR, "nsmid": MULTIPROCESSORS,
        "cluster_nctarank": math.prod(launch.cluster),
        "dynamic_smem_size": launch.asked.shared_bytes, "aggr_smem_size": launch.shared_bytes,
        "total_smem_size": launch.shared_bytes - SHARED_BASE,
        "reserved_smem_offset_begin": 0, "reserved_smem_offset_end": SHARED_BASE,
        "reserved_smem_offset_cap": SHARED_BASE, "reserved_smem_offset_0": 64,
        "reserved_smem_offset_1": RESERVED_FOR_GROUPS,
    }  # fmt: skip
    if name in constants:
        return _one(constants[name])
    if name.startswith("envreg"):  # the driver sets them for cooperative launches
        return _one(0)
    if name == "cluster_ctarank":
        return _column((np.arange(numbers.size) % math.prod(launch.cluster)).astype(np.uint32))
    if name == "smid":
        place = numbers // 2 + launch.asked.salt
        return _column((place % MULTIPROCESSORS).astype(np.uint32))
    if name == "warpid":
        # A multiprocessor numbers the warps of all its CTAs.
        first = numbers // MULTIPROCESSORS % (WARPS_OF_A_MULTIPROCESSOR // grid.warps) * grid.warps
        return _row((first[:, None] + (thread >> 5)).astype(np.uint32), numbers.size, -1)
    if name == "gridid":
        return np.array([launch.asked.salt], np.uint64)
    if name == "is_explicit_cluster":
        return np.full(1, launch.cluster != (1, 1, 1) or launch.program.entry.cluster is not None)
    return None


def _row(values: Array, *shape: int) -> Array:
    return values.reshape(shape or (1, -1)) if (values != values[0]).any() else values[:1]


def _column(values: Array) -> Array:
    return _row(values, -1, 1)


def _one(value: int) -> Array:
    return np.array([value], np.uint32)
