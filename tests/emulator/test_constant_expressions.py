"""Constant expressions have the values that ptxas gives them."""

import subprocess
from pathlib import Path

import pytest
from ptx_harness import HEADER, MINE, out, run

from nvfp4.emulator.errors import PtxSyntaxError
from nvfp4.emulator.ptx.parser import parse
from nvfp4.model.tools import tools

ONES = (1 << 64) - 1

VALUES = {
    # precedence and associativity
    "4*2+1": 9,
    "1+2*3": 7,
    "(1+2)*3": 9,
    "1-2-3": -4,
    "1<<2+3": 32,
    "2*(3+4)<<1": 28,
    "5^1|2": 6,
    "1|2^3&4": 3,
    "7/2*2": 6,
    "2*-3": -6,
    "1--1": 2,
    "1-~0": 2,
    # literals
    "010": 8,
    "0b11U": 3,
    "(1U<<4) - 32": -16,
    "WARP_SZ-33": -1,
    "0xFFFFFFFFFFFFFFFF>>60": 15,
    "- -5": 5,
    # only the lower six bits of a shift's count matter
    "1<<64": 1,
    "8>>65": 4,
    "1<<-1": 1 << 63,
}

REFUSED = [
    *("7/0", "7 % 0", "1?2", "1 = 1", "7%3", "(.u32)5", "(.s64)1.5", "~1.0", "1.0 << 1"),
    *("99999999999999999999", "1/0.0", "()", "(1", "08", "5u", "1 2"),
]
NOT_EMULATED = ["-7/2", "-8 >> 1", "1 < 2", "1 && 1", "!5", "1 ? 2 : 3", "(.u64)5"]


def value_of(expression: str) -> int:
    """The 64 bits of an initialiser, as the parser reads it."""
    (variable,) = parse(f"{HEADER} .global .u64 g = {expression};").variables
    ((_, _, value),) = variable.initial
    assert isinstance(value, int)
    return value


@pytest.mark.parametrize(("expression", "value"), VALUES.items())
def test_an_expression_has_its_value(expression: str, value: int) -> None:
    assert value_of(expression) == value & ONES


@pytest.mark.parametrize("expression", REFUSED + NOT_EMULATED)
def test_what_is_no_constant_is_refused(expression: str) -> None:
    with pytest.raises(PtxSyntaxError):
        value_of(expression)


def assembled(text: str, folder: Path) -> bytes | None:
    """The machine code of a module; None where ptxas refuses it."""
    source, cubin = folder / "kernel.ptx", folder / "kernel.cubin"
    source.write_text(f"{HEADER}\n{text}", encoding="utf-8")
    cubin.unlink(missing_ok=True)
    words = [str(tools("ptxas")[0]), "-arch=sm_100a", str(source), "-o", str(cubin)]
    done = subprocess.run(words, capture_output=True)
    return None if done.returncode else cubin.read_bytes()


def initialised(expressions: list[str]) -> str:
    """A module with an array of these values."""
    return (
        f".visible .global .u64 g[{len(expressions)}] = {{ {', '.join(expressions)} }};\n"
        ".visible .entry k() { .reg .b64 a; mov.u64 a, g; st.global.u64 [a], 1; ret; }"
    )


needs_ptxas = pytest.mark.skipif(not tools("ptxas"), reason="there is no ptxas")


@needs_ptxas
def test_ptxas_has_the_same_values(tmp_path: Path) -> None:
    code = assembled(initialised([*VALUES]), tmp_path)
    expected = b"".join((value & ONES).to_bytes(8, "little") for value in VALUES.values())
    assert code
    assert expected in code


@needs_ptxas
@pytest.mark.parametrize("expression", REFUSED)
def test_ptxas_refuses_the_same(expression: str, tmp_path: Path) -> None:
    assert assembled(initialised([expression]), tmp_path) is None


BODIES = {
    "mov.u32 %r5, (4*2)+1;": 9,
    "mov.u32 %r5, ~5;": 0xFFFFFFFA,
    "mov.u32 %r5, 1<<40;": 0,
    "mov.u32 %r5, WARP_SZ*2-1;": 63,
    "mov.u32 %r5, 2; add.u32 %r5, %r5, 1 << 2 | 1;": 7,
    "{ .reg .b64 w; .reg .b32 h; mov.b64 w, {1+1, 2*3}; mov.b64 {%r5, h}, w; }": 2,
    "{ .shared .b32 s[WARP_SZ]; st.shared.u32 [s+4*2+4], 5; ld.shared.u32 %r5, [s+1<<3|4]; }": 5,
    "{ .reg .b32 x; .shared .b32 s[4]; mov.u32 x, s+12; st.shared.u32 [s+8], 5;"
    " ld.shared.u32 %r5, [x+~3]; }": 5,
    "ld.const.u32 %r5, [table+4*2];": 12,
    "call (%r5), twice, ((1+2)*3);": 18,
    "bar.sync 0*1, 8*4; mov.u32 %r5, 1;": 1,
}
BEFORE = (
    ".const .u32 table[] = { 1, 2*3, 4*3 };\n"
    ".func (.reg .u32 o) twice(.reg .u32 i) { add.u32 o, i, i; ret; }\n"
)


@pytest.mark.parametrize(("body", "value"), BODIES.items())
def test_an_expression_stands_where_ptxas_takes_one(body: str, value: int) -> None:
    a = out(32)
    run(f"{MINE} {body} st.global.u32 [%d0], %r5;", a, before=BEFORE)
    assert (a == value).all()


ELSEWHERE = [
    "{ .shared .b32 s[4*2]; st.shared.u32 [s], 1; }",
    "{ .shared .align 4*2 .b32 s[4]; st.shared.u32 [s], 1; }",
    "{ .reg .b32 t<1+2>; mov.u32 t0, 1; }",
    "{ .shared .b32 s[4]; st.shared.u32 [4+s], 1; }",
    "{ .shared .b32 s[4]; st.shared.u32 [s-4+8], 1; }",
    "mov.u32 %r5, (%r5);",
]


@pytest.mark.parametrize("body", ELSEWHERE)
def test_elsewhere_an_expression_is_refused_as_by_ptxas(body: str, tmp_path: Path) -> None:
    with pytest.raises(PtxSyntaxError):
        run(f"{MINE} {body}", out(32))
    if tools("ptxas"):
        kernel = f".visible .entry k() {{ .reg .b32 %r<9>; {body} ret; }}"
        assert assembled(kernel, tmp_path) is None
