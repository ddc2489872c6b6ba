"""PTX modules that run one instruction on arrays of operands."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from nvfp4.emulator.arithmetic import REGISTER_DTYPES, Op

Array = np.ndarray[Any, Any]
HEADER = ".version 8.7\n.target sm_90a\n.address_size 64\n"
BYTES = {"pred": 1, "b8": 1, "b16": 2, "b32": 4, "b64": 8}
# 8-bit values live in 16-bit registers: PTX has no arithmetic on narrower ones.
_REGISTER = {"pred": "pred", "b8": "b16", "b16": "b16", "b32": "b32", "b64": "b64"}

_KERNEL = """.visible .entry {name}(
    {parameters}
    .param .u32 n)
{{
    .reg .pred %done;
    .reg .b16 %byte;
    .reg .b32 %i, %cta, %width, %size;
    .reg .b64 %at, %offset;
    {declarations}
    mov.u32 %cta, %ctaid.x;
    mov.u32 %width, %ntid.x;
    mov.u32 %i, %tid.x;
    mad.lo.u32 %i, %cta, %width, %i;
    ld.param.u32 %size, [n];
    setp.ge.u32 %done, %i, %size;
    @%done exit;
    {body}
    exit;
}}
"""


def _at(array: str, kind: str) -> list[str]:
    return [
        f"ld.param.u64 %at, [{array}];",
        f"mul.wide.u32 %offset, %i, {BYTES[kind]};",
        "add.u64 %at, %at, %offset;",
    ]


def _load(register: str, array: str, kind: str) -> list[str]:
    if kind == "pred":
        load = ["ld.global.u8 %byte, [%at];", f"setp.ne.u16 {register}, %byte, 0;"]
    else:
        load = [f"ld.global.b{8 * BYTES[kind]} {register}, [%at];"]
    return [*_at(array, kind), *load]


def _store(register: str, array: str, kind: str) -> list[str]:
    if kind == "pred":
        store = [f"selp.u16 %byte, 1, 0, {register};", "st.global.u8 [%at], %byte;"]
    else:
        store = [f"st.global.b{8 * BYTES[kind]} [%at], {register};"]
    return [*_at(array, kind), *store]


def _kernel(name: str, arrays: list[str], declarations: list[str], body: list[str]) -> str:
    """A kernel with a pointer to each array, whose body does element %i."""
    return _KERNEL.format(
        name=name,
        parameters="\n    ".join(f".param .u64 {array}," for array in arrays),
        declarations="\n    ".join(declarations),
        body="\n    ".join(body),
    )


@dataclass(frozen=True)
class Module:
    """PTX, the kernels in it, and the dtypes of the arrays that they write."""

    text: str
    kernels: list[str]
    outputs: list[np.dtype[Any]]


def truth_tables(op: Op) -> list[int | None]:
    """The immediates to try: lop3's truth table is part of the instruction, so all 256 of them."""
    return list(range(256)) if op.opcode.startswith("lop3") else [None]


def instruction_module(op: Op) -> Module:
    """A kernel for each truth table: arrays of the sources, arrays of the results, count."""
    entries = {f"k{i}": table for i, table in enumerate(truth_tables(op))}
    text = HEADER + "".join(_entry(name, op, table) for name, table in entries.items())
    return Module(text, list(entries), [REGISTER_DTYPES[kind] for kind in op.results])


def instruction_inputs(op: Op, columns: list[Array]) -> list[Array]:
    """Those operands that are arrays: a truth table is none."""
    return [c for i, c in enumerate(columns) if truth_tables(op) == [None] or i != 3]


def _entry(name: str, op: Op, immediate: int | None = None) -> str:
    """A kernel. immediate: the fourth source, which then has no array."""
    kinds, results = list(op.sources), list(op.results)
    registers = [f"%s{i}" for i in range(len(kinds))]
    targets = [f"%r{i}" for i in range(len(results))]
    declare = [
        f".reg .{_REGISTER[k]} {r};"
        for k, r in zip(kinds + results, registers + targets, strict=True)
    ]
    loads: list[str] = []
    arrays = []
    for i, (kind, register) in enumerate(zip(kinds, registers, strict=True)):
        if immediate is not None and i == 3:
            registers[i] = str(immediate)
            continue
        loads += _load(register, f"in{i}", kind)
        arrays.append(f"in{i}")
    destination = "|".join(targets) if op.opcode.startswith("setp") else targets[0]
    body = [*loads, f"{op.opcode} {destination}, {', '.join(registers)};"]
    stores: list[str] = []
    for i, (kind, register) in enumerate(zip(results, targets, strict=True)):
        stores += _store(register, f"out{i}", kind)
        arrays.append(f"out{i}")
    return _kernel(name, arrays, declare, [*body, *stores])


_SUBSET = [
    "shr.u32 %mask, %b, 31;",
    "setp.ne.b32 %in, %mask, 0;",
    "vote.sync.ballot.b32 %mask, %in, 0xffffffff;",
    "@!%in bra OUT;",
]


def warp_module(instruction: str, subset: bool) -> Module:
    """A kernel that runs a warp instruction in all lanes, or in those where bit 31 of b is set.

    Its arrays are a, b and c, then d and p, all uint32; the count is a multiple of the block.
    """
    declarations = [".reg .pred %p, %q, %in;", ".reg .b32 %a, %b, %c, %d, %e, %mask, %flag;"]
    body = [
        *_load("%a", "in_a", "b32"),
        *_load("%b", "in_b", "b32"),
        *_load("%c", "in_c", "b32"),
        "and.b32 %e, %a, 3;",
        "setp.ne.b32 %q, %e, 0;",
        "setp.ne.b32 %p, 0, 0;",
        "mov.b32 %d, 0;",
        *(_SUBSET if subset else ["mov.b32 %mask, 0xffffffff;"]),
        instruction,
        "OUT:",
        "selp.u32 %flag, 1, 0, %p;",
        *_store("%d", "out_d", "b32"),
        *_store("%flag", "out_p", "b32"),
    ]
    arrays = ["in_a", "in_b", "in_c", "out_d", "out_p"]
    text = _kernel("warp", arrays, declarations, body)
    return Module(HEADER + text, ["warp"], [np.dtype(np.uint32)] * 2)
