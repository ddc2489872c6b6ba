"""Copies of tensor tiles: boxes, fills, swizzles and their alignment."""

from typing import Any

import numpy as np
import pytest
from ptx_harness import MINE, aligned, out, run

from nvfp4.emulator import errors
from nvfp4.records.tensormap import DataType, Fill, Swizzle, TensorMap

SHARED = ".shared .align 1024 .b8 s[8192]; .shared .align 8 .b64 bar;"
ELECT0 = "setp.eq.u32 %p1, %r0, 0;"
WAIT = "W: mbarrier.try_wait.parity.shared.b64 %p5, [%r20], 0; @!%p5 bra W;"


def tile_kernel(rank: int, nbytes: int) -> str:
    """Load a box at the coordinates in a2 and write shared memory out, 4 bytes a thread."""
    coordinates = ", ".join(f"%r{30 + i}" for i in range(rank))
    loads = "".join(f"ld.global.u32 %r{30 + i}, [%q2+{4 * i}];" for i in range(rank))
    return f"""mov.u32 %r20, bar; mov.u32 %r10, s; {loads} {ELECT0} @!%p1 bra GO;
    mbarrier.init.shared.b64 [%r20], 1; mbarrier.arrive.expect_tx.shared.b64 _, [%r20], {nbytes};
    cp.async.bulk.tensor.{rank}d.shared::cta.global.tile.mbarrier::complete_tx::bytes
    [%r10], [%q1, {{{coordinates}}}], [%r20];
    GO: bar.sync 0; {WAIT} shl.b32 %r11, %r0, 2; add.u32 %r10, %r10, %r11;
    ld.shared.u32 %r5, [%r10]; {MINE} st.global.u32 [%d0], %r5;"""


def map_of(data: np.ndarray, kind: DataType, box: tuple[int, ...], **more: Any) -> TensorMap:
    """A map of all of `data`, whose outermost dimension is the first."""
    shape, steps = tuple(reversed(data.shape)), tuple(reversed(data.strides))[1:]
    return TensorMap(kind, data.ctypes.data, shape, steps, box, (1,) * len(box), **more)


def load_tile(
    data: np.ndarray, kind: DataType, box: tuple[int, ...], start: tuple[int, ...], **more: Any
) -> np.ndarray:
    """The box as shared memory holds it, as bytes. data: outermost dimension first."""
    return load(map_of(data, kind, box, **more), data, start)[0].view(np.uint8)


