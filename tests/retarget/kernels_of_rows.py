"""Kernels of one instruction each, and what they give on the emulator."""

import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from ptx_runs import Array, launch_on

from nvfp4 import emulator
from nvfp4.retarget.driver import installed_driver
from nvfp4.retarget.targets import target_of
from nvfp4.retargeting import Translator

DTYPES = {"b8": np.uint8, "b16": np.uint16, "b32": np.uint32, "b64": np.uint64}
HEADER = ".version 8.8\n.target sm_100a\n.address_size 64\n"
THREADS = 128


@dataclass(frozen=True)
class Row:
    """An instruction with D for its result and A, B, C for its sources, of these classes.

    lacking: the targets that lack it.
    """

    text: str
    result: str
    sources: tuple[str, ...]
    lacking: tuple[str, ...]

    @property
    def opcode(self) -> str:
        return self.text.split()[0]


def kernel(row: Row, name: str, guarded: bool) -> str:
    """One thread an element: sources from arrays, the result to the last array.

    guarded: odd threads leave their result as it was.
    """
    names = [f"a{i}" for i in range(len(row.sources) + 1)]
    parameters = ", ".join(f".param .u64 {name}_{each}" for each in names)
    kinds = [*row.sources, row.result]
    body = "mov.u32 %t, %tid.x; mov.u32 %c, %ctaid.x; mad.lo.u32 %t, %c, 128, %t;\n"
    body += "and.b32 %c, %t, 1; setp.eq.u32 %p, %c, 0;\n"
    for i, kind in enumerate(kinds):
        size = DTYPES[kind]().itemsize
        body += f"ld.param.u64 %q{i}, [{name}_{names[i]}];\n"
        body += f"mul.wide.u32 %o, %t, {size}; add.u64 %q{i}, %q{i}, %o;\n"
        body += f"ld.global.{kind} %v{i}, [%q{i}];\n"
    letters = {"D": f"%v{len(row.sources)}", **{"ABC"[i]: f"%v{i}" for i in range(len(kinds) - 1)}}
    opcode, _, operands = row.text.partition(" ")
    for letter, register in letters.items():
        operands = operands.replace(letter, register)
    body += f"{'@%p ' if guarded else ''}{opcode} {operands};\n"
    last = len(kinds) - 1
    body += f"st.global.{kinds[last]} [%q{last}], %v{last};\nret;\n"
    declared = " ".join(f".reg .{kind} %v{i};" for i, kind in enumerate(kinds))
    return (
        f".visible .entry {name}({parameters})\n{{\n.reg .pred %p; .reg .b32 %t, %c; "
        f".reg .b64 %o, %q<{len(kinds)}>; {declared}\n{body}}}\n"
    )


