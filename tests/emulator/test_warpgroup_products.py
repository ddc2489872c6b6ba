"""wgmma: products of all types and layouts, and what is done with them too early."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from ptx_harness import aligned, run
from tensor_harness import BARRIER, FILL_TILES, TILES, core_matrices, registers
from test_tensor_products import KINDS, WIDTHS, drawn, swizzled

from nvfp4.emulator import LaunchReport
from nvfp4.emulator.arithmetic import fused_dots
from nvfp4.emulator.errors import BarrierMisuse, EmulatorError, TensorRace, UnsupportedInstruction

Array = np.ndarray[Any, Any]

FILL = f"""{FILL_TILES}
setp.ne.u32 %p5, %r0, %r0; setp.eq.u32 %p6, %r0, %r0; setp.eq.u32 %p1, %r0, 0;
"""
FENCE, COMMIT = "wgmma.fence.sync.aligned;", "wgmma.commit_group.sync.aligned;"
WAIT = "wgmma.wait_group.sync.aligned 0;"
HOPPER = {0: 0, 6: 3, 4: 2, 2: 1}
"""The codes of swizzles, by those of tcgen05."""


def descriptor(address: int, leading: int = 0, stride: int = 0, swizzle: int = 0) -> int:
    return (
        address >> 4 & 0x3FFF | (leading >> 4) << 16 | (stride >> 4) << 32 | HOPPER[swizzle] << 62
    )


def stored(count: int, first: int = 0) -> str:
    """Each thread stores registers of its own to q1."""
    stores = "".join(f"st.global.u32 [%d2+{4 * i}], %v{first + i};" for i in range(count))
    return f"mul.wide.u32 %d2, %r0, {4 * count}; add.u64 %d2, %q1, %d2; {stores}"


def execute(
    middle: str, tiles: Sequence[Array], count: int, block: int = 128, **options: Any
) -> tuple[LaunchReport, Array]:
    """The report, and what each thread has stored to q1."""
    data = np.concatenate([np.ascontiguousarray(each).view(np.uint8).reshape(-1) for each in tiles])
    data, out = aligned(np.pad(data, (0, -data.size % 16))), np.zeros((128, count), np.uint32)
    body = ".reg .b32 %v<160>;" + FILL.replace("WORDS", str(data.size // 16)) + middle
    size = TILES + data.size + 1024
    return run(body, data, out, block=block, shared_bytes=size - BARRIER, **options), out


def rows_and_columns(words: Array) -> Array:
    """[64, N] of the registers of 128 threads."""
    group = words.reshape(4, 8, 4, -1, 2, 2)  # warp, lane / 4, lane % 4, eight columns, half, pair
    return group.transpose(0, 4, 1, 3, 2, 5).reshape(64, -1)


def product(
    name: str, columns: int, a: int | str, b: int, d: str = "", more: str = "", keeps: str = "%p5"
) -> str:
    """Sums of products in %v0 and on."""
    depth = {1: 32, 2: 16, 4: 8}[np.dtype(KINDS.get(name, KINDS["i8"])[1]).itemsize]
    types = {"i8": "s8.s8", "u8": "u8.u8"}.get(name, f"{name}.{name}")
    d = d or ("s32" if name in ("i8", "u8") else "f32")
    count = columns // (4 if d == "f16" else 2)
    more = more or ("" if d == "s32" else ", 1, 1" + (", 0, 0" if depth == 16 else ""))
    first = f"mov.b64 %d5, {a};" if isinstance(a, int) else ""
    operand = "%d5" if isinstance(a, int) else a
    return f"""{first} mov.b64 %d6, {b};
    wgmma.mma_async.sync.aligned.m64n{columns}k{depth}.{d}.{types} {registers(count)}, {operand},
    %d6, {keeps}{more};"""


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("swizzle", WIDTHS)
def test_a_product_of_any_type_reads_any_swizzle(name: str, swizzle: int) -> None:
    (a, left), (b, right) = drawn(name, 64, 1), drawn(name, 16, 2)
    tiles = [
        np.pad(each, (0, -each.size % 1024))
        for each in (swizzled(a, swizzle), swizzled(b, swizzle))
    ]
    leading, stride = (128, 256) if not swizzle else (16, 8 * WIDTHS[swizzle])
    of_a = descriptor(TILES, leading, stride, swizzle)
    of_b = descriptor(TILES + tiles[0].size, leading, stride, swizzle)
    middle = FENCE + product(name, 16, of_a, of_b)
    middle += product(name, 16, of_a, of_b, keeps="%p6") + COMMIT + WAIT + stored(8)
    report, out = execute(middle, tiles, 8)
    found = rows_and_columns(out).view(np.int32 if name in ("i8", "u8") else np.float32)
    assert np.array_equal(found, 2 * left @ right.T)
    assert not report.findings
    assert (report.tensor_instructions, report.tensor_cycles) == (2, 16)


def plain(name: str = "f16", columns: int = 16) -> tuple[list[Array], int, int, Array, Array]:
    (a, left), (b, right) = drawn(name, 64, 1), drawn(name, columns, 2)
    tiles = [core_matrices(a), core_matrices(b)]
    return tiles, descriptor(TILES, 128, 256), descriptor(TILES + 2048, 128, 256), left, right


def test_signs_halves_and_saturation() -> None:
    tiles, of_a, of_b, left, right = plain()
    middle = FENCE + product("f16", 16, of_a, of_b, d="f16", more=", -1, 1, 0, 0") + COMMIT + WAIT
    _, out = execute(middle + stored(4), tiles, 4)
    halves = out.view(np.float16).reshape(128, 2, 2, 2)  # eight columns, half, pair
    assert np.array_equal(rows_and_columns(halves), -(left @ right.T))
    tiles, of_a, of_b, left, right = plain("i8")
    start = "".join(f"mov.b32 %v{i}, 0x7fffffff;" for i in range(8))
    sum_ = product("i8", 16, of_a, of_b, keeps="%p6").replace(".s8.s8", ".s8.s8.satfinite")
    _, out = execute(start + FENCE + sum_ + COMMIT + WAIT + stored(8), tiles, 8)
    expected = np.minimum(left @ right.T + 0x7FFFFFFF, 0x7FFFFFFF)
    assert np.array_equal(rows_and_columns(out).view(np.int32), expected)


def test_matrices_of_16_bits_are_transposed() -> None:
    (a, left), (b, right) = drawn("bf16", 64, 1), drawn("bf16", 16, 2)

    def along_rows(rows: Array) -> Array:
        chunks = rows.view(np.uint16).T.reshape(2, 8, -1, 8)  # eights of K, K, chunks of rows
        return np.ascontiguousarray(chunks.transpose(2, 0, 1, 3)).reshape(-1)

    tiles = [along_rows(a), along_rows(b)]
    of_a, of_b = (descriptor(each, 128, 256) for each in (TILES, TILES + 2048))
    middle = FENCE + product("bf16", 16, of_a, of_b, more=", 1, 1, 1, 1") + COMMIT + WAIT
    report, out = execute(middle + stored(8), tiles, 8)
    assert np.array_equal(rows_and_columns(out).view(np.float32), left @ right.T)
    assert not report.findings


@pytest.mark.parametrize("name", ["f16", "tf32", "e4m3", "u8"])
def test_a_may_stand_in_registers(name: str) -> None:
    tiles, _, of_b, left, right = plain(name)
    words = drawn(name, 64, 1)[0].view(np.uint32).reshape(4, 2, 8, 2, 4)
    fragments = words.transpose(0, 2, 4, 3, 1).reshape(128, 4)  # warp, row, word; half of K, rows
    tiles.append(np.ascontiguousarray(fragments))
    load = f"""mul.wide.u32 %d7, %r0, 16; add.u64 %d7, %q0, %d7;
    ld.global.v4.u32 {registers(4, 100)}, [%d7+{2048 + 512}];"""
    more = {"f16": ", 1, 1, 0", "u8": ""}.get(name, ", 1, 1")
    middle = load + FENCE + product(name, 16, registers(4, 100), of_b, more=more or " ")
    report, out = execute(middle + COMMIT + WAIT + stored(8), tiles, 8)
    found = rows_and_columns(out).view(np.int32 if name == "u8" else np.float32)
    assert np.array_equal(found, left @ right.T)
    assert not report.findings


def test_sums_of_fp8_keep_13_bits() -> None:
    one, small = 0x38, 0x01  # 1 and 2^-9 as e4m3
    a = np.array([[one, small]], np.uint8)
    b = np.array([[one, small]], np.uint8)
    c = np.zeros((1, 1), np.uint32)
    exact = fused_dots.dots(a, b, ("e4m3", "e4m3"), c, half=False).view(np.float32)
    found = fused_dots.dots(a, b, ("e4m3", "e4m3"), c, half=False, on_hopper=True).view(np.float32)
    assert exact == 1 + 2**-18 and found == 1


# --- too early --------------------------------------------------------------------------------

TILES_OF, OF_A, OF_B, LEFT, RIGHT = plain()
ISSUE = FENCE + product("f16", 16, OF_A, OF_B)


def findings(middle: str, count: int = 8, **options: Any) -> list[str]:
    """The codes of what is found, whether a result depends on it or not, each once."""
    try:
        report, _ = execute(middle, TILES_OF, count, **options)
    except EmulatorError as error:
        return [error.code]
    return sorted({found.code for found in report.findings})


def test_sums_that_are_read_before_they_are_waited_for_are_found() -> None:
    report, out = execute(ISSUE + COMMIT + stored(8), TILES_OF, 8)
    found = report.findings[0]
    assert found.code == "tensor_race" and "no wgmma.wait_group" in found.message
    assert (found.count, len(report.findings)) == (8 * 128, 1)
    assert np.array_equal(rows_and_columns(out).view(np.float32), LEFT @ RIGHT.T)  # as ptxas has it
    assert findings(ISSUE + WAIT + stored(8)) == ["tensor_race"]  # in no group
    later = ISSUE + COMMIT + product("f16", 16, OF_A, OF_B, keeps="%p6") + COMMIT
    assert findings(later + WAIT.replace("0;", "1;") + stored(8)) == ["tensor_race"]
    assert findings(later + WAIT + stored(8)) == []


def test_a_group_that_is_older_than_those_under_way_is_complete() -> None:
    other = product("f16", 16, OF_A, OF_B)
    other = re.sub(r"%v(\d+)", lambda m: f"%v{int(m[1]) + 8}", other)
    both = ISSUE + COMMIT + other + COMMIT + WAIT.replace("0;", "1;")
    assert findings(both + stored(8) + WAIT) == []
    assert findings(both + stored(8, first=8) + WAIT) == ["tensor_race"]


def test_a_mov_is_no_use_of_the_sums_and_what_it_moves_is_not_complete() -> None:
    moves = "".join(f"mov.b32 %v{16 + i}, %v{i};" for i in range(8))
    assert findings(ISSUE + COMMIT + moves + WAIT + stored(8, first=16)) == []
    assert findings(ISSUE + COMMIT + moves + stored(8, first=16) + WAIT) == ["tensor_race"]


def test_shared_memory_is_not_overwritten_while_it_is_read() -> None:
    store = f"mov.u32 %r20, {TILES + 64}; mov.u32 %r21, 0; @%p1 st.shared.u32 [%r20], %r21;"
    with pytest.raises(TensorRace, match=r"which wgmma\.mma_async.* may still read: no wait"):
        execute(ISSUE + COMMIT + store + WAIT + stored(8), TILES_OF, 8)
    assert findings(ISSUE + COMMIT + WAIT + store + stored(8)) == []
    another = store.replace("@%p1", "setp.eq.u32 %p7, %r0, 40; @%p7").replace("+ 64", "")
    another = another.replace(str(TILES + 64), str(TILES + 2048))  # b, which all warps read
    assert findings(ISSUE + COMMIT + WAIT + another + stored(8)) == ["tensor_race"]
    assert findings(ISSUE + COMMIT + WAIT + "bar.sync 0;" + another + stored(8)) == []


def test_what_threads_store_wants_a_proxy_fence() -> None:
    store = f"mov.u32 %r20, {TILES}; mov.u32 %r21, 0; @%p1 st.shared.u32 [%r20], %r21;"
    rest = "bar.sync 0;" + ISSUE + COMMIT + WAIT + stored(8)
    assert findings(store + rest) == ["proxy_fence"]
    assert findings(store + "fence.proxy.async.shared::cta;" + rest) == []


def test_a_product_without_a_fence_before_it_is_found() -> None:
    assert findings(ISSUE.replace(FENCE, "") + COMMIT + WAIT + stored(8)) == ["tensor_fence"]


def test_what_nothing_has_written_is_noticed() -> None:
    beyond = descriptor(TILES + 2048 + 256, 128, 256)
    issue = "".join(f"mov.b32 %v{i}, 0;" for i in range(8))
    issue += FENCE + product("f16", 16, OF_A, beyond) + COMMIT + WAIT
    assert findings(issue + stored(1), 1) == []
    assert findings(issue + stored(1, first=4), 1) == ["unwritten_shared"]


def test_a_warpgroup_has_four_warps() -> None:
    with pytest.raises(BarrierMisuse, match="fewer than 4 warps: the block has 96"):
        execute(ISSUE + COMMIT + WAIT, TILES_OF, 8, block=96)


@pytest.mark.parametrize(
    ("opcode", "words"),
    [
        ("wgmma.mma_async.sp.sync.aligned.m64n16k32.f32.f16.f16", "sparse matrices"),
        ("wgmma.mma_async.sync.aligned.m64n16k256.s32.b1.b1.and.popc", "is not emulated"),
        ("wgmma.mma_async.sync.aligned.m64n12k16.f32.f16.f16", "no product of this shape"),
        ("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.bf16", "no product of this shape"),
    ],
)
def test_other_products_are_refused_by_name(opcode: str, words: str) -> None:
    text = f"{opcode} {registers(8)}, %d5, %d6, %p5, 1, 1, 0, 0;"
    with pytest.raises(UnsupportedInstruction, match=words):
        execute(text, TILES_OF, 8)
