"""mma.sync on doubles, four bits and single bits, against the fragments of the PTX ISA as loops."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_harness import Array, run

from nvfp4.emulator.errors import UnsupportedInstruction

F64_SHAPES = {"m8n8k4": (8, 4), "m16n8k4": (16, 4), "m16n8k8": (16, 8), "m16n8k16": (16, 16)}


@pytest.mark.parametrize("shape", F64_SHAPES)
def test_a_warp_multiplies_doubles(shape: str) -> None:
    rows, k = F64_SHAPES[shape]
    draw = np.random.default_rng(1)
    a, b = draw.integers(-9, 10, (rows, k)) / 8, draw.integers(-9, 10, (k, 8)) / 4
    c = draw.integers(-9, 10, (rows, 8)) / 2
    of_a, of_b, of_c = rows * k // 32, k // 4, rows // 4
    held = np.zeros((32, 16))
    for lane in range(32):
        g, t = lane >> 2, lane & 3
        for i in range(of_a):
            row, column = (g, 2 * i + t) if i % 2 == 0 else (g + 8, 2 * i - 2 + t)
            if rows == 8:
                row, column = g, t + 4 * i
            held[lane, i] = a[row, column]
        for i in range(of_b):
            held[lane, of_a + i] = b[t + 4 * i, g]
        for i in range(of_c):
            held[lane, of_a + of_b + i] = c[g + 8 * (i // 2), 2 * t + i % 2]
    out = np.zeros((32, 4))
    names = [f"%d{10 + i}" for i in range(of_a + of_b + of_c)]
    d, ends = [f"%d{40 + i}" for i in range(of_c)], (of_a, of_a + of_b)
    loads = "".join(f"ld.global.b64 {name}, [%d0+{8 * i}];" for i, name in enumerate(names))
    stores = "".join(f"st.global.b64 [%d1+{8 * i}], {name};" for i, name in enumerate(d))
    groups = (d, names[: ends[0]], names[ends[0] : ends[1]], names[ends[1] :])
    operands = ", ".join("{" + ", ".join(group) + "}" for group in groups)
    run(
        f"""mul.wide.u32 %d0, %r0, 128; add.u64 %d0, %q0, %d0;
        mul.wide.u32 %d1, %r0, 32; add.u64 %d1, %q1, %d1; {loads}
        mma.sync.aligned.{shape}.row.col.f64.f64.f64.f64 {operands}; {stores}""",
        held,
        out,
    )
    exact = a @ b + c
    for lane in range(32):
        for i in range(of_c):
            assert out[lane, i] == exact[(lane >> 2) + 8 * (i // 2), 2 * (lane & 3) + i % 2]


SMALL_SHAPES = {
    "s4": {"m8n8k32": (8, 32), "m16n8k32": (16, 32), "m16n8k64": (16, 64)},
    "u4": {"m8n8k32": (8, 32), "m16n8k64": (16, 64)},
    "b1": {"m8n8k128": (8, 128), "m16n8k128": (16, 128), "m16n8k256": (16, 256)},
}
CASES = [
    (a, b, shape, flag)
    for a, b, flags in (
        ("s4", "s4", ("", ".satfinite")),
        ("u4", "s4", ("",)),
        ("u4", "u4", ("",)),
        ("b1", "b1", (".xor.popc", ".and.popc")),
    )
    for shape in SMALL_SHAPES[a]
    for flag in flags
]


def packed(values: Array, bits: int) -> Array:
    """uint32[words] of elements, the first in the lowest bits."""
    ones = (values.reshape(-1, 1) >> np.arange(bits)) & 1
    return np.packbits(ones.astype(np.uint8).reshape(-1), bitorder="little").view(np.uint32)


@pytest.mark.parametrize(("a_type", "b_type", "shape", "flag"), CASES)
def test_a_warp_multiplies_small_integers(a_type: str, b_type: str, shape: str, flag: str) -> None:
    rows, k = SMALL_SHAPES[a_type][shape]
    bits = 1 if a_type == "b1" else 4
    draw = np.random.default_rng(2)
    ranges = {"s4": (-8, 8), "u4": (0, 16), "b1": (0, 2)}
    a, b = draw.integers(*ranges[a_type], (rows, k)), draw.integers(*ranges[b_type], (8, k))
    c = draw.integers(-(2**31), 2**31, (rows, 8))
    both = a[:, None, :] ^ b if "xor" in flag else a[:, None, :] * b
    exact = both.sum(axis=2) + c
    if "satfinite" in flag:
        exact = exact.clip(-(2**31), 2**31 - 1)
    a_words = packed(a, bits).reshape(rows, -1)
    b_words = packed(b, bits).reshape(8, -1)
    of_a, of_b, of_c = a_words.size // 32, b_words.size // 32, rows // 4
    held, out = np.zeros((32, 16), np.uint32), np.zeros((32, 4), np.uint32)
    for lane in range(32):
        g, t = lane >> 2, lane & 3
        for i in range(of_a):
            row, half = (g + 8 * (i % 2), i // 2) if rows == 16 else (g, i)
            held[lane, i] = a_words[row, t + 4 * half]
        for i in range(of_b):
            held[lane, of_a + i] = b_words[g, t + 4 * i]
        for i in range(of_c):
            at = g + 8 * (i // 2), 2 * t + i % 2
            held[lane, of_a + of_b + i] = int(c[at]) & 0xFFFFFFFF
    names = [f"%r{10 + i}" for i in range(of_a + of_b + of_c)]
    d, ends = [f"%r{40 + i}" for i in range(of_c)], (of_a, of_a + of_b)
    loads = "".join(f"ld.global.b32 {name}, [%d0+{4 * i}];" for i, name in enumerate(names))
    stores = "".join(f"st.global.b32 [%d1+{4 * i}], {name};" for i, name in enumerate(d))
    groups = (d, names[: ends[0]], names[ends[0] : ends[1]], names[ends[1] :])
    operands = ", ".join("{" + ", ".join(group) + "}" for group in groups)
    types = f".s32.{a_type}.{b_type}.s32"
    form = f".satfinite{types}" if flag == ".satfinite" else f"{types}{flag}"
    run(
        f"""mul.wide.u32 %d0, %r0, 64; add.u64 %d0, %q0, %d0;
        mul.wide.u32 %d1, %r0, 16; add.u64 %d1, %q1, %d1; {loads}
        mma.sync.aligned.{shape}.row.col{form} {operands}; {stores}""",
        held,
        out,
    )
    for lane in range(32):
        for i in range(of_c):
            at = (lane >> 2) + 8 * (i // 2), 2 * (lane & 3) + i % 2
            assert out[lane, i] == int(exact[at]) & 0xFFFFFFFF


@pytest.mark.parametrize(
    "form", [".s32.b1.b1.s32", ".s32.b1.b1.s32.xor", ".s32.b1.u4.s32.xor.popc"]
)
def test_single_bits_need_their_operation(form: str) -> None:
    body = f"mma.sync.aligned.m8n8k128.row.col{form} {{%r1, %r2}}, {{%r3}}, {{%r4}}, {{%r5, %r6}};"
    with pytest.raises(UnsupportedInstruction, match=r"mma\.sync"):
        run(body, np.zeros(1))
