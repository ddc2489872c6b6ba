"""Matrices in shared memory as tensor cores read them, by a descriptor: checks and bytes."""

from functools import lru_cache

import numpy as np

from nvfp4.emulator import errors
from nvfp4.emulator.instructions.action import LaneSite
from nvfp4.emulator.instructions.shared_access import seen_at, stamped_by
from nvfp4.emulator.instructions.tensor.issue import Team
from nvfp4.emulator.instructions.tensor.matrix_descriptor import CHUNK, MatrixDescriptor, decode
from nvfp4.emulator.loops import loop
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state import races
from nvfp4.emulator.state.tensor_pipe import TensorPipe
from nvfp4.emulator.state.tile_swizzles import TileSwizzles, swizzle_name
from nvfp4.records.base import Record


class Plan(Record):
    """The place of a matrix in the shared memory of any CTA, or what is wrong with it."""

    descriptor: MatrixDescriptor
    offsets: Array
    """Offsets of its 16-byte chunks, int64[rows, chunks of a row]; transposed [K, chunks of
    rows]."""
    transposed: bool
    element_bytes: int
    problem: tuple[type[errors.EmulatorError] | None, str, str | None] | None = None
    """(kind of error, message, hint). The kind is None if it is only not emulated."""


class Source(Record):
    """A matrix of one CTA for each lane of a team."""

    team: Team
    plan: Plan
    starts: Array
    """Where the CTAs' shared memory starts in the batch's."""
    defined: Array | None
    """Whether each row of each matrix is defined, bool[lanes, rows]; None if all are."""

    def fetch(self, which: Array) -> Array:
        """The matrices of some lanes now: unsigned[lanes, rows, elements of K]."""
        plan, offsets = self.plan, self.plan.offsets
        raw = np.empty((which.size, offsets.size, CHUNK // 8), np.uint64)
        _gather(self.team.batch.shared.words(), offsets.reshape(-1), self.starts[which], raw)
        codes = raw.reshape(which.size, offsets.shape[0], -1).view(f"u{plan.element_bytes}")
        return np.ascontiguousarray(codes.swapaxes(1, 2)) if plan.transposed else codes


@loop
def _gather(words, offsets, starts, out):  # type: ignore[no-untyped-def]
    """Copy 16 bytes from each offset after each start."""
    for i in range(starts.shape[0]):
        for j in range(offsets.shape[0]):
            first = (starts[i] + offsets[j]) >> 3
            out[i, j, 0], out[i, j, 1] = words[first], words[first + 1]


@lru_cache(maxsize=2048)
def plan_of(
    bits: int, name: str, shape: tuple[int, int, bool, int], is_tf32: bool, base: int, size: int
) -> Plan:
    """Return the plan of an operand's descriptor. shape: rows, bytes of K, whether it is
    transposed, bytes of an element. base, size: of the CTA's shared memory."""
    rows, depth_bytes, transposed, element_bytes = shape
    descriptor = decode(bits)
    nowhere = np.zeros((0, 0), np.int64)
    trouble = descriptor.trouble(transposed, is_tf32)
    if trouble is not None:
        text = f"the descriptor of {name} ({descriptor}): {trouble}"
        problem = (errors.TensorDescriptorFault, text, None)
        return Plan(descriptor, nowhere, transposed, element_bytes, problem)
    unknown = descriptor.unknown()
    if unknown is not None:
        return Plan(descriptor, nowhere, transposed, element_bytes, (None, unknown, None))
    across = rows * element_bytes, depth_bytes // element_bytes
    addresses = descriptor.chunks(*(across if transposed else (rows, depth_bytes)), transposed)
    low, high = int(addresses.min()), int(addresses.max()) + CHUNK
    outside = None
    if low < base or high > base + size:
        outside = (
            errors.TensorDescriptorFault,
            f"the descriptor of {name} ({descriptor}) leads to shared addresses {low:#x} to "
            f"{high - 1:#x}, outside the CTA's shared memory [{base:#x}, {base + size:#x})",
            "address and offsets are in units of 16 bytes",
        )
    return Plan(descriptor, addresses - base, transposed, element_bytes, outside)


def source_of(
    team: Team, rows: Array, numbers: Array, bits: int, name: str,
    shape: tuple[int, int, bool, int], is_tf32: bool = False, data_bytes: int = CHUNK,
) -> Source:  # fmt: skip
    """The matrices of CTAs that operations of a team's pipes read, with a shape as in `plan_of`.
    data_bytes: of each chunk, the rest is padding. Faults where their descriptor is wrong or leads
    outside the CTAs' shared memory; notes other misuse."""
    shared = team.batch.shared
    plan = plan_of(bits, name, shape, is_tf32, shared.base, shared.size)
    if plan.problem is not None:
        kind, message, hint = plan.problem
        if kind is None:
            raise team.site.unsupported(
                f"{team.site.opcode}: {message} of a matrix descriptor is not emulated"
            )
        team.at(0).fault(kind, message, hint)
    team.batch.traffic.shared_bytes_read += plan.offsets.size * CHUNK * rows.size
    starts = rows * shared.stride
    asked = team, plan, starts, numbers, name, data_bytes
    return Source(team, plan, starts, _defined(*asked) if shared.checked else None)


def _defined(
    team: Team, plan: Plan, starts: Array, numbers: Array, name: str, data_bytes: int
) -> Array | None:
    """Note misuse by reads of matrices. Returns which of their rows are defined, None for all."""
    batch, shared, threads = team.batch, team.batch.shared, team.batch.clusters.threads
    clusters, agents = np.divmod(team.lanes, threads)
    offsets = plan.offsets.reshape(-1)
    if batch.launch.witness is not None:
        for start, lane in zip(starts.tolist(), team.lanes.tolist(), strict=True):
            lanes = np.full(offsets.size, lane)
            where = offsets + start
            team.site.record_access(batch, "shared", where, CHUNK, lanes, False, engine=True)
    unset = np.empty((starts.size, offsets.size), np.bool_)
    worst = np.empty((starts.size, 4), np.int64)
    known, fenced, stamps = shared.clocks.known, shared.clocks.fenced, shared.stamps
    reads, widths = batch.kept(TensorPipe).reads, batch.kept(TileSwizzles).width
    races.note_tensor_reads(
        offsets, starts, clusters, agents, threads, known, fenced, stamps, numbers, reads, widths,
        plan.descriptor.tile_swizzle, data_bytes, worst, unset
    )  # fmt: skip
    for i in np.flatnonzero((worst[:, 1] != races.NO_FAULT) | (worst[:, 3] >= 0)).tolist():
        byte, fault, stamp, mismatch = worst[i].tolist()
        if mismatch >= 0:
            written = swizzle_name(int(widths[mismatch // CHUNK]))
            team.at(i).note(
                errors.MismatchedSwizzle,
                f"the descriptor of {name} ({plan.descriptor}) leads to shared address "
                f"{shared.address(mismatch):#x}, where a tensor map has written with {written}",
                "the tensor map and the descriptor take the same swizzle",
            )
        if fault:
            _note_fault(team.at(i), byte, fault, stamp, name)
    if shared.undefined is not None:
        words = shared.undefined.view(np.uint64)
        places = (starts[:, None] + offsets) >> 3
        data = np.uint64((1 << 8 * (data_bytes - 8)) - 1)
        unset = (words[places] | (words[places + 1] & data)) != 0
    if not unset.any():
        return None
    by_row = unset.reshape(-1, *plan.offsets.shape).any(axis=1 if plan.transposed else 2)
    if plan.transposed:
        by_row = np.repeat(by_row, CHUNK // plan.element_bytes, axis=1)
    return np.asarray(~by_row)


def _note_fault(at: LaneSite, byte: int, fault: int, stamp: int, name: str) -> None:
    address = at.batch.shared.address(byte)
    other = stamped_by(at, stamp, "an asynchronous copy")
    what = f"{at.site.opcode} reads {name} at shared address {address:#x}"
    kind: type[errors.EmulatorError] = errors.MissingProxyFence
    if fault == races.RACE:
        kind = errors.SharedRace
        what += f", which {other} writes: nothing orders the read after that"
        hint = "wait at a barrier, or for the copy's mbarrier, before it is issued"
    else:
        what += f", which {other} has written: no fence.proxy.async lies between"
        hint = "put a fence.proxy.async after the write, before the barrier"
    at.note(kind, what, hint, seen=seen_at(at, byte, 1, stamp, engine=True))
