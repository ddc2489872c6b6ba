"""PTX kernels that run one instruction on arrays of operands."""

from __future__ import annotations

from nvfp4.emulator.arithmetic import Op

HEADER = ".version 8.7\n.target sm_90a\n.address_size 64\n"
BYTES = {"pred": 1, "b8": 1, "b16": 2, "b32": 4, "b64": 8}
# 8-bit values live in 16-bit registers: PTX has no arithmetic on narrower ones.
_REGISTER = {"pred": "pred", "b8": "b16", "b16": "b16", "b32": "b32", "b64": "b64"}

_ENTRY = """.visible .entry {name}({parameters}
    .param .u32 n)
{{
    .reg .pred %done;
    .reg .b16 %byte;
    .reg .b32 %i, %cta, %width, %size, %carry;
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
        return [
            *_at(array, kind),
            "ld.global.u8 %byte, [%at];",
            f"setp.ne.u16 {register}, %byte, 0;",
        ]
    width = 8 * BYTES[kind]
    return [*_at(array, kind), f"ld.global.b{width} {register}, [%at];"]


def _store(register: str, array: str, kind: str) -> list[str]:
    if kind == "pred":
        return [
            *_at(array, kind),
            f"selp.u16 %byte, 1, 0, {register};",
            "st.global.u8 [%at], %byte;",
        ]
    return [*_at(array, kind), f"st.global.b{8 * BYTES[kind]} [%at], {register};"]


def entry(name: str, op: Op, immediate: int | None = None) -> str:
    """A kernel `name`(arrays of the sources, arrays of the results, n).

    A carry read or written is one more byte array. `immediate` stands for the fourth source
    of lop3, which then has no array.
    """
    kinds = list(op.sources)
    results = list(op.results)
    registers = [f"%s{i}" for i in range(len(kinds))]
    targets = [f"%r{i}" for i in range(len(results))]
    declare = [
        f".reg .{_REGISTER[k]} {r};"
        for k, r in zip(kinds + results, registers + targets, strict=True)
    ]
    loads: list[str] = []
    parameters = []
    for i, (kind, register) in enumerate(zip(kinds, registers, strict=True)):
        if immediate is not None and i == 3:
            registers[i] = str(immediate)
            continue
        loads += _load(register, f"in{i}", kind)
        parameters.append(f".param .u64 in{i},")
    subtracts = op.opcode.startswith("sub")
    if op.reads_carry:
        declare.append(".reg .pred %flag;")
        loads += _load("%flag", "flag", "pred")
        parameters.append(".param .u64 flag,")
        loads.append("selp.u32 %carry, 1, 0, %flag;")
        # 0 - 1 borrows, and 1 + 0xffffffff carries.
        loads.append(
            "sub.cc.u32 %carry, 0, %carry;"
            if subtracts
            else "add.cc.u32 %carry, %carry, 0xffffffff;"
        )
    destination = "|".join(targets) if op.opcode.startswith(("setp", "lop3")) else targets[0]
    body = [*loads, f"{op.opcode} {destination}, {', '.join(registers)};"]
    stores: list[str] = []
    for i, (kind, register) in enumerate(zip(results, targets, strict=True)):
        stores += _store(register, f"out{i}", kind)
        parameters.append(f".param .u64 out{i},")
    if op.writes_carry:
        body.append("subc.u32 %carry, 0, 0;" if subtracts else "addc.u32 %carry, 0, 0;")
        stores += [
            *_at("carry_out", "b8"),
            "and.b32 %carry, %carry, 1;",
            "st.global.u8 [%at], %carry;",
        ]
        parameters.append(".param .u64 carry_out,")
    lines = "\n".join(f"    {line}" for line in [*body, *stores])
    return _ENTRY.format(
        name=name,
        parameters="\n    ".join(["", *parameters]),
        declarations="\n".join(f"    {line}" for line in declare),
        body=lines,
    )


_WARP = """.visible .entry warp(.param .u64 in_a, .param .u64 in_b, .param .u64 in_c,
    .param .u64 out_d, .param .u64 out_p)
{{
    .reg .pred %p, %q, %in;
    .reg .b32 %a, %b, %c, %d, %e, %i, %cta, %width, %mask, %flag;
    .reg .b64 %at, %offset, %base;
    mov.u32 %cta, %ctaid.x;
    mov.u32 %width, %ntid.x;
    mov.u32 %i, %tid.x;
    mad.lo.u32 %i, %cta, %width, %i;
    mul.wide.u32 %offset, %i, 4;
    ld.param.u64 %base, [in_a];
    add.u64 %at, %base, %offset;
    ld.global.b32 %a, [%at];
    ld.param.u64 %base, [in_b];
    add.u64 %at, %base, %offset;
    ld.global.b32 %b, [%at];
    ld.param.u64 %base, [in_c];
    add.u64 %at, %base, %offset;
    ld.global.b32 %c, [%at];
    and.b32 %e, %a, 3;
    setp.ne.b32 %q, %e, 0;
    setp.ne.b32 %p, 0, 0;
    mov.b32 %d, 0;
{subset}
    {instruction}
OUT:
    selp.u32 %flag, 1, 0, %p;
    ld.param.u64 %base, [out_d];
    add.u64 %at, %base, %offset;
    st.global.b32 [%at], %d;
    ld.param.u64 %base, [out_p];
    add.u64 %at, %base, %offset;
    st.global.b32 [%at], %flag;
    exit;
}}
"""
_WHOLE = "    mov.b32 %mask, 0xffffffff;"
_SUBSET = """    shr.u32 %mask, %b, 31;
    setp.ne.b32 %in, %mask, 0;
    vote.sync.ballot.b32 %mask, %in, 0xffffffff;
    @!%in bra OUT;"""


def warp_kernel(instruction: str, subset: bool) -> str:
    """A module whose kernel `warp` runs a warp instruction in all lanes, or in random ones."""
    return HEADER + _WARP.format(instruction=instruction, subset=_SUBSET if subset else _WHOLE)
