"""mma.sync against the fragments of the PTX ISA, written down as loops."""

import numpy as np
import pytest
from ptx_harness import Array, run

from nvfp4.emulator.arithmetic.formats import FORMATS, decode, encode
from nvfp4.emulator.errors import BarrierMisuse, UninitialisedRegister, UnsupportedInstruction

WARPS = 2
SHAPES = {"m8n8k16": (8, 16), "m16n8k16": (16, 16), "m16n8k32": (16, 32)}
TYPES = {"u8": np.uint8, "s8": np.int8}


def held(a: Array, b: Array, c: Array) -> Array:
    """[lanes, registers] of a [rows, columns], b [8, columns] and c [rows, 8], or [rows, 4] where
    a register of c has two elements. A column of a and b is what one register holds.
    """
    lanes = []
    for lane in range(32):
        g, t = lane >> 2, lane & 3
        of_a = [
            a[g + 8 * (i % 2), t + 4 * (i // 2)] if len(a) == 16 else a[g, t + 4 * i]
            for i in range(a.size // 32)
        ]
        of_b = [b[g, t + 4 * i] for i in range(b.size // 32)]
        lanes.append([*of_a, *of_b, *of_lane(c, g, t)])
    return np.array(lanes, a.dtype)


def of_lane(c: Array, g: int, t: int) -> list[object]:
    """The registers of c or d."""
    if c.shape[1] == 4:
        return [c[g, t], c[g + 8, t]]
    return [c[g + 8 * (i // 2), 2 * t + i % 2] for i in range(len(c) // 4)]


def results(d: Array) -> Array:
    return np.array([of_lane(d, lane >> 2, lane & 3) for lane in range(32)], d.dtype)


def in_memory(registers: Array, count: int) -> Array:
    """So many registers for each lane, the rest zeros."""
    return np.pad(registers, ((0, 0), (0, count - registers.shape[1])))


def body(shape: str, form: str, counts: tuple[int, int, int], use: str = "") -> str:
    """Loads a thread's registers of a, b and c from 16 words of q0, stores d to 4 of q1."""
    names, loads, first = [], [], 0
    for count, start in zip((*counts, counts[2]), (8, 16, 24, 32), strict=True):
        names.append("{" + ", ".join(f"%r{start + i}" for i in range(count)) + "}")
    for count, start in zip(counts, (8, 16, 24), strict=True):
        loads += [f"ld.global.b32 %r{start + i}, [%d0+{4 * (first + i)}];" for i in range(count)]
        first += count
    return f"""mul.wide.u32 %d0, %r0, 64; add.u64 %d0, %q0, %d0;
mul.wide.u32 %d1, %r0, 16; add.u64 %d1, %q1, %d1;
{"".join(loads)}{use}
mma.sync.aligned.{shape}.row.col{form} {names[3]}, {names[0]}, {names[1]}, {names[2]};
{"".join(f"st.global.b32 [%d1+{4 * i}], %r{32 + i};" for i in range(counts[2]))}"""


def words_of(bits: Array) -> Array:
    """uint32[rows, words] of a matrix whose rows lie in memory one after the other."""
    return np.ascontiguousarray(bits).view(np.uint32)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("a_type", TYPES)
@pytest.mark.parametrize("b_type", TYPES)
@pytest.mark.parametrize("saturates", [False, True])
def test_a_warp_multiplies_its_matrices(
    shape: str, a_type: str, b_type: str, saturates: bool
) -> None:
    rows, k = SHAPES[shape]
    draw = np.random.default_rng(3)
    counts = rows * k // 128, k // 16, rows // 4
    words, expected = [], []
    for _ in range(WARPS):
        a = draw.integers(0, 256, (rows, k)).astype(np.uint8).view(TYPES[a_type])
        b = draw.integers(0, 256, (8, k)).astype(np.uint8).view(TYPES[b_type])
        c = draw.integers(-(2**31), 2**31, (rows, 8))
        exact = a.astype(np.int64) @ b.astype(np.int64).T + c
        d = exact.clip(-(2**31), 2**31 - 1) if saturates else exact
        words.append(in_memory(held(words_of(a), words_of(b), c & 0xFFFFFFFF), 16))
        expected.append(in_memory(results((d & 0xFFFFFFFF).astype(np.uint32)), 4))
    form = f"{'.satfinite' if saturates else ''}.s32.{a_type}.{b_type}.s32"
    out = np.zeros((WARPS, 32, 4), np.uint32)
    report = run(body(shape, form, counts), np.array(words), out, block=32 * WARPS)
    np.testing.assert_array_equal(out, expected)
    assert not report.findings


@pytest.mark.parametrize(
    ("form", "of_a", "why"),
    [
        *((".s32.s4.s8.s32", 4, r"mma\.sync"), (".f32.f16.f16.f32", 4, r"mma\.sync")),
        *((".s32.u8.s8.f32", 4, r"mma\.sync"), (".s32.u8.s8.s32.extra", 4, r"mma\.sync")),
        (".kind::f8f6f4.f32.e2m1.e2m1.f32", 4, "sm_120a; ptxas refuses it"),
        (".s32.u8.u8.s32", 2, "2 registers where 4 belong"),
    ],
)
def test_other_forms_are_refused_by_name(form: str, of_a: int, why: str) -> None:
    words, out = np.zeros((32, 16), np.uint32), np.zeros((32, 4), np.uint32)
    with pytest.raises(UnsupportedInstruction, match=why):
        run(body("m16n8k32", form, (of_a, 2, 4)), words, out)


@pytest.mark.parametrize(("guard", "run_by"), [("@%p1 bra END;", 25), ("@%p1", 7)])
def test_a_part_of_a_warp_is_refused(guard: str, run_by: int) -> None:
    words, out = np.zeros((32, 16), np.uint32), np.zeros((32, 4), np.uint32)
    text = body("m8n8k16", ".s32.u8.u8.s32", (1, 1, 2), f"setp.lt.u32 %p1, %r0, 7; {guard}")
    with pytest.raises(BarrierMisuse, match=f"only {run_by} threads of a warp"):
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
    **{"f16": (2, np.float16), "bf16": (2, None), "tf32": (4, np.float32)},
    **{"e4m3": (1, None), "e5m2": (1, None)},
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
    d = (numbers(kind, a) @ numbers(other, b).T + c).astype(c.dtype)
    words = in_memory(held(words_of(a), words_of(b), words_of(c)), 16)
    out = np.zeros((32, 4), np.uint32)
    run(body(shape, f".{sums}.{kind}.{other}.{sums}", counts), words, out)
    np.testing.assert_array_equal(out, in_memory(results(words_of(d)), 4))


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


@pytest.mark.parametrize(
    "form",
    ["128.row.col.s32.b1.b1.s32.and.popc", "32.row.col.s32.s4.s4.s32", "4.row.col.f64.f64.f64.f64"],
)
def test_integers_of_less_than_a_byte_and_doubles_are_refused(form: str) -> None:
    text = f"mma.sync.aligned.m8n8k{form} {{%r1, %r2}}, {{%r3}}, {{%r4}}, {{%r5, %r6}};"
    with pytest.raises(UnsupportedInstruction, match=r"mma\.sync"):
        run(text, np.zeros(1))
