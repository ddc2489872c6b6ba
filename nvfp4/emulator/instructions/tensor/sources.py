"""Matrices in shared memory as tensor cores read them, by a descriptor: checks and bytes."""

from __future__ import annotations

from dataclasses import dataclass

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
from nvfp4.emulator.instructions.tensor.issue import pipes_of, row_of
from nvfp4.emulator.instructions.tensor.matrix_descriptor import CHUNK, MatrixDescriptor, decode
from nvfp4.emulator.loops import loop
from nvfp4.emulator.ptx.types import Array
from nvfp4.emulator.state import races
from nvfp4.emulator.state.races import THREAD, ordered
from nvfp4.emulator.state.tile_swizzles import UNKNOWN, TileSwizzles

_ANY_16_BYTES = np.arange(CHUNK)


@dataclass(frozen=True)
class Source:
    """A matrix: offsets of its 16-byte chunks in the batch's shared memory, int64[rows, chunks of a
    row]; transposed: [K, chunks of rows]. defined: whether each row of the matrix is."""

    at: LaneSite
    offsets: Array
    transposed: bool
    defined: Array

    def fetch(self, element_bytes: int) -> Array:
        """The matrix now: unsigned[rows, elements of K]."""
        data = self.at.batch.shared.data
        raw = data[self.offsets[:, :, None] + _ANY_16_BYTES].reshape(self.offsets.shape[0], -1)
        codes = raw.view(f"u{element_bytes}")
        return np.ascontiguousarray(codes.T) if self.transposed else codes


