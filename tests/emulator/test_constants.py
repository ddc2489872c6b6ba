"""Numbers have the values that ptxas gives them; expressions of them are refused by name."""

import subprocess
from pathlib import Path

import pytest
from ptx_harness import HEADER, MINE, out, run

from nvfp4.emulator.errors import PtxSyntaxError
from nvfp4.emulator.ptx.parser import parse
from nvfp4.model.tools import tools

VALUES = {
    "010": 8,
    "0b11U": 3,
    "0x8000000000000000": 1 << 63,
    "18446744073709551615": -1,
    "-5": -5,
    "- -5": 5,
    "+5": 5,
    "-1U": -1,
    "WARP_SZ": 32,
    "-WARP_SZ": -32,
}
REFUSED = ("7%3", "99999999999999999999", "()", "(1", "08", "5u", "1 2", "1 = 1")
EXPRESSIONS = ("4*2+1", "(1+2)", "1?2:3", "~5", "!0", "1<<40", "5|3", "(.u64)-1", "1.5<2", "1&&1")


def value_of(expression: str) -> int:
    """The 64 bits of an initialiser, as the parser reads it."""
    (variable,) = parse(f"{HEADER} .global .u64 g = {expression};").variables
    ((_, _, value),) = variable.initial
    assert isinstance(value, int)
    return value


@pytest.mark.parametrize(("text", "value"), VALUES.items())
def test_a_number_has_its_value(text: str, value: int) -> None:
    assert value_of(text) == value % 2**64


@pytest.mark.skipif(not tools("ptxas"), reason="there is no ptxas")
def test_ptxas_has_the_same_values(tmp_path: Path) -> None:
    source, cubin = tmp_path / "kernel.ptx", tmp_path / "kernel.cubin"
    source.write_text(
        f"{HEADER}\n.visible .global .u64 g[{len(VALUES)}] = {{ {', '.join(VALUES)} }};\n"
        ".visible .entry k() { .reg .b64 a; mov.u64 a, g; st.global.u64 [a], 1; ret; }"
    )
    words = [str(tools("ptxas")[0]), "-arch=sm_100a", str(source), "-o", str(cubin)]
    subprocess.run(words, check=True, capture_output=True)
    expected = b"".join((value % 2**64).to_bytes(8, "little") for value in VALUES.values())
    assert expected in cubin.read_bytes()


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(PtxSyntaxError):
        value_of(text)


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_an_expression_is_refused_by_name_wherever_it_stands(text: str) -> None:
    with pytest.raises(PtxSyntaxError, match="constant expressions are not emulated") as refused:
        value_of(text)
    assert refused.value.refusal
    with pytest.raises(PtxSyntaxError, match="constant expressions are not emulated"):
        run(f"{MINE} mov.u32 %r5, {text};", out(32))


BODIES = {
    "mov.u32 %r5, WARP_SZ;": 32,
    "{ .shared .b32 s[WARP_SZ]; st.shared.u32 [s+12], 5; ld.shared.u32 %r5, [s + 12]; }": 5,
    "{ .reg .b32 x; .shared .b32 s[4]; mov.u32 x, s+12; st.shared.u32 [s+8], 5;"
    " ld.shared.u32 %r5, [x+-4]; }": 5,
    "ld.const.u32 %r5, [table+8];": 12,
}


@pytest.mark.parametrize(("body", "value"), BODIES.items())
def test_a_number_stands_where_ptxas_takes_one(body: str, value: int) -> None:
    a = out(32)
    before = ".const .u32 table[] = { 1, 6, 12 };\n"
    run(f"{MINE} {body} st.global.u32 [%d0], %r5;", a, before=before)
    assert (a == value).all()
