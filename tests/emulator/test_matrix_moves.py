"""ldmatrix and stmatrix against the figures of the PTX ISA, written down as loops."""

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
from ptx_harness import Array, run

from nvfp4.emulator import EmulatorError, LaunchReport, errors

WARPS = 2
SHARED = ".shared .align 128 .b8 tile[4096];"
COUNTS = {"x1": 1, "x2": 2, "x4": 4}
# %r1: the warp's kilobyte; %r2: where lane l's row begins, rows in the order 5l mod 32, so that
# they neither follow each other nor repeat; %r3, %r4: lane and warp; %d1: the thread's 16 bytes.
PLACES = """
and.b32 %r3, %r0, 31; shr.u32 %r4, %r0, 5; mov.u32 %r1, tile; shl.b32 %r5, %r4, 10;
add.u32 %r1, %r1, %r5; mul.lo.u32 %r2, %r3, 5; and.b32 %r2, %r2, 31; shl.b32 %r2, %r2, 4;
add.u32 %r2, %r1, %r2; mul.wide.u32 %d1, %r0, 16; add.u64 %d1, %q0, %d1;
shl.b32 %r6, %r3, 4; add.u32 %r6, %r1, %r6;
"""
FILL = """ld.global.v4.b32 {%r8, %r9, %r10, %r11}, [%d1];
st.shared.v4.b32 [%r6], {%r8, %r9, %r10, %r11};"""
OUT = "mul.wide.u32 %d2, %r0, 16; add.u64 %d2, %q1, %d2;"


def registers(count: int, first: int) -> str:
    return "{" + ", ".join(f"%r{first + i}" for i in range(count)) + "}"


def halves(words: Array) -> Array:
    """uint16 elements, the lower first, of uint32 registers."""
    return np.stack([words & 0xFFFF, words >> 16], axis=-1).astype(np.uint16)


def memory() -> Array:
    """uint16[warps, 32 rows, 8], every element another."""
    return np.arange(WARPS * 32 * 8, dtype=np.uint16).reshape(WARPS, 32, 8) * 7 + 3


Place = tuple[int, int, int, int]


def places(count: int, trans: bool) -> Iterator[tuple[Place, tuple[int, int, int]]]:
    """(warp, lane, matrix, element) and the (warp, row, column) of memory that belongs to it: lane
    l has the elements (l / 4, 2 (l mod 4)) and the next of each matrix, or of its transpose."""
    for place in product(range(WARPS), range(32), range(count), range(2)):
        warp, lane, matrix, element = place
        i, j = lane // 4, 2 * (lane % 4) + element
        row, column = (j, i) if trans else (i, j)
        # The lane 8 * matrix + row holds the address of that row.
        yield place, (warp, 5 * (8 * matrix + row) % 32, column)


@pytest.mark.parametrize("num", COUNTS)
@pytest.mark.parametrize("trans", ["", ".trans"])
@pytest.mark.parametrize("space", [".shared", ".shared::cta", ""])
def test_ldmatrix_gives_each_lane_its_elements(num: str, trans: str, space: str) -> None:
    count, rows, out = COUNTS[num], memory(), np.zeros((WARPS, 32, 4), np.uint32)
    address = "[%r2]" if space else "[%d3]"
    load = f"ldmatrix.sync.aligned.m8n8.{num}{trans}{space}.b16 {registers(count, 20)}, {address};"
    stores = "".join(f"st.global.b32 [%d2+{4 * i}], %r{20 + i};" for i in range(count))
    generic = "cvt.u64.u32 %d3, %r2; cvta.shared.u64 %d3, %d3;"
    body = f"{PLACES}{FILL}bar.warp.sync 0xffffffff;{generic}{load}{OUT}{stores}"
    report = run(body, rows, out, block=32 * WARPS, before=SHARED)
    got = halves(out[:, :, :count])
    assert all(got[place] == rows[there] for place, there in places(count, bool(trans)))
    assert not report.findings
    assert report.shared_bytes_read == WARPS * count * 128