def locate(
    at: LaneSite, bits: int, name: str, rows: int, depth_bytes: int,
    transposed: bool = False, element_bytes: int = 1, is_tf32: bool = False,
) -> tuple[MatrixDescriptor, Array]:  # fmt: skip
    """(descriptor, offsets as of Source) of a matrix. name: of the operand, for messages. Faults
    where the descriptor is wrong or leads outside the CTA's shared memory."""
    descriptor = decode(bits)
    trouble = descriptor.trouble(transposed, is_tf32)
    if trouble is not None:
        at.fault(TensorDescriptorFault, f"the descriptor of {name} ({descriptor}): {trouble}")
    unknown = descriptor.unknown()
    if unknown is not None:
        raise at.site.unsupported(
            f"{at.site.opcode}: {unknown} of a matrix descriptor is not emulated"
        )
    if transposed:
        addresses = descriptor.chunks(rows * element_bytes, depth_bytes // element_bytes, True)
    else:
        addresses = descriptor.chunks(rows, depth_bytes, False)
    shared = at.batch.shared
    low, high = int(addresses.min()), int(addresses.max()) + CHUNK
    if low < shared.base or high > shared.base + shared.size:
        at.fault(
            TensorDescriptorFault,
            f"the descriptor of {name} ({descriptor}) leads to shared addresses {low:#x} to "
            f"{high - 1:#x}, outside the CTA's shared memory [{shared.base:#x}, "
            f"{shared.base + shared.size:#x})",
            hint="address and offsets are in units of 16 bytes",
        )
    return descriptor, addresses + (row_of(at) * shared.stride - shared.base)


def source_of(
    at: LaneSite, number: int, bits: int, name: str, rows: int, depth_bytes: int,
    transposed: bool = False, element_bytes: int = 1, is_tf32: bool = False,
) -> Source:  # fmt: skip
    """A matrix that operation `number` of the pipe reads; misuse is noted."""
    descriptor, offsets = locate(
        at, bits, name, rows, depth_bytes, transposed, element_bytes, is_tf32
    )
    at.batch.traffic.shared_bytes_read += offsets.size * CHUNK
    if not at.batch.shared.checked:
        return Source(at, offsets, transposed, np.ones(rows, np.bool_))
    unset = _note(at, descriptor, offsets, name)
    pipes_of(at).note_source(at.lane, number, offsets)
    by_row = np.asarray(unset.any(axis=0 if transposed else 1))
    if transposed:
        by_row = np.repeat(by_row, CHUNK // element_bytes)
    return Source(at, offsets, transposed, ~by_row)


@loop
def _note_chunks(offset, thread, engine, known, fenced, writers, unwritten):  # type: ignore[no-untyped-def]
    """Whether threads and copies that wrote 16 bytes at each offset come before a read by `thread`
    in the proxy of the copy engine: (first byte, fault, other's stamp) of the worst."""
    first, kind, other = -1, races.NO_FAULT, np.int64(0)
    fine = np.int64(0)
    for i in range(offset.shape[0]):
        for b in range(offset[i], offset[i] + 16):
            writer = writers[b]
            if writer == fine:
                unwritten[i] |= writer == 0
                continue
            if writer == 0:
                unwritten[i] = True
                continue
            by = (writer & THREAD) - 1
            fault = races.NO_FAULT
            if not ordered(writer, thread, known):
                fault = races.RACE
            elif by < engine and by >> 5 < fenced.shape[0] and writer >> 32 > fenced[by >> 5]:
                fault = races.UNFENCED
            else:
                fine = writer
            if fault > kind:
                first, kind, other = b, fault, writer
    return first, kind, other


def _note(at: LaneSite, descriptor: MatrixDescriptor, offsets: Array, name: str) -> Array:
    """Note what a read of these chunks does wrong; which of them nothing has written."""
    shared, threads = at.batch.shared, at.batch.grid.threads
    row, thread = divmod(at.lane, threads)
    flat = np.ascontiguousarray(offsets).reshape(-1)
    unwritten = np.zeros(flat.size, np.bool_)
    at.site.testify(
        at.batch, "shared", flat, CHUNK, np.full(flat.size, at.lane), False, engine=True
    )
    byte, fault, stamp = _note_chunks(
        flat, thread, threads, shared.clocks.known[row], shared.clocks.fenced[row], shared.writers,
        unwritten
    )  # fmt: skip
    if shared.undefined is not None:
        unwritten = np.asarray(shared.undefined[flat[:, None] + _ANY_16_BYTES].any(axis=1))
    _note_swizzle(at, descriptor, flat, name)
    if fault:
        address = shared.address(byte)
        other = stamped_by(at, int(stamp), "an asynchronous copy")
        what = f"{at.site.opcode} reads {name} at shared address {address:#x}"
        seen = seen_at(at, byte, 1, int(stamp), engine=True)
        kind: type[EmulatorError] = MissingProxyFence
        if fault == races.RACE:
            kind = SharedRace
            what += f", which {other} writes: nothing orders the read after that"
            hint = "wait at a barrier, or for the copy's mbarrier, before it is issued"
        else:
            what += f", which {other} has written: no fence.proxy.async lies between"
            hint = "put a fence.proxy.async after the write, before the barrier"
        at.note(kind, what, hint, seen=seen)
    return unwritten.reshape(offsets.shape)


def _note_swizzle(at: LaneSite, descriptor: MatrixDescriptor, flat: Array, name: str) -> None:
    shared = at.batch.shared
    widths = at.batch.kept(TileSwizzles).at(flat)
    by_engine = (shared.writers[flat] & THREAD) - 1 == at.batch.grid.threads
    wrong = (widths != UNKNOWN) & (widths != descriptor.swizzle_bytes) & by_engine
    if not wrong.any():
        return
    first = int(np.flatnonzero(wrong)[0])
    wrote = int(widths[first])
    written = "no swizzle" if wrote == CHUNK else f"a swizzle of {wrote} bytes"
    at.note(
        MismatchedSwizzle,
        f"the descriptor of {name} ({descriptor}) leads to shared address "
        f"{shared.address(int(flat[first])):#x}, where a tensor map has written with {written}",
        "the tensor map and the descriptor take the same swizzle",
    )
