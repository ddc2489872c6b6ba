"""Whatever a text holds, the front end answers with an error of its own."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ptx_harness import ptx_of

from nvfp4.emulator.compiler.codegen import compile_kernel
from nvfp4.emulator.errors import EmulatorError
from nvfp4.emulator.ptx.link import link
from nvfp4.emulator.ptx.parser import parse

BODY = """
.local .align 8 .b8 mine[16]; { .param .b32 p0; st.param.b32 [p0], %r0; }
mov.u64 %d1, mine; cvta.local.u64 %d2, %d1; setp.lt.and.u32 %p1|%p2, %r0, 5, !%p3;
ld.global.v2.u32 {%r1, %r2}, [%q0+8]; @!%p1 bra L1; add.f32 %r3, %r1, 0f3F800000;
L1: shfl.sync.idx.b32 %r4|%p4, %r3, 0, 31, -1; bar.sync 0, 32; atom.global.add.u32 %r5, [%q0], 1;
T: .branchtargets L1, L2; L2: mov.b64 {%r1, _}, %d2; st.shared.v4.b32 [s+16],
{%r1, %r2, %r3, %r4}; cp.async.ca.shared.global [s], [%q0], 16; cp.async.wait_group 0;
mbarrier.try_wait.parity.shared.b64 %p5, [s], 0;
cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes
[s], [%q0, {%r1, %r2}], [s];
"""
BEFORE = ".const .align 4 .u32 table[2] = {1, 0x2};\n.shared .align 16 .b8 s[64];"
TOKENS = re.findall(r"[\w%.:$]+|[^\s\w]|\n", ptx_of(BODY, 1, BEFORE))


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["drop", "double", "swap", "put"]),
            st.integers(0, len(TOKENS) - 2),
            st.sampled_from(TOKENS),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_a_damaged_text_is_an_error_and_no_crash(damage: list[tuple[str, int, str]]) -> None:
    words = list(TOKENS)
    for kind, at, other in damage:
        if kind == "drop":
            words[at] = ""
        elif kind == "double":
            words[at] += " " + words[at]
        elif kind == "swap":
            words[at], words[at + 1] = words[at + 1], words[at]
        else:
            words[at] = other
    answer = "compiled"
    try:
        compile_kernel(link(parse(" ".join(words)), "k"), check=True)
    except EmulatorError as error:
        answer = str(error)
    assert answer


@pytest.mark.parametrize(
    "instruction",
    [
        *("xor.b32 %r1, %r2, [s];", "xor.b64 %d1, %d2, [%q0];", "add.f32 %r1, [%q0], %r2;"),
        *("mov.u32 %r1, [s];", "mov.u64 %d1, [%q0];", "selp.b32 %r1, [%q0], %r2, %p1;"),
        *("prmt.b32 %r1, %r2, %r3, [table];", "setp.lt.u64 %p1, %d1, [%q0];"),
        *("shfl.sync.idx.b32 %r4, [%q0], 0, 31, -1;", "ld.global.u32 [%q0], %r1;"),
        *("st.global.u32 [%q0], [%q0];", "st.global.u64 [%q0], [%q0];"),
        "atom.global.add.u64 %d1, [%q0], [%q0];",
    ],
)
def test_an_address_is_no_value(instruction: str) -> None:
    """What it reads would be eight bytes where an instruction writes four."""
    with pytest.raises(EmulatorError):
        compile_kernel(link(parse(ptx_of(instruction, 1, BEFORE)), "k"), check=True)
