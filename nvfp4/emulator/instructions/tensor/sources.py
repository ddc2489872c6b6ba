"""Matrices in shared memory as tensor cores read them, by a descriptor: checks and bytes."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from nvfp4.emulator.errors import (
    EmulatorError,
    MismatchedSwizzle,
    MissingProxyFence,
    SharedRace,
    TensorDescriptorFault,
)
from nvfp4.emulator.instructions.action import LaneSite
from nvfp4.emulator.instructions.shared_access import seen_at, stamped_by
from nvfp4.emulator.instructions.tensor.issue import pipes_of
from nvfp4.emulator.instructions.tensor.matrix_descriptor import CHUNK, MatrixDescriptor, decode
from nvfp4.emulator.loops import loop
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state import races
from nvfp4.emulator.state.races import THREAD, ordered
from nvfp4.emulator.state.tile_swizzles import TileSwizzles, swizzle_name

_CHUNK_BYTES = np.arange(CHUNK)


@dataclass(frozen=True)
class Plan:
    """Where a matrix lies in the shared memory of any CTA: offsets of its 16-byte chunks,
    int64[rows, chunks of a row], or transposed [K, chunks of rows]; or what is wrong with that.

    problem: (kind of error, message, hint); a kind of None is for what is not emulated.
    """

    descriptor: MatrixDescriptor
    offsets: Array
    transposed: bool
    element_bytes: int
    problem: tuple[type[EmulatorError] | None, str, str | None] | None = None


@dataclass(frozen=True)
class Source:
    """A matrix of one CTA. start: of the CTA's shared memory in the batch's. defined: whether each
    row of the matrix is, None for all."""

    at: LaneSite
    plan: Plan
    start: int
    defined: Array | None

    def fetch(self) -> Array:
        """The matrix now: unsigned[rows, elements of K]."""
        plan = self.plan
        raw = self.bytes().reshape(plan.offsets.shape[0], -1)
        codes = raw.view(f"u{plan.element_bytes}")
        return np.ascontiguousarray(codes.T) if plan.transposed else codes

    def bytes(self) -> Array:
        """Its chunks now: uint8[rows, chunks, 16]."""
        offsets = self.plan.offsets
        out = np.empty((*offsets.shape, CHUNK), np.uint8)
        _gather(self.at.batch.shared.data, offsets, self.start, out)
        return out


@loop
def _gather(data, offsets, start, out):  # type: ignore[no-untyped-def]
    """Copy 16 bytes from each offset."""
    for i in range(offsets.shape[0]):
        for j in range(offsets.shape[1]):
            first = start + offsets[i, j]
            for b in range(16):
                out[i, j, b] = data[first + b]


@lru_cache(maxsize=2048)
def plan_of(
    bits: int, name: str, shape: tuple[int, int, bool, int], is_tf32: bool, base: int, size: int
) -> Plan:
    """Where the descriptor of an operand leads. shape: rows, bytes of K, whether it is transposed,
    bytes of an element. base, size: of the CTA's shared memory."""
    rows, depth_bytes, transposed, element_bytes = shape
    descriptor = decode(bits)
    nowhere = np.zeros((0, 0), np.int64)
    trouble = descriptor.trouble(transposed, is_tf32)
    if trouble is not None:
        text = f"the descriptor of {name} ({descriptor}): {trouble}"
        problem = (TensorDescriptorFault, text, None)
        return Plan(descriptor, nowhere, transposed, element_bytes, problem)
    unknown = descriptor.unknown()
    if unknown is not None:
        return Plan(descriptor, nowhere, transposed, element_bytes, (None, unknown, None))
    if transposed:
        addresses = descriptor.chunks(rows * element_bytes, depth_bytes // element_bytes, True)
    else:
        addresses = descriptor.chunks(rows, depth_bytes, False)
    low, high = int(addresses.min()), int(addresses.max()) + CHUNK
    outside = None
    if low < base or high > base + size:
        outside = (
            TensorDescriptorFault,
            f"the descriptor of {name} ({descriptor}) leads to shared addresses {low:#x} to "
            f"{high - 1:#x}, outside the CTA's shared memory [{base:#x}, {base + size:#x})",
            "address and offsets are in units of 16 bytes",
        )
    return Plan(descriptor, addresses - base, transposed, element_bytes, outside)


def source_of(
    at: LaneSite, row: int, number: int, bits: int, name: str, shape: tuple[int, int, bool, int],
    is_tf32: bool = False,
) -> Source:  # fmt: skip
    """A matrix of a CTA that operation `number` of the pipe reads, with a shape as of `plan_of`.
    Faults where its descriptor is wrong or leads outside the CTA's shared memory; notes other
    misuse."""
    shared = at.batch.shared
    plan = plan_of(bits, name, shape, is_tf32, shared.base, shared.size)
    if plan.problem is not None:
        kind, message, hint = plan.problem
        if kind is None:
            raise at.site.unsupported(
                f"{at.site.opcode}: {message} of a matrix descriptor is not emulated"
            )
        at.fault(kind, message, hint)
    at.batch.traffic.shared_bytes_read += plan.offsets.size * CHUNK
    start = row * shared.stride
    defined = _defined(at, plan, start, number, name) if shared.checked else None
    return Source(at, plan, start, defined)


@loop
def _note_chunks(  # type: ignore[no-untyped-def]
    offsets, start, thread, threads, known, fenced, writers, widths, width, reads, number, unwritten
):
    """Record that an operation of the pipe reads 16 bytes at each offset, on behalf of `thread`.
    Behind the cluster's threads are its copy engines.

    Returns (byte, fault, other's stamp) of the worst writer that does not come before it in the
    proxy of the copy engine; the first byte that the engine wrote by another swizzle than one of
    `width`, or -1; and whether any byte was never written.
    """
    first, kind, other, mismatch = -1, races.NO_FAULT, np.int64(0), -1
    fine = np.int64(0)
    some = False
    for i in range(offsets.shape[0]):
        for j in range(offsets.shape[1]):
            unwritten[i, j] = False
            begin = start + offsets[i, j]
            chunk = begin >> 4
            reads[chunk] = number
            differs = widths[chunk] != 0 and widths[chunk] != width
            if differs and mismatch < 0 and (writers[begin] & THREAD) - 1 >= threads:
                mismatch = begin
            for b in range(begin, begin + 16):
                writer = writers[b]
                if writer == 0:
                    unwritten[i, j] = True
                    some = True
                    continue
                if writer == fine:
                    continue
                by = (writer & THREAD) - 1
                fault = races.NO_FAULT
                if not ordered(writer, thread, known):
                    fault = races.RACE
                elif by < threads and writer >> 32 > fenced[by >> 5]:
                    fault = races.UNFENCED
                else:
                    fine = writer
                if fault > kind:
                    first, kind, other = b, fault, writer
    return first, kind, other, mismatch, some


def _defined(at: LaneSite, plan: Plan, start: int, number: int, name: str) -> Array | None:
    """Note what a read of a matrix does wrong; which rows are defined, None for all."""
    shared, threads = at.batch.shared, at.batch.clusters.threads
    cluster, thread = divmod(at.lane, threads)
    offsets = plan.offsets
    if at.batch.launch.witness is not None:
        flat = offsets.reshape(-1) + start
        lanes = np.full(flat.size, at.lane)
        at.site.testify(at.batch, "shared", flat, CHUNK, lanes, False, engine=True)
    unset = np.empty(offsets.shape, np.bool_)
    byte, fault, stamp, mismatch, some = _note_chunks(
        offsets, start, thread, threads, shared.clocks.known[cluster],
        shared.clocks.fenced[cluster],
        shared.writers, at.batch.kept(TileSwizzles).width, plan.descriptor.tile_swizzle,
        pipes_of(at).reads, number, unset
    )  # fmt: skip
    if mismatch >= 0:
        _note_swizzle(at, plan.descriptor, int(mismatch), name)
    if fault:
        _note_fault(at, int(byte), int(fault), int(stamp), name)
    if shared.undefined is not None:
        places = offsets[:, :, None] + (_CHUNK_BYTES + start)
        unset = np.asarray(shared.undefined[places].any(axis=2))
        some = bool(unset.any())
    if not some:
        return None
    by_row = np.asarray(unset.any(axis=0 if plan.transposed else 1))
    if plan.transposed:
        by_row = np.repeat(by_row, CHUNK // plan.element_bytes)
    return ~by_row


def _note_fault(at: LaneSite, byte: int, fault: int, stamp: int, name: str) -> None:
    address = at.batch.shared.address(byte)
    other = stamped_by(at, stamp, "an asynchronous copy")
    what = f"{at.site.opcode} reads {name} at shared address {address:#x}"
    kind: type[EmulatorError] = MissingProxyFence
    if fault == races.RACE:
        kind = SharedRace
        what += f", which {other} writes: nothing orders the read after that"
        hint = "wait at a barrier, or for the copy's mbarrier, before it is issued"
    else:
        what += f", which {other} has written: no fence.proxy.async lies between"
        hint = "put a fence.proxy.async after the write, before the barrier"
    at.note(kind, what, hint, seen=seen_at(at, byte, 1, stamp, engine=True))


def _note_swizzle(at: LaneSite, descriptor: MatrixDescriptor, byte: int, name: str) -> None:
    wrote = int(at.batch.kept(TileSwizzles).width[byte // CHUNK])
    written = swizzle_name(wrote)
    at.note(
        MismatchedSwizzle,
        f"the descriptor of {name} ({descriptor}) leads to shared address "
        f"{at.batch.shared.address(byte):#x}, where a tensor map has written with {written}",
        "the tensor map and the descriptor take the same swizzle",
    )