@pytest.mark.parametrize("num", COUNTS)
@pytest.mark.parametrize("trans", ["", ".trans"])
def test_stmatrix_puts_each_element_in_its_place(num: str, trans: str) -> None:
    count = COUNTS[num]
    words = np.arange(WARPS * 32 * 4, dtype=np.uint32).reshape(WARPS, 32, 4) * 0x00030001 + 1
    out = np.zeros((WARPS, 32, 8), np.uint16)
    body = f"""{PLACES} ld.global.v4.b32 {{%r20, %r21, %r22, %r23}}, [%d1];
    mov.b32 %r30, 0; st.shared.v4.b32 [%r6], {{%r30, %r30, %r30, %r30}}; bar.warp.sync 0xffffffff;
    stmatrix.sync.aligned.m8n8.{num}{trans}.shared.b16 [%r2], {registers(count, 20)};
    bar.warp.sync 0xffffffff; ld.shared.v4.b32 {{%r8, %r9, %r10, %r11}}, [%r6];
    {OUT} st.global.v4.b32 [%d2], {{%r8, %r9, %r10, %r11}};"""
    report = run(body, words, out, block=32 * WARPS, before=SHARED)
    fragments = halves(words)
    expected = np.zeros_like(out)
    for place, there in places(count, bool(trans)):
        expected[there] = fragments[place]
    np.testing.assert_array_equal(out, expected)
    assert not report.findings


def matrix_access(instruction: str, before: str = "", block: int = 32) -> LaunchReport:
    zeros = np.zeros(256, np.uint32)
    return run(f"{PLACES}{before}{instruction}", zeros, block=block, before=SHARED)


STORE = "mov.b32 %r20, 1; stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r2], {%r20};"
LOAD = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r20}, [%r2];"
GENERIC = "ldmatrix.sync.aligned.m8n8.x1.b16 {%r20}, [%d3];"
USE = "st.global.b32 [%d1], %r20;"


@pytest.mark.parametrize(
    ("before", "instruction", "kind"),
    [
        ("add.u32 %r2, %r2, 8;", STORE, errors.Misaligned),
        ("add.u32 %r2, %r2, 8;", LOAD, errors.Misaligned),
        ("add.u32 %r2, %r2, 4096;", STORE, errors.OutOfBounds),
        ("add.u32 %r2, %r2, 4096;", LOAD, errors.OutOfBounds),
        ("mov.u64 %d3, %q0;", GENERIC, errors.OutOfBounds),
        ("setp.lt.u32 %p1, %r0, 16; @!%p1 bra DONE;", f"{STORE} DONE:", errors.BarrierMisuse),
    ],
)
def test_what_is_wrong_is_named(before: str, instruction: str, kind: type[EmulatorError]) -> None:
    with pytest.raises(kind):
        matrix_access(instruction, before)


def test_a_lane_whose_address_is_not_used_may_hold_any() -> None:
    unused = "setp.lt.u32 %p1, %r0, 8;"
    report = matrix_access(f"selp.b32 %r2, %r2, 0xfffffff0, %p1; {STORE}", unused)
    assert report.shared_bytes_written == 128


def test_matrices_race_as_other_accesses_do() -> None:
    other = "setp.eq.u32 %p1, %r4, 0; selp.b32 %r2, %r2, %r6, %p1; sub.u32 %r2, %r2, %r5;"
    values = "mov.b32 %r20, %r0; "
    report = matrix_access(values + STORE.removeprefix("mov.b32 %r20, 1; "), other, block=64)
    assert {finding.code for finding in report.findings} == {"shared_race"}


def test_what_nothing_has_written_or_set_is_followed_through_matrices() -> None:
    with pytest.raises(errors.UninitialisedShared, match="0x400, which nothing has written"):
        matrix_access(LOAD + USE)
    round_trip = "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r2], {%r40};" + LOAD
    with pytest.raises(errors.UninitialisedRegister):
        matrix_access(round_trip + USE)
    assert not matrix_access(round_trip).findings
    assert not matrix_access(STORE + LOAD + USE).findings
