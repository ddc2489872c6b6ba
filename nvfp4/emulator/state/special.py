"""Special registers whose values do not change while a kernel runs."""

import math

import numpy as np

from nvfp4.emulator.ptx.syntax import RESERVED_FOR_GROUPS, SHARED_BASE
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state.group import Grid
from nvfp4.emulator.state.launch_state import LaunchState
from nvfp4.records.launch import Dim3

MULTIPROCESSORS = 148
"""SMs of a B200. %smid assigns CTAs to them in pairs; how a device does so is undocumented."""


def special_register(name: str, launch: LaunchState, grid: Grid, numbers: Array) -> Array | None:
    """A special register of the CTAs `numbers`, or None if it is not emulated."""
    ctas, block = launch.grid, launch.block
    thread = np.arange(grid.threads)
    lane = thread & 31
    head, _, axis = name.partition(".")
    if axis:
        i = "xyz".find(axis)
        if i < 0:
            return None
        if head == "tid":
            return _row(_axis(thread, block, i))
        by, place = launch.cluster[i], _axis(numbers, ctas, i)
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
        "warpid": thread >> 5,
        "lanemask_eq": bit,
        "lanemask_lt": bit - one,
        "lanemask_le": (bit - one) | bit,
        "lanemask_ge": ~(bit - one),
        "lanemask_gt": ~((bit - one) | bit),
    }
    if name in rows:
        return _row(rows[name].astype(np.uint32))
    constants = {
        "nwarpid": grid.warps, "nsmid": MULTIPROCESSORS,
        "cluster_nctarank": math.prod(launch.cluster),
        "dynamic_smem_size": launch.dynamic_shared_bytes, "aggr_smem_size": launch.shared_bytes,
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
        return _column((numbers // 2 % MULTIPROCESSORS).astype(np.uint32))
    if name == "gridid":
        return np.zeros(1, np.uint64)
    if name == "is_explicit_cluster":
        return np.full(1, launch.explicit_cluster)
    return None


def _axis(index: Array, extent: Dim3, axis: int) -> Array:
    x, y, _ = extent
    return (index % x, index // x % y, index // (x * y))[axis].astype(np.uint32)


def _row(values: Array, *shape: int) -> Array:
    return values.reshape(shape or (1, -1)) if (values != values[0]).any() else values[:1]


def _column(values: Array) -> Array:
    return _row(values, -1, 1)


def _one(value: int) -> Array:
    return np.array([value], np.uint32)
