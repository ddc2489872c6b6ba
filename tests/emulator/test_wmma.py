"""wmma: matrices are loaded, multiplied and stored, whatever their layout; elements stay apart."""

import numpy as np
import pytest
from ptx_harness import Array, run

from nvfp4.emulator.errors import BarrierMisuse, OutOfBounds, UnsupportedInstruction

WIDE = {"m16n16k16": (16, 16, 16), "m8n32k16": (8, 32, 16), "m32n8k16": (32, 8, 16)}
SHAPES = {
    "f16": WIDE,
    "bf16": WIDE,
    "u8": WIDE,
    "s8": WIDE,
    "tf32": {"m16n16k8": (16, 16, 8)},
}
BYTES = {"f16": 2, "bf16": 2, "u8": 1, "s8": 1, "tf32": 4, "f32": 4, "s32": 4}
SUMS = {"f16": ("f32", "f16"), "bf16": ("f32",), "tf32": ("f32",)}


def registers(kind: str, vectors: int, k: int) -> int:
    """Of a or b: as the manual's tables have it."""
    return 8 if kind == "f16" else vectors * k * BYTES[kind] // 128


def sums_registers(kind: str, rows: int, columns: int) -> int:
    return rows * columns // (64 if kind == "f16" else 32)


def stored(values: Array, kind: str) -> Array:
    """Numbers as a matrix of a type lies in memory."""
    if kind == "bf16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    dtypes = {"f16": "f2", "tf32": "f4", "f32": "f4", "u8": "u1", "s8": "i1"}
    return values.astype(dtypes.get(kind, "i4"))


def laid_out(values: Array, layout: str, stride: int) -> Array:
    """In memory: rows or columns `stride` elements apart, 99 between them."""
    lines = values if layout == "row" else values.T
    out = np.full((lines.shape[0], stride), 99, lines.dtype)
    out[:, : lines.shape[1]] = lines
    return out


def names(first: int, count: int) -> str:
    return "{" + ", ".join(f"%r{first + i}" for i in range(count)) + "}"


CASES = [
    (kind, shape, sums, layouts)
    for kind, shapes in SHAPES.items()
    for shape in shapes
    for sums in SUMS.get(kind, ("s32",))
    for layouts in (("row", "col", "row", "row"), ("col", "row", "col", "row"))
]


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(("kind", "shape", "sums", "layouts"), CASES)
def test_a_warp_multiplies_matrices_in_memory(
    kind: str, shape: str, sums: str, layouts: tuple[str, ...], padded: bool
) -> None:
    rows, columns, k = SHAPES[kind][shape]
    draw = np.random.default_rng(7)
    low = 0 if kind == "u8" else -3
    a, b = draw.integers(low, 4, (rows, k)), draw.integers(low, 4, (k, columns))
    c = draw.integers(-9, 10, (rows, columns))
    extents = [(rows, k), (k, columns), (rows, columns), (rows, columns)]
    strides = [
        extent[1 if layout == "row" else 0] + (8 if padded else 0)
        for extent, layout in zip(extents, layouts, strict=True)
    ]
    arrays = [
        stored(laid_out(values, layout, stride), each)
        for values, layout, stride, each in zip(
            (a, b, c, np.zeros_like(c)), layouts, strides, (kind, kind, sums, sums), strict=True
        )
    ]
    of_a, of_b = registers(kind, rows, k), registers(kind, columns, k)
    of_c = sums_registers(sums, rows, columns)
    held = [names(10, of_a), names(20, of_b), names(30, of_c)]
    result = names(40, of_c)
    tails = [f", {stride}" if padded else "" for stride in strides]
    types = f"{sums}.{sums}" if kind == "f16" else f"{sums}.{kind}.{kind}.{sums}"
    start = "wmma.{}.sync.aligned.{}.{}.global.{}"
    body = "".join(
        f"{start.format(f'load.{name}', layout, shape, each)} {into}, [%q{i}]{tail};"
        for i, (name, layout, each, into, tail) in enumerate(
            zip("abc", layouts, (kind, kind, sums), held, tails[:3], strict=False)
        )
    )
    body += f"wmma.mma.sync.aligned.{layouts[0]}.{layouts[1]}.{shape}.{types} "
    body += f"{result}, {', '.join(held)};"
    body += (
        f"wmma.store.d.sync.aligned.{layouts[3]}.{shape}.global.{sums} [%q3], {result}{tails[3]};"
    )
    report = run(body, *arrays)
    expected = stored(laid_out(a @ b + c, layouts[3], strides[3]), sums)
    if padded:  # what lies between the rows is not touched
        expected[:, expected.shape[1] - 8 :] = stored(np.full(1, 99), sums)
    np.testing.assert_array_equal(arrays[3], expected)
    assert not report.findings


