"""Loops over lanes that NumPy would need many passes for, compiled by Numba.

Everything here works on flat arrays, one entry a lane, lanes of a warp next to each other.
Addresses are uint64. A function that finds a fault returns the lane's position in the arrays and
changes nothing else; -1 means no fault. Addresses reach the gather and scatter functions only
after a check has placed them inside a buffer.
"""

from typing import Any

import numpy as np
from numba.core import types
from numba.extending import intrinsic

from nvfp4.emulator.loops import loop

SECTOR_BYTES = 32
BANKS = 32
_SHARED_WORDS = 1 << 16


@intrinsic
def load(typing_context: Any, address: Any, dtype: Any) -> Any:
    """The number of a dtype at a raw address."""
    kind = dtype.dtype

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], context.get_value_type(kind).as_pointer())
        return builder.load(pointer, align=1)

    return kind(types.uint64, dtype), generate


@intrinsic
def store(typing_context: Any, address: Any, value: Any) -> Any:
    """Write a number to a raw address, as many bytes as its type has."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[1], builder.inttoptr(args[0], args[1].type.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(types.uint64, value), generate


@loop
def gather(address, out):  # type: ignore[no-untyped-def]
    """Read out[:, i], elements that lie next to each other, from address[i]."""
    size = out.itemsize
    if out.shape[0] == 4:
        for i in range(address.shape[0]):
            for j in range(4):  # unrolled
                out[j, i] = load(address[i] + np.uint64(j * size), out.dtype)
        return
    for j in range(out.shape[0]):
        for i in range(address.shape[0]):
            out[j, i] = load(address[i] + np.uint64(j * size), out.dtype)


@loop
def scatter(address, values):  # type: ignore[no-untyped-def]
    """Write values[:, i], next to each other, to address[i]."""
    size = values.itemsize
    for j in range(values.shape[0]):
        for i in range(address.shape[0]):
            store(address[i] + np.uint64(j * size), values[j, i])


@loop
def visit_global(  # type: ignore[no-untyped-def]
    address, request, nbytes, align, starts, ends, sector0, touched, flag
):
    """Bounds, alignment and sectors of global accesses of `nbytes` each.

    starts, ends: sorted buffers. sector0: a buffer's first place in `touched`, where `flag` is
    or-ed in for each sector. request: lanes with equal neighbours form one request.
    Returns (faulty lane or -1, sectors over all requests, those of them that had no flag).
    """
    seen = np.empty(32 * (2 + nbytes // 32), np.int64)
    count = 0
    highest = np.int64(-1)
    sectors = 0
    fresh = 0
    current = np.int64(-1)
    buffers = starts.shape[0]
    hint = 0
    size = np.uint64(nbytes)
    mask = np.uint64(align - 1)
    for i in range(address.shape[0]):
        a = address[i]
        if a & mask != 0:
            return i, sectors, fresh
        if hint >= buffers or a < starts[hint] or a + size > ends[hint] or a + size < a:
            low, high = 0, buffers
            while low < high:
                middle = (low + high) // 2
                if starts[middle] <= a:
                    low = middle + 1
                else:
                    high = middle
            hint = low - 1
            if hint < 0 or a + size > ends[hint] or a + size < a:
                return i, sectors, fresh
        if request[i] != current:
            current = request[i]
            count = 0
            highest = np.int64(-1)
        first = sector0[hint] + np.int64((a >> np.uint64(5)) - (starts[hint] >> np.uint64(5)))
        last = first + np.int64(((a + size - np.uint64(1)) >> np.uint64(5)) - (a >> np.uint64(5)))
        for sector in range(first, last + 1):
            if sector > highest:
                highest = sector
            else:
                known = False
                for j in range(count - 1, -1, -1):
                    if seen[j] == sector:
                        known = True
                        break
                if known:
                    continue
            seen[count] = sector
            count += 1
            sectors += 1
            fresh += touched[sector] == 0
            touched[sector] |= flag
    return -1, sectors, fresh


@loop
def locate_window(address, row, base, size, stride, nbytes, align, out):  # type: ignore[no-untyped-def]
    """Byte offsets of accesses to per-CTA or per-thread memory.

    Row r of the memory is `stride` bytes from row r - 1 and holds addresses base to base + size.
    Writes row * stride + address - base to out; returns the first faulty lane or -1.
    """
    mask = np.uint64(align - 1)
    lowest = np.uint64(base)
    room = np.uint64(size)
    for i in range(address.shape[0]):
        a = address[i]
        if a & mask != 0 or a < lowest:
            return i
        offset = a - lowest
        if offset > room or offset + np.uint64(nbytes) > room:
            return i
        out[i] = offset + np.uint64(row[i]) * np.uint64(stride)
    return -1


@loop
def scatter_rows(offset, data, memory):  # type: ignore[no-untyped-def]
    """memory[offset[i] + j] = data[i, j]; the later row wins."""
    for i in range(offset.shape[0]):
        start = np.int64(offset[i])
        for j in range(data.shape[1]):
            memory[start + j] = data[i, j]


@loop
def bank_wavefronts(address, request, nbytes):  # type: ignore[no-untyped-def]
    """Shared-memory passes of the requests, and what they would be without bank conflicts.

    A pass serves each of 32 four-byte banks once; wide accesses go by half and quarter warps.
    """
    lanes_a_pass = 32 if nbytes <= 4 else (16 if nbytes <= 8 else 8)
    words_each = max(1, nbytes // 4)
    # By word of shared memory, which is smaller than this, the last pass that has touched it.
    touched = np.zeros(_SHARED_WORDS, np.int32)
    load = np.empty(BANKS, np.int32)
    passes = 0
    ideal = 0
    i = 0
    n = address.shape[0]
    while i < n:
        current = request[i]
        while i < n and request[i] == current:
            load[:] = 0
            taken = 0
            most = np.int32(0)
            ideal += 1
            while i < n and request[i] == current and taken < lanes_a_pass:
                first = np.int64(address[i]) >> 2
                for k in range(words_each):
                    word = (first + k) & (_SHARED_WORDS - 1)
                    if touched[word] != ideal:
                        touched[word] = ideal
                        load[word & 31] += 1
                        most = max(most, load[word & 31])
                taken += 1
                i += 1
            passes += most
    return passes, ideal


@loop
def shuffle(mode, rows, step, clamp, shuffled, valid):  # type: ignore[no-untyped-def]
    """What each lane reads in a shfl, mode 0 up, 1 down, 2 bfly, 3 idx, and whether that lane is in
    range: out of range it reads its own. All are [warps, 32], step and clamp operands b and c."""
    for warp in range(rows.shape[0]):
        for lane in range(32):
            b = np.int64(step[warp, lane]) & 31
            c = np.int64(clamp[warp, lane])
            segment = (c >> 8) & 31
            bound = (lane & segment) | (c & 31 & ~segment)
            if mode == 0:
                source = lane - b
            elif mode == 1:
                source = lane + b
            elif mode == 2:
                source = lane ^ b
            else:
                source = (lane & segment) | (b & ~segment & 31)
            in_range = source >= bound if mode == 0 else source <= bound
            shuffled[warp, lane] = rows[warp, source if in_range else lane]
            valid[warp, lane] = in_range
