"""Loops over lanes that NumPy would need many passes for, compiled by Numba.

Everything here works on flat arrays, one entry a lane, lanes of a warp next to each other.
Addresses are uint64. A function that finds a fault returns the lane's position in the arrays and
changes nothing else; -1 means no fault. Addresses reach the gather and scatter functions only
after a check has placed them inside a buffer.
"""

from typing import Any, NamedTuple

import numpy as np
from numba.core import types
from numba.extending import intrinsic

from nvfp4.emulator.loops import loop
from nvfp4.emulator.state.memory import RANK_SHIFT

SECTOR_BYTES = 32
BANKS = 32


@intrinsic
def load(typing_context: Any, address: Any, dtype: Any) -> Any:
    """Read a number of a dtype at a raw address."""
    kind = dtype.dtype

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], context.get_value_type(kind).as_pointer())
        return builder.load(pointer, align=1)

    return kind(types.uint64, dtype), generate


@intrinsic
def store(typing_context: Any, address: Any, value: Any) -> Any:
    """Write a number to a raw address; its type gives the number of bytes."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[1], builder.inttoptr(args[0], args[1].type.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(types.uint64, value), generate


@loop
def gather(address, out):  # type: ignore[no-untyped-def]
    """Read contiguous elements out[:, i] from address[i]."""
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
    """Write contiguous values[:, i] to address[i]."""
    size = values.itemsize
    for j in range(values.shape[0]):
        for i in range(address.shape[0]):
            store(address[i] + np.uint64(j * size), values[j, i])


@loop
def visit_global(  # type: ignore[no-untyped-def]
    address, request, nbytes, align, starts, ends, sector0, touched, flag, warps, spent
):
    """Check bounds and alignment of global accesses of `nbytes` each, and count their sectors.

    starts, ends: sorted buffers. sector0: a buffer's first place in `touched`, in which `flag` is
    set for each sector. request: lanes with equal neighbours form one request. spent: gets the
    sectors of each CTA of `warps` requests, and those of them that had no flag, int64[2, CTAs].
    Returns the faulty lane or -1.
    """
    seen = np.empty(32 * (2 + nbytes // 32), np.int64)
    count = 0
    highest = np.int64(-1)
    current = np.int64(-1)
    buffers = starts.shape[0]
    hint = 0
    size = np.uint64(nbytes)
    mask = np.uint64(align - 1)
    for i in range(address.shape[0]):
        a = address[i]
        if a & mask != 0:
            return i
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
                return i
        if request[i] != current:
            current = request[i]
            cta = current // warps % spent.shape[1]
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
            spent[0, cta] += 1
            spent[1, cta] += touched[sector] == 0
            touched[sector] |= flag
    return -1


@loop
def locate_window(address, row, base, size, stride, nbytes, align, out):  # type: ignore[no-untyped-def]
    """Locate accesses to per-CTA or per-thread memory.

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


class Visited(NamedTuple):
    """Counts of an instruction's accesses to shared memory."""

    bad: int
    """The first lane whose address is misaligned or outside, or -1."""
    requests: int
    """Number of warps that access."""
    passes: int
    """Passes over the banks."""
    least_passes: int
    """Passes without bank conflicts."""


@loop
def _in_pairs(address, lanes, start, end):  # type: ignore[no-untyped-def]
    """Whether each of a warp's lanes has the address of the next or of the next but one."""
    next_one = next_but_one = True
    for i in range(start, end):
        for step in (1, 2):
            other = i + step if lanes[i] & step == 0 else i - step
            alike = start <= other < end and address[other] == address[i]
            if step == 1:
                next_one &= alike
            else:
                next_but_one &= alike
    return next_one or next_but_one


@loop
def visit_shared(  # type: ignore[no-untyped-def]
    address, lanes, threads, ctas, abroad, base, size, stride, nbytes, align, out, spent
):
    """Locate accesses to shared memory in `out`, byte offsets in that of the batch, and count their
    requests and passes, as `Visited` has them.

    A CTA has `threads`, and a row of `stride` bytes that holds addresses base to base + size; a
    cluster has `ctas` of them. abroad: whether the lanes reach those of other CTAs. A pass serves
    each of 32 four-byte banks once; wide accesses go by half and quarter warps, by twice as many
    lanes where each shares its address with a neighbour (H100, 2026-11-28). spent: gets the passes
    of each CTA.
    """
    usual = lanes_a_pass = 32 if nbytes <= 4 else (16 if nbytes <= 8 else 8)
    words = max(1, nbytes // 4)
    mask = np.uint64(align - 1)
    lowest, room, needs = np.uint64(base), np.uint64(size), np.uint64(nbytes)
    # Different words that a pass asks each bank for, and how many there are.
    asked, load = np.empty((BANKS, 64), np.int64), np.empty(BANKS, np.int32)
    requests = passes = least = of_warp = 0
    before = end = 0
    n = address.shape[0]
    while end < n:
        start, warp = end, lanes[end] >> 5
        while end < n and lanes[end] >> 5 == warp:
            end += 1
        requests += 1
        own = lanes[start] // threads
        rank = np.int64(own % ctas)
        count = start - before
        k = 0
        # Warps mostly have the addresses of the warp before.
        while ctas == 1 and end - start == count > k and address[start + k] == address[before + k]:
            k += 1
        if 0 < k == count:
            shift = np.uint64((own - lanes[before] // threads) * stride)
            for k in range(count):
                out[start + k] = out[before + k] + shift
            passes, before = passes + of_warp, start
            spent[own] += of_warp
            least += (count + lanes_a_pass - 1) // lanes_a_pass
            continue
        before, of_warp, i, lanes_a_pass = start, 0, start, usual
        if usual < 32 and _in_pairs(address, lanes, start, end):
            lanes_a_pass *= 2
        while i < end:
            begin = i
            first, last = np.uint64(1 << 63), np.uint64(0)
            while i < min(end, begin + lanes_a_pass):
                a = address[i]
                row = own
                if ctas > 1:
                    named = np.int64(a >> np.uint64(RANK_SHIFT)) & 0xFF
                    # An address that is out of reach keeps its rank, and so lies outside the row.
                    if named == rank or (abroad and named < ctas):
                        a &= ~np.uint64(0xFF << RANK_SHIFT)
                        row = own - rank + named
                offset = a - lowest
                if a & mask != 0 or a < lowest or offset > room or offset + needs > room:
                    return i, requests, passes, least
                out[i] = offset + np.uint64(row * stride)
                first, last = min(first, a), max(last, a)
                i += 1
            least += 1
            most = 1
            if np.int64(last >> np.uint64(2)) - np.int64(first >> np.uint64(2)) + words > BANKS:
                load[:] = most = 0
                for k in range(begin, i):
                    word = np.int64(address[k]) % (1 << RANK_SHIFT) // 4
                    for w in range(word, word + words):
                        bank = w & (BANKS - 1)
                        j = 0
                        while j < load[bank] and asked[bank, j] != w:
                            j += 1
                        if j == load[bank]:
                            asked[bank, j] = w
                            load[bank] += 1
                            most = max(most, load[bank])
            of_warp += most
        passes += of_warp
        spent[own] += of_warp
    return -1, requests, passes, least


@loop
def shuffle(mode, rows, step, clamp, shuffled, valid):  # type: ignore[no-untyped-def]
    """Write the value each lane reads in a shfl to `shuffled`, and whether its source lane is in
    range to `valid`; out of range, a lane reads its own value. mode: 0 up, 1 down, 2 bfly, 3 idx.
    All arrays are [warps, 32]; step and clamp are the operands b and c."""
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