def test_the_same_to_all_elements_is_the_same_to_the_matrix() -> None:
    """Also to those of a, of which lanes hold several copies in f16."""
    a = np.arange(8 * 16, dtype=np.float16).reshape(8, 16) / 16
    b, out = np.eye(16, 32, dtype=np.float16), np.zeros((8, 32), np.float32)
    doubled = "".join(f"mul.f16x2 %r{i}, %r{i}, %r4;" for i in range(10, 18))
    halved = "".join(f"mul.f32 %r{i}, %r{i}, 0f3E800000;" for i in range(40, 48))
    zeros = "".join(f"mov.u32 %r{i}, 0;" for i in range(30, 38))
    run(
        f"""mov.u32 %r4, 0x40004000;
        wmma.load.a.sync.aligned.row.m8n32k16.global.f16 {names(10, 8)}, [%q0];
        wmma.load.b.sync.aligned.row.m8n32k16.global.f16 {names(20, 8)}, [%q1]; {doubled}
        {zeros} wmma.mma.sync.aligned.row.row.m8n32k16.f32.f32 {names(40, 8)},
        {names(10, 8)}, {names(20, 8)}, {names(30, 8)}; {halved}
        wmma.store.d.sync.aligned.row.m8n32k16.global.f32 [%q2], {names(40, 8)};""",
        a,
        b,
        out,
    )
    assert (out[:, :16] == a / 2).all()


@pytest.mark.parametrize("space", [".shared", ""])
def test_sums_pass_through_shared_memory(space: str) -> None:
    """Two warps, each with a matrix of its own."""
    a = np.arange(2 * 256, dtype=np.float32).reshape(2, 256)
    out = np.zeros_like(a)
    body = f"""shr.u32 %r1, %r0, 5; mul.wide.u32 %d1, %r1, 1024; add.u64 %d2, %q0, %d1;
    add.u64 %d3, %q1, %d1; mov.u64 %d4, s; {"" if space else "cvta.shared.u64 %d4, %d4;"}
    add.u64 %d4, %d4, %d1;
    wmma.load.c.sync.aligned.row.m16n16k16.f32 {names(10, 8)}, [%d2];
    wmma.store.d.sync.aligned.col.m16n16k16{space}.f32 [%d4], {names(10, 8)};
    wmma.load.c.sync.aligned.row.m16n16k16{space}.f32 {names(20, 8)}, [%d4];
    wmma.store.d.sync.aligned.row.m16n16k16.f32 [%d3], {names(20, 8)};"""
    report = run(body, a, out, block=64, before=".shared .align 32 .b8 s[2048];")
    turned = a.reshape(2, 16, 16).swapaxes(1, 2).reshape(2, 256)
    assert (out == turned).all()
    assert not report.findings


def test_loads_count_the_sectors_of_their_rows() -> None:
    a = np.zeros(16 * 64 + 16, np.float16)
    a = a[-a.ctypes.data % 32 // 2 :]
    report = run(f"wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {names(10, 8)}, [%q0], 64;", a)
    assert report.sectors_distinct == 16
    assert report.global_read_bytes == 16 * 16 * 2


def test_a_row_past_the_end_is_out_of_bounds() -> None:
    a = np.zeros(16 * 16 - 1, np.float32)
    with pytest.raises(OutOfBounds):
        run(f"wmma.load.c.sync.aligned.row.m16n16k16.f32 {names(10, 8)}, [%q0];", a)


def test_all_threads_of_a_warp_take_part() -> None:
    body = f"""setp.lt.u32 %p1, %r0, 7; @%p1 bra END;
    wmma.load.c.sync.aligned.row.m16n16k16.f32 {names(10, 8)}, [%q0]; END:"""
    with pytest.raises(BarrierMisuse, match="only 25 threads of a warp"):
        run(body, np.zeros(256, np.float32))


@pytest.mark.parametrize(
    "text",
    [
        "wmma.load.a.sync.aligned.row.m16n16k8.f16 {%r1}, [%q0];",
        "wmma.load.d.sync.aligned.row.m16n16k16.f32 {%r1}, [%q0];",
        "wmma.load.a.sync.aligned.row.m16n16k16.f16 {%r1, %r2}, [%q0];",
        "wmma.mma.sync.aligned.row.col.m16n16k16.f32.bf16.f16.f32 {%r1}, {%r1}, {%r1}, {%r1};",
        "wmma.mma.sync.aligned.row.col.m16n16k16.f16.bf16.bf16.f16 {%r1}, {%r1}, {%r1}, {%r1};",
    ],
)
def test_what_is_no_form_of_it_is_refused_by_name(text: str) -> None:
    with pytest.raises(UnsupportedInstruction, match="wmma"):
        run(text, np.zeros(256, np.float32))