def pattern(count: int, row: Row) -> Array:
    """What the result holds before."""
    numbers = np.arange(count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return numbers.astype(DTYPES[row.result])


def results(text: str, name: str, row: Row, columns: list[Array]) -> Array:
    """What a kernel makes of its sources; its result starts as a pattern."""
    count = len(columns[0])
    assert count % THREADS == 0
    target = pattern(count, row)
    arrays = [*(np.ascontiguousarray(column) for column in columns), target]
    emulator.run(launch_on(arrays, text, name, count // THREADS, THREADS))
    return target


def on_gpu(text: str, grid: int, block: int, arrays: list[Array]) -> Array:
    """The last array after kernel k ran, rewritten, on copies of all of them on the GPU."""
    translated = Translator(str(target_of(torch.cuda.get_device_capability()))).translate(text)
    tensors = [torch.from_numpy(each.view(np.uint8).reshape(-1).copy()).cuda() for each in arrays]
    parameters = [struct.pack("<Q", tensor.data_ptr()) for tensor in tensors]
    kernel = installed_driver().load(translated).kernel("k", [8] * len(parameters))
    kernel.launch((grid, 1, 1), (block, 1, 1), 0, parameters, 0)
    found: Array = tensors[-1].cpu().numpy()
    return found.view(arrays[-1].dtype).reshape(arrays[-1].shape)


def ptxas(text: str, target: str, folder: Path) -> str:
    """What the assembler says against a text; empty if it takes it."""
    path = folder / f"{target}.ptx"
    path.write_text(text)
    command = ["ptxas", f"-arch={target}", "-O0", str(path), "-o", str(folder / "out.cubin")]
    done = subprocess.run(command, capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout + done.stderr


_F16_SPECIAL = [0, 1, 0x3FF, 0x400, 0x3BFF, 0x3C00, 0x3C01, 0x7BFF, 0x7C00, 0x7C01, 0x7E00, 0x7FFF]


def float_bits(rng: np.random.Generator, count: int) -> Array:
    """f32 bits: random ones, and every tie and neighbour of one of the narrow formats."""
    around = []
    for exponent in (*range(-24, 17), -126, -127, -128, -149, 127):
        for eighths in range(16, 32):
            bits = int(np.float32(eighths / 16 * 2.0**exponent).view(np.uint32))
            around += [bits - 1, bits, bits + 1]
    special = [0, 1, 2, 0x3FFFFF, 0x400000, 0x400001, 0x7FFFFF, 0x800000, 0x800001]
    special += [0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF]
    positive = np.array([*around, *special], np.int64)
    chosen = np.concatenate([positive, positive | 0x80000000]).astype(np.uint32)
    drawn = rng.integers(0, 2**32, count, dtype=np.uint64).astype(np.uint32)
    # Exponents that the formats have.
    near = (drawn & np.uint32(0x807FFFFF)) | ((100 + (drawn >> 8) % 50) << 23).astype(np.uint32)
    return np.concatenate([chosen, drawn, near])


def columns_of(row: Row, seed: int = 0) -> list[Array]:
    """All values of an operand of up to 16 bits, else special and random ones."""
    rng = np.random.default_rng(seed)
    if row.sources in (("b8",), ("b16",)):
        return [np.arange(2**16, dtype=np.uint32).astype(DTYPES[row.sources[0]])]
    out = []
    for kind in row.sources:
        if kind == "b64":
            low, high = (rng.permutation(float_bits(rng, 4096)) for _ in range(2))
            out.append(low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32))
        elif kind == "b32":
            column = float_bits(rng, 4096)
            halves = rng.integers(0, 2**16, (2, column.size // 2), dtype=np.uint32)
            picked = rng.choice(np.array(_F16_SPECIAL, np.uint32), halves.shape)
            halves = np.where(rng.random(halves.shape) < 0.3, picked, halves)
            out.append(rng.permutation(np.concatenate([column, halves[0] << 16 | halves[1]])))
        else:
            drawn = rng.integers(0, 2**16, 8192, dtype=np.uint32)
            picked = rng.choice(np.array(_F16_SPECIAL, np.uint32), drawn.shape)
            out.append(np.where(rng.random(drawn.shape) < 0.3, picked, drawn).astype(np.uint16))
    # Equal and special operands against each other.
    pairs = np.array([0, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00001, 0x3F800000, 1, 0x80000001])
    grids = np.meshgrid(*[pairs] * len(row.sources), indexing="ij")
    count = min(len(column) for column in out)
    out = [
        np.concatenate([column[:count], _as_kind(grid.reshape(-1), kind)])
        for column, grid, kind in zip(out, grids, row.sources, strict=True)
    ]
    count = len(out[0]) // THREADS * THREADS
    return [column[-count:] for column in out]


def _as_kind(bits: Array, kind: str) -> Array:
    if kind == "b16":
        return (bits >> 16).astype(np.uint16)
    if kind == "b64":
        return bits.astype(np.uint64) << np.uint64(32) | bits[::-1].astype(np.uint64)
    return bits.astype(DTYPES[kind])
