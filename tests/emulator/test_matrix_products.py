"""mma.sync against the fragments of the PTX ISA, written down as loops."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_harness import Array, run

from nvfp4.emulator.arithmetic.formats import FORMATS, decode, encode
from nvfp4.emulator.errors import BarrierMisuse, UninitialisedRegister, UnsupportedInstruction

WARPS = 2
SHAPES = {"m8n8k16": (8, 16), "m16n8k16": (16, 16), "m16n8k32": (16, 32)}
TYPES = {"u8": np.uint8, "s8": np.int8}


def place_in_a(rows: int, lane: int, register: int, byte: int) -> tuple[int, int]:
    """Row and column of the element of a that a lane holds in a byte of a register."""
    element = 4 * register + byte
    row, column = lane >> 2, 4 * (lane & 3) + (element & 3)
    if rows == 8:
        return row, column
    lower = element < 4 or 8 <= element < 12
    return row if lower else row + 8, column + (16 if element >= 8 else 0)


def place_in_b(lane: int, register: int, byte: int) -> tuple[int, int]:
    """Row and column of the element of b."""
    return 4 * (lane & 3) + byte + 16 * register, lane >> 2


def place_in_c(lane: int, register: int) -> tuple[int, int]:
    """Row and column of the element of c and d."""
    return (lane >> 2) + (8 if register >= 2 else 0), 2 * (lane & 3) + (register & 1)


def fragments(matrix: Array, registers: int, place: object) -> Array:
    """uint32[lanes, registers] of a matrix of bytes."""
    raw, out = matrix.view(np.uint8), np.zeros((32, registers, 4), np.uint8)
    for lane in range(32):
        for register in range(registers):
            for byte in range(4):
                out[lane, register, byte] = raw[place(lane, register, byte)]  # type: ignore[operator]
    return out.reshape(32, -1).view(np.uint32)


def body(shape: str, form: str, counts: tuple[int, int, int], use: str = "") -> str:
    """Loads a thread's registers of a, b and c from 16 words of q0, stores d to q1."""
    names, loads, first = [], [], 0
    for count, start in zip(counts, (8, 16, 24), strict=True):
        names.append("{" + ", ".join(f"%r{start + i}" for i in range(count)) + "}")
        loads += [f"ld.global.b32 %r{start + i}, [%d0+{4 * (first + i)}];" for i in range(count)]
        first += count
    d = "{" + ", ".join(f"%r{32 + i}" for i in range(counts[2])) + "}"
    stores = "".join(f"st.global.b32 [%d1+{4 * i}], %r{32 + i};" for i in range(counts[2]))
    return f"""
mul.wide.u32 %d0, %r0, 64; add.u64 %d0, %q0, %d0; mul.wide.u32 %d1, %r0, 16; add.u64 %d1, %q1, %d1;
{"".join(loads)}{use}
mma.sync.aligned.{shape}.row.col{form} {d}, {names[0]}, {names[1]}, {names[2]};
{stores}"""


def counts_of(shape: str) -> tuple[int, int, int]:
    rows, k = SHAPES[shape]
    return rows * k // 128, k // 16, rows // 4


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("a_type", TYPES)
@pytest.mark.parametrize("b_type", TYPES)
@pytest.mark.parametrize("saturates", [False, True])
def test_a_warp_multiplies_its_matrices(
    shape: str, a_type: str, b_type: str, saturates: bool
) -> None:
    rows, k = SHAPES[shape]
    counts, draw = counts_of(shape), np.random.default_rng(3)
    words, out = np.zeros((WARPS, 32, 16), np.uint32), np.zeros((WARPS, 32, 4), np.uint32)
    expected = np.zeros((WARPS, 32, 4), np.uint32)
    for warp in range(WARPS):
        a = draw.integers(0, 256, (rows, k)).astype(np.uint8).view(TYPES[a_type])
        b = draw.integers(0, 256, (k, 8)).astype(np.uint8).view(TYPES[b_type])
        c = draw.integers(-(2**31), 2**31, (rows, 8))
        exact = a.astype(np.int64) @ b.astype(np.int64) + c
        d = exact.clip(-(2**31), 2**31 - 1) if saturates else exact
        found = [
            fragments(a, counts[0], lambda *at: place_in_a(rows, *at)),
            fragments(b, counts[1], place_in_b),
        ]
        words[warp, :, : counts[0] + counts[1]] = np.concatenate(found, axis=1)
        for lane in range(32):
            for register in range(counts[2]):
                at = place_in_c(lane, register)
                words[warp, lane, counts[0] + counts[1] + register] = int(c[at]) & 0xFFFFFFFF
                expected[warp, lane, register] = int(d[at]) & 0xFFFFFFFF
    form = f"{'.satfinite' if saturates else ''}.s32.{a_type}.{b_type}.s32"
    report = run(body(shape, form, counts), words, out, block=32 * WARPS)
    np.testing.assert_array_equal(out, expected)
    assert not report.findings


@pytest.mark.parametrize(
    "form",
    [".s32.s4.s8.s32", ".f32.f16.f16.f32", ".s32.u8.s8.f32", ".s32.u8.s8.s32.extra"],
)
def test_other_forms_are_refused_by_name(form: str) -> None:
    words, out = np.zeros((32, 16), np.uint32), np.zeros((32, 4), np.uint32)
    with pytest.raises(UnsupportedInstruction, match=r"mma\.sync"):
        run(body("m16n8k32", form, (4, 2, 4)), words, out)


def test_forms_of_another_architecture_are_refused_as_such() -> None:
    words, out = np.zeros((32, 16), np.uint32), np.zeros((32, 4), np.uint32)
    form = ".kind::f8f6f4.f32.e2m1.e2m1.f32"
    with pytest.raises(UnsupportedInstruction, match="sm_120a; ptxas refuses it"):
        run(body("m16n8k32", form, (4, 2, 4)), words, out)


