"""State that all batches of a launch share."""

import math
import time
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from nvfp4.emulator.errors import EmulatorError, LaunchError, Related
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.report import Findings, Traffic
from nvfp4.emulator.state.global_races import GlobalRaces
from nvfp4.emulator.state.memory import GlobalMemory
from nvfp4.emulator.state.order import Order
from nvfp4.emulator.state.tally import Tally
from nvfp4.emulator.state.under_way import Hazards
from nvfp4.emulator.state.witness import Witness
from nvfp4.emulator.work import WorkCounter
from nvfp4.records.launch import Dim3


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


class Origin(NamedTuple):
    """The origin of undefined bits: the kind of finding, the place in words, a hint unless it is
    the kind's default, and related places."""

    kind: type[EmulatorError]
    place: str
    hint: str | None = None
    related: tuple[Related, ...] = ()


@dataclass
class LaunchState:
    """A launch while it runs.

    parameters: the kernel's parameter bytes, at a host address inside one of the buffers.
    symbols: host addresses of the module's variables. shared_bytes: static and dynamic shared
    memory, and the first KiB, which is the system's. check: look for findings. races: None unless
    checked. rounds: whether results of floating-point atomics depend on the order, if only by
    rounding. tracks_memory: keep which bits of shared and local memory are undefined.
    cluster: its CTAs along x, y and z. explicit_cluster: whether clusters were requested.
    hazards: what launches before it may still write.
    loads_under_way: of shared and tensor memory, by PTX line; see `flow.loads_under_way`.
    waits_not_looked_at: for mbarriers, by PTX line; see `flow.waits_not_looked_at`.
    undefined_memory: by PTX line, the loads that have read undefined bits, shuffles of lanes that
    were not there, and if memory is not tracked, the stores that have written some.
    undefined_stores: by state space, the PTX line of the first store of undefined bits.
    undefined_results: the instructions, by their index, that have passed on undefined bits.
    output: text that the kernel printed. fault: the error that stopped the launch. tally: counts by
    instruction, if requested. work: counts what each warp executes.
    deadline, began: when to give up and when it started, both on the monotonic clock; cpu_began: on
    the CPU clock of the process. witness: of a race under investigation. not_started: clusters that
    wait for the others of the launch.
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
    hazards: Hazards
    races: GlobalRaces | None = None
    cluster: Dim3 = (1, 1, 1)
    explicit_cluster: bool = False
    rounds: bool = False
    tracks_memory: bool = False
    loads_under_way: frozenset[int] = frozenset()
    waits_not_looked_at: frozenset[int] = frozenset()
    order: Order = field(default_factory=Order)
    undefined_memory: dict[int, Origin] = field(default_factory=dict)
    undefined_results: set[int] = field(default_factory=set)
    undefined_stores: dict[str, int] = field(default_factory=dict)
    findings: Findings = field(default_factory=Findings)
    traffic: Traffic = field(default_factory=Traffic)
    output: list[str] = field(default_factory=list)
    fault: EmulatorError | None = None
    deadline: float | None = None
    witness: Witness | None = None
    began: float = field(default_factory=time.monotonic)
    cpu_began: float = field(default_factory=time.process_time)
    tally: Tally | None = None
    work: WorkCounter = field(default_factory=WorkCounter)
    not_started: ClusterQueue = NONE_WAITS

    def whole_address(self, space: str, address: Array) -> Array:
        """Host addresses of parameters or constants. A compiler may keep 32 bits of an address in
        these small state spaces; what is missing is that of the variables there."""
        if address.size == 0 or address.min() >> np.uint64(32):
            return address
        mine = self.parameters.ctypes.data
        others = [each for each in self.symbols.values() if each != mine]
        first = np.uint64(mine if space == "param" else min(others, default=mine))
        whole = first + ((address - first) & np.uint64(0xFFFFFFFF))
        return np.where(address >> np.uint64(32), address, whole)


MOST_CTAS_OF_A_CLUSTER = 16
"""More than 8 only if the host code has allowed a non-portable cluster size."""


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
        raise LaunchError(
            f"a grid of {grid} CTAs cannot be divided into clusters of {cluster}",
            hint="each extent of the grid is a multiple of the cluster's, which counts CTAs, too",
        )


def check_shape(grid: Dim3, block: Dim3, shared_bytes: int) -> None:
    """Check the limits of devices of compute capability 9 and 10. Raises LaunchError."""
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
