"""Random programs on partly undefined registers: what a shadow calls defined never changes.

A program runs on several contents of what nothing has set. All runs must agree on every bit of
every register that the shadows do not call undefined, and on the shadows.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from ptx_harness import MINE, Array, ptx_of, run

from nvfp4.emulator.instructions.undefined import Use
from nvfp4.emulator.state import order

RUNS = 3
# The registers that programs work on, by class: the first half is never set before the program.
POOLS = {"r": range(20, 26), "h": range(1, 5), "d": range(20, 24), "p": range(1, 5)}
WIDTHS = {"r": 32, "h": 16, "d": 64, "p": 1}

# %r is any register of class r, %rD one that is written. #: a number of five bits, $: of 32.
OPERATIONS = [
    "and.b32 %rD, %r, %r;", "and.b32 %rD, %r, $;", "or.b32 %rD, %r, %r;", "or.b32 %rD, %r, $;",
    "xor.b32 %rD, %r, %r;", "xor.b32 %rD, %r21, %r21;", "not.b32 %rD, %r;",
    "lop3.b32 %rD, %r, %r, %r, #;",
    "and.b64 %dD, %d, %d;", "or.b64 %dD, %d, $;", "and.pred %pD, %p, %p;", "or.pred %pD, %p, !%p;",
    "not.pred %pD, %p;", "shl.b32 %rD, %r, #;", "shr.u32 %rD, %r, #;", "shr.s32 %rD, %r, #;",
    "shl.b32 %rD, %r, %r;", "shl.b64 %dD, %d, #;", "shr.s64 %dD, %d, #;", "shr.u16 %hD, %h, 3;",
    "shf.l.wrap.b32 %rD, %r, %r, #;", "shf.r.clamp.b32 %rD, %r, %r, %r;",
    "prmt.b32 %rD, %r, %r, $;", "prmt.b32 %rD, %r, %r, %r;",
    "selp.b32 %rD, %r, %r, %p;", "selp.b64 %dD, %d, %d, %p;", "selp.b32 %rD, %r, 7, %p;",
    "bfe.u32 %rD, %r, #, #;", "bfe.s32 %rD, %r, #, #;",
    "bfe.u32 %rD, %r, %r, #;", "bfi.b32 %rD, %r, %r, #, #;", "brev.b32 %rD, %r;",
    "popc.b32 %rD, %r;", "clz.b32 %rD, %r;", "bfind.u32 %rD, %r;", "bfind.shiftamt.s32 %rD, %r;",
    "add.u32 %rD, %r, %r;", "add.s32 %rD, %r, $;", "sub.u32 %rD, %r, %r;", "neg.s32 %rD, %r;",
    "add.s64 %dD, %d, %d;", "mul.lo.u32 %rD, %r, %r;", "mul.hi.u32 %rD, %r, %r;",
    "mul.wide.u32 %dD, %r, #;", "mul.wide.s32 %dD, %r, %r;", "mul.wide.u16 %rD, %h, %h;",
    "mad.lo.u32 %rD, %r, #, %r;", "mad.wide.u32 %dD, %r, %r, %d;", "min.u32 %rD, %r, %r;",
    "dp4a.u32.s32 %rD, %r, %r, %r;",
    "add.rn.f32 %rD, %r, %r;", "fma.rn.f32 %rD, %r, %r, %r;", "add.rn.f16x2 %rD, %r, %r;",
    "fma.rn.bf16x2 %rD, %r, %r, %r;", "mul.rn.f32x2 %dD, %d, %d;", "mul.rn.f16 %hD, %h, %h;",
    "add.s16x2 %rD, %r, %r;", "cvt.rn.f16x2.f32 %rD, %r, %r;", "cvt.f32.f16 %rD, %h;",
    "cvt.rn.f16x2.e4m3x2 %rD, %h;", "cvt.rn.satfinite.e4m3x2.f32 %hD, %r, %r;",
    "cvt.u16.u32 %hD, %r;", "cvt.u32.u16 %rD, %h;", "cvt.s32.s16 %rD, %h;", "cvt.s32.s8 %rD, %r;",
    "cvt.u64.u32 %dD, %r;", "cvt.s64.s32 %dD, %r;", "cvt.u32.u64 %rD, %d;",
    "cvt.rn.f32.u32 %rD, %r;",
    "mov.b32 %rD, %r;", "mov.b32 %rD, {%h, %h};", "mov.b32 {%hD, %hD}, %r;",
    "mov.b64 %dD, {%r, %r};", "mov.b64 {%rD, %rD}, %d;", "mov.pred %pD, %p;",
    "setp.eq.u32 %pD, %r, %r;", "setp.ne.s32 %pD, %r, 0;", "setp.lt.u32 %pD, %r, %r;",
    "setp.lt.and.s32 %pD, %r, %r, %p;", "setp.eq.or.u32 %pD, %r, 0, !%p;",
    "setp.ge.xor.u32 %pD, %r, %r, %p;", "setp.gt.f32 %pD, %r, %r;", "set.lt.u32.u32 %rD, %r, %r;",
    "shfl.sync.idx.b32 %rD, %r, #, 31, -1;", "shfl.sync.bfly.b32 %rD|%pD, %r, #, 31, -1;",
    "shfl.sync.idx.b32 %rD, %r, %r, 31, -1;", "vote.sync.ballot.b32 %rD, %p, -1;",
    "vote.sync.any.pred %pD, %p, -1;", "redux.sync.add.u32 %rD, %r, -1;",
    "st.shared.u32 [%r10], %r;", "st.shared.u16 [%r10+6], %h;", "st.shared.u64 [%r10+8], %d;",
    "st.shared.v2.u32 [%r10], {%r, %r};", "ld.shared.u32 %rD, [%r10+4];",
    "ld.shared.u16 %hD, [%r10];",
    "ld.shared.u64 %dD, [%r10+8];",
    "ld.shared.v2.u32 {%rD, %rD}, [%r10];", "ld.shared.s8 %rD, [%r10+1];",
    "bar.warp.sync -1; ld.shared.u32 %rD, [%r11]; bar.warp.sync -1;",
    "st.local.u32 [%d5], %r;", "ld.local.u16 %hD, [%d5+2];",
]  # fmt: skip
UNGUARDED = ("shfl", "vote", "redux", "bar.warp")


@st.composite
def programs(draw: st.DrawFn) -> str:
    lines = []
    # Some registers are set wholly, some in part, some not at all.
    for cls in "rhd":
        pool = POOLS[cls]
        for number in pool[len(pool) // 2 :]:
            mask = draw(st.integers(0, (1 << WIDTHS[cls]) - 1))
            bits = WIDTHS[cls]
            source = {"r": "%r2", "h": "%h10", "d": "%d8"}[cls]
            lines.append(f"mov.b{bits} %{cls}{number}, {source};")
            if draw(st.booleans()):
                free = f"%{cls}{pool[0]}"
                lines.append(f"and.b{bits} %{cls}{number}, {free}, {mask};")
    lines.append(f"setp.lt.u32 %p{POOLS['p'][-1]}, %r0, {draw(st.integers(0, 32))};")
    for _ in range(draw(st.integers(1, 12))):
        lines.append(draw(one_operation()))
    return "\n".join(lines)


@st.composite
def one_operation(draw: st.DrawFn) -> str:
    template = draw(st.sampled_from(OPERATIONS))
    text, at = "", 0
    if not template.startswith(UNGUARDED) and draw(st.integers(0, 5)) == 0:
        text = f"@{draw(st.sampled_from(['', '!']))}%p{draw(st.sampled_from(POOLS['p']))} "
    written: list[str] = []
    while at < len(template):
        letter, after = template[at], template[at + 1 : at + 2]
        if letter == "#":
            text += str(draw(st.integers(0, 31)))
        elif letter == "$":
            text += str(draw(st.integers(0, 0xFFFFFFFF)))
        elif letter == "%" and not template[at + 2 : at + 3].isdigit():
            choices = [n for n in POOLS[after] if f"{after}{n}" not in written]
            name = f"{after}{draw(st.sampled_from(choices))}"
            text += f"%{name}"
            at += 1
            if template[at + 1 : at + 2] == "D":
                written.append(name)
                at += 1
        else:
            text += letter
        at += 1
    return text


BEFORE = """
.local .align 8 .b8 mine[8]; mov.u64 %d5, mine;
mul.wide.u32 %d0, %r0, 256; add.u64 %d0, %q0, %d0; mul.wide.u32 %d1, %r0, 8; add.u64 %d1, %q1, %d1;
ld.global.u64 %d8, [%d1]; cvt.u32.u64 %r2, %d8; cvt.u16.u32 %h10, %r2;
mov.u32 %r10, s; shl.b32 %r11, %r0, 4; add.u32 %r10, %r10, %r11; xor.b32 %r11, %r10, 16;
"""


def after() -> str:
    """Store every register of the pools at an offset of its own."""
    lines, offset = [], 0
    for cls, pool in POOLS.items():
        for number in pool:
            name = f"%{cls}{number}"
            if cls == "p":
                name = f"%r{50 + number}"
                lines.append(f"selp.u32 {name}, 1, 0, %p{number};")
            width = max(WIDTHS[cls], 32) if cls == "p" else WIDTHS[cls]
            lines.append(f"st.global.b{width} [%d0+{offset}], {name};")
            offset += 8
    return "\n".join(lines)


class Noted(BaseException):
    """The program uses an undefined value where it matters. The emulator lets it pass; one of its
    errors would stand in the list of their codes."""


def run_with(body: str, seed: int, inputs: Array, patch: pytest.MonkeyPatch) -> tuple[Array, Array]:
    """(what the registers hold, their shadows), both uint64[32, registers]."""
    out = np.zeros((32, 32), np.uint64)
    shadows: dict[str, Array] = {}

    def record(self: Use, ex: Any, shadow: Array) -> None:
        if "is stored to global memory" in self.what:
            shadows[self.what.split()[1]] = ex.group.spread(shadow).astype(np.uint64)
        elif shadow.any():
            # An undefined guard of a load or store is noted, and taken for good from there on.
            raise Noted("an undefined value matters")

    random = np.random.default_rng(seed)
    patch.setattr(order, "_noise", lambda salt, n: np.frombuffer(random.bytes(n), np.uint8))
    patch.setattr(Use, "check", record)
    run(BEFORE + body + after(), out, inputs, before=".shared .align 16 .b8 s[512];")
    told = np.zeros_like(out)
    names = [f"%r{50 + n}" if c == "p" else f"%{c}{n}" for c, pool in POOLS.items() for n in pool]
    for i, name in enumerate(names):
        told[:, i] = shadows.get(name, 0)
    return out, told


@settings(max_examples=60, deadline=None)
@given(body=programs(), seed=st.integers(0, 1000))
def test_defined_bits_do_not_depend_on_noise(body: str, seed: int) -> None:
    inputs = np.random.default_rng(seed).integers(0, 1 << 63, 32, dtype=np.uint64)
    with pytest.MonkeyPatch.context() as patch:
        try:
            first, told = run_with(body, 0, inputs, patch)
        except Noted:
            reject()
        for number in range(1, RUNS):
            other, told_again = run_with(body, number, inputs, patch)
            assert not ((first ^ other) & ~told).any()
            assert np.array_equal(told, told_again)


def test_no_shadow_is_kept_where_nothing_is_undefined() -> None:
    """The generated code of a clean kernel is the same with and without the check."""
    from nvfp4.emulator.compiler.codegen import compile_kernel
    from nvfp4.emulator.ptx.link import link
    from nvfp4.emulator.ptx.parser import parse

    text = ptx_of(f"{MINE} setp.lt.u32 %p1, %r0, 8; @%p1 st.global.u32 [%d0], %r0;", 1)
    program = link(parse(text), "k")
    checked, plain = (compile_kernel(program, check).blocks for check in (True, False))
    assert [b.run.__code__.co_code for b in checked] == [b.run.__code__.co_code for b in plain]
