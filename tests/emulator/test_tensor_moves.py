"""tcgen05.ld, st and cp: which word goes where, for all shapes."""

import numpy as np
import pytest
from ptx_harness import Array
from tensor_harness import (
    COMMIT,
    TILES,
    WAIT,
    by_one_thread,
    core_matrices,
    descriptor,
    execute,
    registers,
)

PLACES = {
    "32x32b": lambda t, j: (t, j),
    "16x64b": lambda t, j: (t // 4 + 8 * (t % 2), 2 * j + t // 2 % 2),
    "16x128b": lambda t, j: (t // 4 + 8 * (j % 2), 4 * (j // 2) + t % 4),
    "16x256b": lambda t, j: (t // 4 + 8 * (j // 2 % 2), 8 * (j // 4) + 2 * (t % 4) + j % 2),
    "16x32bx2": lambda t, j: (t % 16, j + t // 16 * 7),
}
"""By thread and register: lane and column."""
EACH = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1}
SPLIT = {"16x32bx2": ", 7"}
CASES = [(shape, times) for shape in PLACES for times in (1, 2, 4)]

NUMBERS = f"""mov.u32 %r20, 0; shl.b32 %r21, %r0, 8;
{"".join(f"add.u32 %v{i}, %r21, {i};" for i in range(64))}
tcgen05.st.sync.aligned.32x32b.x64.b32 [%r2], {registers(64)};
tcgen05.wait::st.sync.aligned;"""
"""Each word of 64 columns of tensor memory: lane << 8 | column."""


def stored(count: int, first: int = 64) -> str:
    stores = "".join(f"st.global.u32 [%d2+{4 * i}], %v{first + i};" for i in range(count))
    return f"mul.wide.u32 %d2, %r0, {4 * count}; add.u64 %d2, %q1, %d2; {stores}"


def ran(middle: str, out: Array, *tiles: Array) -> Array:
    assert not execute(middle, tiles or [np.zeros(16, np.uint8)], out, columns=64).findings
    return out


@pytest.mark.parametrize(
    ("shape", "times", "lane"),
    [(*case, lane) for case in CASES for lane in (0, 16) if case[0] != "32x32b" or not lane],
)
def test_a_load_gives_each_thread_its_words(shape: str, times: int, lane: int) -> None:
    count, split = EACH[shape] * times, SPLIT.get(shape, "")
    load = f"tcgen05.ld.sync.aligned.{shape}.x{times}.b32 {registers(count, 64)}, [%r3]{split};"
    middle = f"{NUMBERS} add.u32 %r3, %r2, {lane << 16 | 5}; {load}"
    middle += "tcgen05.wait::ld.sync.aligned;" + stored(count)
    found = ran(middle, np.zeros((128, count), np.uint32))
    for thread in range(128):
        for j in range(count):
            at, column = PLACES[shape](thread % 32, j)
            assert found[thread, j] == ((thread // 32 * 32 + lane + at) << 8 | (5 + column))


@pytest.mark.parametrize(("shape", "times"), CASES)
def test_a_store_is_the_inverse_of_a_load(shape: str, times: int) -> None:
    count, split = EACH[shape] * times, SPLIT.get(shape, "")
    mine = "".join(f"mad.lo.u32 %v{i}, %r0, 1000, {i};" for i in range(count))
    middle = f"""{NUMBERS} {mine}
    tcgen05.st.sync.aligned.{shape}.x{times}.b32 [%r2]{split}, {registers(count)};
    tcgen05.wait::st.sync.aligned;
    tcgen05.ld.sync.aligned.{shape}.x{times}.b32 {registers(count, 64)}, [%r2]{split};
    tcgen05.wait::ld.sync.aligned;{stored(count)}"""
    found = ran(middle, np.zeros((128, count), np.uint32))
    assert np.array_equal(found, np.arange(128)[:, None] * 1000 + np.arange(count))


def test_a_lane_below_32_is_relative_to_the_warp() -> None:
    """As DeepGEMM's epilogue addresses tensor memory, on hardware."""
    load = "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%v64}, [%r1];"
    load += "tcgen05.wait::ld.sync.aligned;"
    found = ran(NUMBERS + load + stored(1), np.zeros((128, 1), np.uint32))
    assert found[:, 0].tolist() == [lane << 8 for lane in range(128)]


COPIES = {
    "128x256b": (128, 8, lambda row: [row]),
    "128x128b": (128, 4, lambda row: [row]),
    "4x256b": (4, 8, lambda row: [32 * row]),
    "64x128b.warpx2::02_13": (64, 4, lambda row: [row % 32 + 32 * (row // 32 + i) for i in (0, 2)]),
    "64x128b.warpx2::01_23": (
        64,
        4,
        lambda row: [row % 32 + 64 * (row // 32) + i for i in (0, 32)],
    ),
    "32x128b.warpx4": (32, 4, lambda row: [row + i for i in (0, 32, 64, 96)]),
}


@pytest.mark.parametrize("shape", COPIES)
@pytest.mark.parametrize("form", ["", "b4x16_p64", "b6x16_p32"])
def test_a_copy_brings_rows_of_shared_memory_to_lanes(shape: str, form: str) -> None:
    rows, columns, lanes = COPIES[shape]
    source = np.random.default_rng(1).integers(0, 256, (max(rows, 8), 4 * columns), np.uint8)
    wide = source
    if form:
        bits = int(form[1])
        chunks = np.unpackbits(source.reshape(-1, 16)[:, : 2 * bits], axis=1, bitorder="little")
        codes = np.packbits(chunks.reshape(-1, 16, bits), axis=2, bitorder="little")
        wide = (codes[..., 0] << (2 if bits == 4 else 0)).astype(np.uint8).reshape(source.shape)
    words = wide.view(np.uint32)
    text = f"tcgen05.cp.cta_group::1.{shape}{'.b8x16.' + form if form else ''} [%r3], %d3;"
    leading, stride = 128, 128 * (columns // 4)
    # A base offset counts only with a swizzle, and Triton 3.5 sets version 0.
    source_bits = descriptor(TILES, leading, stride, version=int(bool(form))) | 4 << 49
    middle = f"""{NUMBERS} tcgen05.fence::before_thread_sync; bar.sync 0;
    tcgen05.fence::after_thread_sync; add.u32 %r3, %r1, 3;
    {by_one_thread(f"mov.b64 %d3, {source_bits};" + text + COMMIT)} {WAIT}
    tcgen05.ld.sync.aligned.32x32b.x16.b32 {registers(16, 64)}, [%r2];
    tcgen05.wait::ld.sync.aligned; {stored(16)}"""
    found = ran(middle, np.zeros((128, 16), np.uint32), core_matrices(source))
    expected = np.arange(128)[:, None] << 8 | np.arange(16)
    for row in range(rows):
        for lane in lanes(row):
            expected[lane, 3 : 3 + columns] = words[row]
    assert np.array_equal(found, expected)