def test_a_wrong_number_of_registers_is_refused() -> None:
    words, out = np.zeros((32, 16), np.uint32), np.zeros((32, 4), np.uint32)
    with pytest.raises(UnsupportedInstruction, match="2 registers where 4 belong"):
        run(body("m16n8k32", ".s32.u8.u8.s32", (2, 2, 4)), words, out)


def test_a_part_of_a_warp_is_refused() -> None:
    words, out = np.zeros((32, 16), np.uint32), np.zeros((32, 4), np.uint32)
    text = body("m8n8k16", ".s32.u8.u8.s32", (1, 1, 2), "setp.lt.u32 %p1, %r0, 7; @%p1 bra END;")
    with pytest.raises(BarrierMisuse, match="only 25 threads of a warp"):
        run(text + "\nEND:", words, out)


@pytest.mark.parametrize(("unset", "first"), [(8, 4), (16, 0), (24, 5)])
def test_an_undefined_element_reaches_the_results_that_it_is_part_of(
    unset: int, first: int
) -> None:
    words, out = np.zeros((32, 16), np.uint32), np.zeros((32, 4), np.uint32)
    words[:, :2] = 0x01010101
    text = body("m8n8k16", ".s32.u8.u8.s32", (1, 1, 2))
    load = text[text.index(f"ld.global.b32 %r{unset},") :].partition(";")[0]
    guarded = text.replace(load, f"setp.ne.u32 %p1, %r0, 5; @%p1 {load}")
    with pytest.raises(UninitialisedRegister) as raised:
        run(guarded, words, out)
    assert raised.value.where is not None
    assert raised.value.where.thread == (first, 0, 0)


FLOATS = {
    "f16": (2, np.float16),
    "bf16": (2, None),
    "tf32": (4, np.float32),
    "e4m3": (1, None),
    "e5m2": (1, None),
}
FLOAT_SHAPES = {
    1: {"m16n8k16": 16, "m16n8k32": 32},
    2: {"m16n8k8": 16, "m16n8k16": 32},
    4: {"m16n8k4": 16, "m16n8k8": 32},
}


def small_numbers(kind: str, rows: int, row_bytes: int, draw: np.random.Generator) -> Array:
    """Bits [rows, elements] of numbers that every format has, whose sums are exact."""
    nbytes, dtype = FLOATS[kind]
    values = draw.choice([-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0], (rows, row_bytes // nbytes))
    if dtype is not None:
        return values.astype(dtype)
    if kind == "bf16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return encode(values, FORMATS[kind]).astype(np.uint8)


def numbers(kind: str, bits: Array) -> Array:
    if kind in ("f16", "tf32"):
        return bits.astype(np.float64)
    return decode(bits, FORMATS[kind])


@pytest.mark.parametrize(
    ("kind", "other", "shape", "sums"),
    [
        (kind, kind, shape, sums)
        for kind, (nbytes, _) in FLOATS.items()
        for shape in FLOAT_SHAPES[nbytes]
        for sums in ("f32", "f16")
        if sums == "f32" or kind not in ("bf16", "tf32")
    ]
    + [("e4m3", "e5m2", "m16n8k32", "f32")],
)
def test_a_warp_multiplies_numbers(kind: str, other: str, shape: str, sums: str) -> None:
    row_bytes = FLOAT_SHAPES[FLOATS[kind][0]][shape]
    counts = row_bytes // 8, row_bytes // 16, 4 if sums == "f32" else 2
    draw = np.random.default_rng(5)
    a = small_numbers(kind, 16, row_bytes, draw)
    b = small_numbers(other, 8, row_bytes, draw)  # a row for each column
    c = draw.integers(-8, 9, (16, 8)).astype(np.float32 if sums == "f32" else np.float16)
    exact = numbers(kind, a) @ numbers(other, b).T + c
    words, out = np.zeros((32, 16), np.uint32), np.zeros((32, 4), np.uint32)
    columns = np.ascontiguousarray(b.view(np.uint8).reshape(8, -1).T)
    words[:, : counts[0]] = fragments(a, counts[0], lambda *at: place_in_a(16, *at))
    words[:, counts[0] : counts[0] + counts[1]] = fragments(columns, counts[1], place_in_b)
    d, first = exact.astype(c.dtype), counts[0] + counts[1]
    expected = np.zeros((32, 4), np.uint32)
    for lane in range(32):
        for register in range(counts[2]):
            for into, of in ((words[:, first:], c), (expected, d)):
                if sums == "f32":
                    into[lane, register] = of[place_in_c(lane, register)].view(np.uint32)
                else:
                    row = (lane >> 2) + 8 * register
                    pair = of[row, 2 * (lane & 3) : 2 * (lane & 3) + 2].copy()
                    into[lane, register] = pair.view(np.uint32)[0]
    run(body(shape, f".{sums}.{kind}.{other}.{sums}", counts), words, out)
    np.testing.assert_array_equal(out[:, : counts[2]], expected[:, : counts[2]])


def test_a_sum_is_rounded_once_and_knows_infinity() -> None:
    words, out = np.zeros((32, 16), np.uint32), np.zeros((32, 4), np.uint32)
    words[:, 0] = 0x00007C00  # infinity in a[g, 2t]
    words[:, 4] = 0x3C003C00
    words[:4, 0] = 0x3C003C00  # but in row 0: eight ones
    words[:, 6] = np.float32(2**24).view(np.uint32)
    run(body("m16n8k16", ".f32.f16.f16.f32", (4, 2, 4)), words, out)
    found = out.view(np.float32)
    assert (found[:4, 0] == 2**24 + 8).all()
    assert np.isinf(found[4:, 0]).all()