def load(
    tile: TensorMap, data: np.ndarray, start: Any = (0, 0), before: str = "", shared: str = "s"
) -> tuple[np.ndarray, Any]:
    """The box as words, and the report. before: what the kernel does first. shared: where to."""
    a, where = out(tile.box_bytes // 4), np.array(start, np.int32)
    body = before + tile_kernel(len(tile.box), tile.box_bytes)
    body = body.replace("mov.u32 %r10, s;", f"mov.u32 %r10, {shared};")
    return a, run(body, a, aligned(tile.pack()), where, data, block=a.size, before=SHARED)


def test_a_two_dimensional_tile() -> None:
    data = aligned(np.arange(8 * 32, dtype=np.uint32).reshape(8, 32))
    got = load_tile(data, DataType.UINT32, (16, 4), (8, 2)).view(np.uint32).reshape(4, 16)
    assert (got == data[2:6, 8:24]).all()


REPLACED = "tensormap.replace.tile.global_dim.global.b1024.b32 [%q1], 0, %r9;"
STORED = "sub.u32 %r9, %r9, 1; st.global.u32 [%q1+32], %r9;"


@pytest.mark.parametrize("changed", [REPLACED, STORED])
@pytest.mark.parametrize("fenced", [False, True])
def test_a_map_that_the_kernel_has_changed_is_read_after_an_acquiring_fence(
    fenced: bool, changed: str
) -> None:
    data = aligned(np.arange(8 * 32, dtype=np.uint32).reshape(8, 32))
    change = f"setp.ne.u32 %p2, %r0, 0; @%p2 bra MADE; mov.b32 %r9, 32; {changed} MADE:"
    if fenced:
        change += "fence.proxy.tensormap::generic.acquire.gpu [%q1], 128;"
    _, report = load(map_of(data, DataType.UINT32, (16, 4)), data, before=change)
    assert {each.code for each in report.findings} == (set() if fenced else {"proxy_fence"})


def test_a_map_that_has_changed_is_read_again() -> None:
    data = aligned(np.arange(8 * 32, dtype=np.uint32).reshape(8, 32))
    once = tile_kernel(2, 256).replace("%r20, bar", "%r20, bar+8")
    again = tile_kernel(2, 256).replace("GO", "ON").replace("W:", "V:").replace("bra W", "bra V")
    change = """bar.sync 0; add.u64 %d9, %q3, 128; @%p1 st.global.u64 [%q1], %d9;
    fence.proxy.tensormap::generic.acquire.gpu [%q1], 128;"""
    a, tile = out(64), aligned(map_of(data, DataType.UINT32, (16, 4)).pack())
    more: Any = {"block": 64, "before": SHARED.replace("bar;", "bar[2];")}
    run(once + change + again, a, tile, np.zeros(2, np.int32), data, **more)
    assert (a.reshape(4, 16) == data[1:5, :16]).all()


@pytest.mark.parametrize(
    ("kind", "first", "last"), [("FLOAT32_FTZ", 0, 1), ("TFLOAT32", 1 << 16, 0)]
)
def test_loads_round_to_tf32_or_flush_denormal_numbers(kind: str, first: int, last: int) -> None:
    data = aligned(np.array([[1 << 16] + 31 * [0x3FA00001]], np.uint32))
    got = load_tile(data, DataType[kind], (16, 1), (0, 0)).view(np.uint32)
    assert got[:2].tolist() == [first, 0x3FA00000 + last]


@pytest.mark.parametrize("pitch", [16, 64])
def test_rows_shorter_than_a_sector_fetch_whole_ones(pitch: int) -> None:
    data = aligned(np.zeros(8 * pitch, np.uint8))
    tile = TensorMap(DataType.UINT8, data.ctypes.data, (16, 8), (pitch,), (16, 8), (1, 1))
    _, report = load(tile, data)
    assert sum(each.copied for each in report.work.asked.values()) == 8 * 32


def test_elements_outside_the_tensor_are_zero_on_every_side() -> None:
    data = aligned(np.arange(1, 257, dtype=np.uint32).reshape(8, 32))
    got = load_tile(data, DataType.UINT32, (16, 4), (-4, 6)).view(np.uint32).reshape(4, 16)
    assert (got[:2, 4:] == data[6:, :12]).all()
    assert (got[:, :4] == 0).all()
    assert (got[2:] == 0).all()


def test_a_tile_wholly_outside_still_completes_its_bytes() -> None:
    data = aligned(np.zeros((8, 32), np.uint32))
    assert (load_tile(data, DataType.UINT32, (16, 4), (32, 0)) == 0).all()


def test_a_nan_fill() -> None:
    data = aligned(np.zeros((8, 32), np.float32))
    got = load_tile(data, DataType.FLOAT32, (16, 4), (24, 0), fill=Fill.NAN).view(np.float32)
    assert np.isnan(got.reshape(4, 16)[:, 8:]).all()
    assert (got.reshape(4, 16)[:, :8] == 0).all()


@pytest.mark.parametrize("lines", [0, 1, 2, 3, 5, 7])
@pytest.mark.parametrize(
    ("swizzle", "span", "nbytes"),
    [
        (Swizzle.BYTES_32, 32, 16),
        (Swizzle.BYTES_64, 64, 16),
        (Swizzle.BYTES_128, 128, 16),
        (Swizzle.BYTES_128_ATOM_32, 128, 32),  # tensor cores read it transposed in 32 bits
    ],
)
def test_a_swizzle_moves_pieces_by_the_bits_of_the_shared_address(
    swizzle: Swizzle, span: int, nbytes: int, lines: int
) -> None:
    """Piece j of 128-byte line i goes to j xor (i mod pieces of the span). A tile that starts
    `lines` lines after a multiple of 1024 begins with another row of the pattern."""
    rows, pieces = 2048 // span, 128 // nbytes
    data = aligned(np.random.default_rng(1).integers(0, 256, 2048, np.uint8))
    tile = map_of(data.reshape(rows, span), DataType.UINT8, (span, rows), swizzle=swizzle)
    words, _ = load(tile, data, shared=f"s+{128 * lines}")
    got, flat = (each.view(np.uint8).reshape(16, pieces, nbytes) for each in (words, data))
    for line in range(16):
        for piece in range(pieces):
            moved = piece ^ ((line + lines) % (span // nbytes))
            assert (got[line, moved] == flat[line, piece]).all()


def test_a_tile_must_be_aligned_to_128_bytes() -> None:
    data = aligned(np.zeros((8, 128), np.uint8))
    tile = map_of(data, DataType.UINT8, (128, 8), swizzle=Swizzle.BYTES_128)
    with pytest.raises(errors.Misaligned, match="multiple of 128"):
        load(tile, data, shared="s+64")


@pytest.mark.parametrize("rank", [1, 3, 4, 5])
def test_tiles_of_other_ranks(rank: int) -> None:
    shape = (2, 3, 4, 5, 16)[5 - rank :]
    data = aligned(np.arange(int(np.prod(shape)), dtype=np.uint32).reshape(shape))
    box = (8, 2, 2, 2, 1)[:rank]
    got = load_tile(data, DataType.UINT32, box, (4, 1, 1, 1, 1)[:rank]).view(np.uint32)
    starts = tuple(reversed((4, 1, 1, 1, 1)[:rank]))
    index = tuple(slice(s, s + b) for s, b in zip(starts, reversed(box), strict=True))
    assert (got.reshape(tuple(reversed(box))) == data[index]).all()


def test_packed_fp4_tiles_are_counted_in_half_bytes() -> None:
    data = aligned(np.arange(256, dtype=np.uint8).reshape(4, 64))
    tile = TensorMap(
        DataType.PACKED_16U4_ALIGN8B, data.ctypes.data, (128, 4), (64,), (64, 2), (1, 1)
    )
    a, _ = load(tile, data, (32, 1))
    assert (a.view(np.uint8).reshape(2, 32) == data[1:3, 16:48]).all()


def test_a_tile_store_drops_what_lies_outside() -> None:
    data = aligned(np.zeros((8, 32), np.uint32))
    tile = TensorMap(DataType.UINT32, data.ctypes.data, (32, 8), (128,), (16, 4), (1, 1))
    body = f"""mov.u32 %r10, s; shl.b32 %r11, %r0, 2; add.u32 %r12, %r10, %r11;
    add.u32 %r5, %r0, 1; st.shared.u32 [%r12], %r5; fence.proxy.async; bar.sync 0; {ELECT0}
    @!%p1 bra E; mov.u32 %r6, 24; mov.u32 %r7, -1;
    cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%q1, {{%r6, %r7}}], [%r10];
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; E:"""
    run(body, out(), aligned(tile.pack()), data, block=64, before=SHARED)
    expected = np.zeros((8, 32), np.uint32)
    expected[:3, 24:] = np.arange(1, 65).reshape(4, 16)[1:, :8]
    assert (data == expected).all()


def test_a_tensor_that_reaches_past_its_buffer_is_caught() -> None:
    data = aligned(np.zeros((8, 32), np.uint32))
    tile = TensorMap(DataType.UINT32, data.ctypes.data, (32, 9), (128,), (16, 4), (1, 1))
    with pytest.raises(errors.OutOfBounds):
        load(tile, data, (0, 6))


def test_bytes_that_are_no_tensor_map_are_refused() -> None:
    where = np.zeros(2, np.int32)
    with pytest.raises(errors.TensorMapError, match="not a tensor map"):
        run(tile_kernel(2, 256), out(), aligned(bytes(128)), where, block=64, before=SHARED)
