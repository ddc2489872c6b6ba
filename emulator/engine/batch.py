"""Everything that the CTAs of one batch share while they run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from nvfp4.capture.launch import Dim3
from nvfp4.emulator.engine.group import Grid, Group
from nvfp4.emulator.engine.memory import GlobalMemory
from nvfp4.emulator.engine.races import Clocks
from nvfp4.emulator.errors import LaunchError

if TYPE_CHECKING:
    from nvfp4.emulator.engine.schedule import Scheduler

Array = np.ndarray[Any, Any]


@dataclass
class Traffic:
    """Counts of a launch; bytes are what the lanes asked for, sectors have 32 bytes."""

    global_read_bytes: int = 0
    global_written_bytes: int = 0
    global_requests: int = 0
    sectors_requested: int = 0
    shared_read_bytes: int = 0
    shared_written_bytes: int = 0
    shared_requests: int = 0
    bank_conflicts: int = 0
    divergent_branches: int = 0
    atomics: int = 0
    barriers: int = 0


@dataclass
class LaunchState:
    """What all batches of a launch have in common.

    parameters: the kernel's parameter bytes, at a host address that the buffers include.
    symbols: host addresses of the module's variables. shared_bytes: static and dynamic, with the
    system's first KiB.
    """

    kernel: str
    grid: Dim3
    block: Dim3
    parameters: Array
    symbols: dict[str, int]
    shared_base: int
    shared_bytes: int
    dynamic_shared_bytes: int
    local_bytes: int
    memory: GlobalMemory
    check: bool
    traffic: Traffic = field(default_factory=Traffic)
    output: list[str] = field(default_factory=list)


class SharedMemory:
    """The shared memory of each CTA of a batch, one row a CTA, and its shadow when checked.

    stride: bytes of a row. writers, readers: stamps of races.py, one a byte.
    """

    def __init__(self, ctas: int, launch: LaunchState, warps: int):
        self.base = launch.shared_base
        self.size = max(0, launch.shared_bytes - launch.shared_base)
        self.stride = -(-self.size // 128) * 128 + 128
        # Rows start at multiples of 128, so that an offset is aligned as its address is.
        self.block = np.zeros(ctas * self.stride + 128, np.uint8)
        skip = -self.block.ctypes.data % 128
        self.data = self.block[skip : skip + ctas * self.stride]
        self.address = self.data.ctypes.data
        self.checked = launch.check
        self.clocks = Clocks(ctas, warps)
        cells = self.data.size if self.checked else 0
        self.writers = np.zeros(cells, np.int64)
        self.readers = np.zeros((2, cells), np.int64)


class Batch:
    """CTAs `first` and up, those in `numbers` (linear CTA numbers), running together."""

    def __init__(self, launch: LaunchState, numbers: Array, scheduler: Scheduler):
        x, y, z = launch.block
        count = x * y * z
        self.launch = launch
        self.numbers = numbers
        self.scheduler = scheduler
        self.grid = Grid(numbers.size, -(-count // 32) * 32)
        self.thread_count = count
        self.alive = self.grid.thread < count
        self.shared = SharedMemory(numbers.size, launch, self.grid.warps)
        self.local = np.zeros((self.grid.lane.size, max(launch.local_bytes, 1)), np.uint8)
        self.traffic = launch.traffic
        self.memory = launch.memory
        self._special: dict[str, Array] = {}
        self.state: dict[str, Any] = {}

    def coordinates(self, lane: int) -> tuple[Dim3, Dim3]:
        """CTA and thread (x, y, z) of a lane of the batch."""
        cta = int(self.numbers[lane // self.grid.threads])
        thread = lane % self.grid.threads
        return _unravel(cta, self.launch.grid), _unravel(thread, self.launch.block)

    def special(self, name: str) -> Array | None:
        """A special register for the whole batch, as the smallest array that broadcasts to it."""
        value = self._special.get(name)
        if value is None:
            value = self._make_special(name)
            if value is None:
                return None
            self._special[name] = value
        return value

    def _make_special(self, name: str) -> Array | None:
        threads, grid, block = self.grid.threads, self.launch.grid, self.launch.block
        thread = np.arange(threads)
        lane = thread & 31
        head, _, axis = name.partition(".")
        if axis:
            i = "xyz".find(axis)
            if i < 0:
                return None
            if head == "tid":
                return _row(_axis(thread, block, i))
            if head in ("ctaid", "clusterid"):
                return _column(_axis(self.numbers, grid, i))
            if head in ("ntid", "nctaid", "nclusterid"):
                return _one((block if head == "ntid" else grid)[i])
            if head == "cluster_ctaid":
                return _one(0)
            if head == "cluster_nctaid":
                return _one(1)
            return None
        one = np.uint32(1)
        bit = one << lane.astype(np.uint32)
        rows: dict[str, Array] = {
            "laneid": lane,
            "warpid": thread >> 5,
            "lanemask_eq": bit,
            "lanemask_lt": bit - one,
            "lanemask_le": (bit - one) | bit,
            "lanemask_ge": ~(bit - one),
            "lanemask_gt": ~((bit - one) | bit),
        }
        if name in rows:
            return _row(rows[name].astype(np.uint32))
        numbers = {
            "nwarpid": self.grid.warps,
            "nsmid": 1,
            "cluster_ctarank": 0,
            "cluster_nctarank": 1,
            "dynamic_smem_size": self.launch.dynamic_shared_bytes,
            "total_smem_size": self.launch.shared_bytes,
            "aggr_smem_size": self.launch.shared_bytes,
            "smid": 0,
        }
        if name in numbers:
            return _one(numbers[name])
        if name == "gridid":
            return np.zeros(1, np.uint64)
        if name == "is_explicit_cluster":
            return np.zeros(1, np.bool_)
        return None


def _unravel(index: int, extent: Dim3) -> Dim3:
    x, y, _ = extent
    return index % x, index // x % y, index // (x * y)


def _axis(index: Array, extent: Dim3, axis: int) -> Array:
    x, y, _ = extent
    return (index % x, index // x % y, index // (x * y))[axis].astype(np.uint32)


def _row(values: Array) -> Array:
    return values.reshape(1, -1) if (values != values[0]).any() else values[:1].reshape(1)


def _column(values: Array) -> Array:
    return values.reshape(-1, 1) if (values != values[0]).any() else values[:1].reshape(1)


def _one(value: int) -> Array:
    return np.array([value], np.uint32)


def check_shape(grid: Dim3, block: Dim3, shared_bytes: int) -> None:
    """Limits of every device of compute capability 9 and 10. Raises LaunchError."""
    x, y, z = block
    if min(*grid, *block) < 1:
        raise LaunchError(f"grid {grid} and block {block} must be positive")
    if x * y * z > 1024 or z > 64:
        raise LaunchError(
            f"block {block} has {x * y * z} threads", hint="a block has at most 1024 threads"
        )
    if grid[0] >= 1 << 31 or grid[1] > 65535 or grid[2] > 65535:
        raise LaunchError(f"grid {grid} is larger than (2147483647, 65535, 65535)")
    if shared_bytes > 228 * 1024:
        raise LaunchError(
            f"the kernel wants {shared_bytes} bytes of shared memory",
            hint="a CTA has at most 227 KiB and the system's first KiB",
        )


def lanes_of(group: Group, guard: Array | None) -> Array | None:
    """Positions in the group of the lanes where guard holds; None for all of them."""
    if guard is None:
        return None
    mask = group.spread(guard)
    if mask.all():
        return None
    return np.flatnonzero(mask)
