"""Constant expressions have the values that ptxas gives them."""

import random
import subprocess
from pathlib import Path

import pytest
from ptx_harness import HEADER, MINE, out, run

from nvfp4.emulator.errors import PtxSyntaxError
from nvfp4.emulator.ptx.parser import parse
from nvfp4.model.tools import tools

ONES = (1 << 64) - 1

VALUES_BY_TOPIC = [
    # precedence and associativity
    "4*2+1 -> 9; 1+2*3 -> 7; (1+2)*3 -> 9; 1-2-3 -> -4; 1<<2+3 -> 32; 2*(3+4)<<1 -> 28",
    "1==2<3 -> 1; 1 < 2 < 3 -> 1; 3 > 2 > 1 -> 0; 5&1==1 -> 1; 5^1|2 -> 6; 1|2^3&4==4 -> 3",
    "1 || 0 && 0 -> 1; 2*-3 -> -6; 1--1 -> 2; 1-~0 -> 2; !(1)+1 -> 1",
    # ?: takes the type of what it chooses
    "1?0?5:6:7 -> 6; 1?2:0?3:4 -> 2; (1?2:0)?3:4 -> 3; (1 ? -1 : 1U) > 0 -> 0",
    "(1 ? 1U : 0) - 2 > 0 -> 1; (0 ? 1U : -1) < 0 -> 1",
    # literals
    "010 -> 8; 0b11U -> 3; 0x8000000000000000 < 0 -> 0; 9223372036854775808/-1 -> 0",
    "1U == -18446744073709551615 -> 1; WARP_SZ-33 < 0 -> 1",
    # unary operators and casts
    "- -5 -> 5; -!0 -> -1; !5 -> 0; (!0U) - 2 < 0 -> 1; ~5 > 0 -> 1; ~0>>60 -> 15",
    "-1U>>60 -> 15; (.s64)-5+1 -> -4; (.u64)-8>>1 -> 0x7ffffffffffffffc; (.u64)5 - 6 > 0 -> 1",
    "(.s64)5U - 6 > 0 -> 0; ( .s64 )5 -> 5",
    # signed and unsigned
    "(-1)<1U -> 0; -7/2 -> -3; -7/2U -> 0x7ffffffffffffffc; -7 % 3 -> 0; (-7 % -3) < 0 -> 0",
    "(-7 & -1) < 0 -> 1; (-7 & -1U) < 0 -> 0; (1U<2U) - 2 < 0 -> 1; (1U&&1U) - 2 < 0 -> 1",
    # shifts
    "-8>>1 -> -4; 1<<64 -> 1; 1<<-1 -> 0x8000000000000000; -1>>64 -> -1; (1<<63) < 0 -> 1",
    "(-1>>1U) < 0 -> 1",
]
VALUES = {
    expression: int(value, 0)
    for line in VALUES_BY_TOPIC
    for expression, value in (each.split(" -> ") for each in line.split("; "))
}

REFUSED = [
    *("7/0", "7 % 0", "0&&1/0", "1?2:1/0", "1?2", "1 = 1", "7%3", "(.u32)5", "(.s64)1.5", "~1.0"),
    *("1.5<2", "1.0 && 1", "!1.0", "1.0?2:3", "1 ? 2 : 3.0", "1.0 << 1", "99999999999999999999"),
    *("0f3F800000 < 2.0", "1.0 % 1.0", "1/0.0", "()", "(1", "08", "5u", "1 2"),
]


def value_of(expression: str) -> int:
    """The 64 bits of an initialiser, as the parser reads it."""
    (variable,) = parse(f"{HEADER} .global .u64 g = {expression};").variables
    ((_, _, value),) = variable.initial
    assert isinstance(value, int)
    return value


@pytest.mark.parametrize(("expression", "value"), VALUES.items())
def test_an_expression_has_its_value(expression: str, value: int) -> None:
    assert value_of(expression) == value & ONES


@pytest.mark.parametrize("expression", REFUSED)
def test_what_is_no_constant_is_refused(expression: str) -> None:
    with pytest.raises(PtxSyntaxError):
        value_of(expression)


def assembled(text: str, folder: Path) -> bytes | None:
    """The machine code of a module; None where ptxas refuses it."""
    source, cubin = folder / "kernel.ptx", folder / "kernel.cubin"
    source.write_text(f"{HEADER}\n{text}", encoding="utf-8")
    cubin.unlink(missing_ok=True)
    words = [str(tools("ptxas")[0]), "-arch=sm_100a", str(source), "-o", str(cubin)]
    return None if subprocess.run(words, capture_output=True).returncode else cubin.read_bytes()


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


_comparisons = ("<", "<=", ">", ">=", "==", "!=")


def drawn(draw: random.Random, depth: int) -> str:
    """An expression of integers."""
    kinds = ["literal"] if not depth else ["unary", "binary", "binary", "binary", "choice", "cast"]
    kind = draw.choice(kinds)
    inner = [drawn(draw, depth - 1) for _ in range(3)] if depth else []
    if kind == "literal":
        edges = [0, 1, 2, 3, 7, 31, 63, 64, (1 << 31) - 1, (1 << 63) - 1, 1 << 63, ONES]
        return f"{draw.choice(edges)}{draw.choice(['', '', 'U'])}"
    if kind == "unary":
        return f"{draw.choice('+-!~')} {inner[0]}"
    if kind == "cast":
        return f"({draw.choice(['.s64', '.u64'])}) {inner[0]}"
    if kind == "choice":
        return f"({inner[0]} ? {inner[1]} : {inner[2]})"
    marks = ["+", "-", "*", "/", "%", "<<", ">>", *_comparisons, "&", "|", "^", "&&", "||"]
    text = f"{inner[0]} {draw.choice(marks)} {inner[1]}"
    return f"({text})" if draw.random() < 0.5 else text


@needs_ptxas
def test_any_expression_has_the_value_that_ptxas_gives_it(tmp_path: Path) -> None:
    draw = random.Random(7)
    values: dict[str, int] = {}
    while len(values) < 500:
        expression = drawn(draw, draw.randrange(1, 4))
        try:
            values[expression] = value_of(expression)
        except PtxSyntaxError:  # divides by zero
            continue
    code = assembled(initialised([*values]), tmp_path)
    assert code
    start = code.find(b"".join(v.to_bytes(8, "little") for v in [*values.values()][:2]))
    found = code[start : start + 8 * len(values)]
    theirs = [int.from_bytes(found[at : at + 8], "little") for at in range(0, len(found), 8)]
    assert not [(e, v, t) for (e, v), t in zip(values.items(), theirs, strict=True) if v != t]


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
