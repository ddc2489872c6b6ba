"""PTX means to the emulator what it means to ptxas, or is refused."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from ptx_harness import HEADER, MINE, aligned, out, ptx_of, run
from ptx_runs import run_ptx

from nvfp4.emulator import errors
from nvfp4.emulator.ptx.parser import parse
from nvfp4.model.assembly import located
from nvfp4.model.tools import tools

STORES = f"{MINE} st.global.u32 [%d0], 5;"
FILE = '.file 1 "x.cu"\n'


@pytest.mark.parametrize(
    "body",
    [
        f".loc 1 1 0 ret; {STORES}",
        f".loc 1 1 0, function_name L, inlined_at 1 1 0 ret; {STORES}",
        f".target sm_100a ret; {STORES}",
        f"// \\\nret;\n{STORES}",
    ],
    ids=["loc", "inlined_at", "target", "comment"],
)
def test_a_directive_ends_where_its_arguments_do(body: str) -> None:
    a = out(32)
    run(body, a, before=FILE)
    assert not a.any()


@pytest.mark.parametrize(
    "body", [".loc 1 1 ret;", ".loc 1 1 0, ret;", ".file 1 2;", '.pragma "x" ret;', ".version ret;"]
)
def test_a_directive_with_other_arguments_is_refused(body: str) -> None:
    with pytest.raises(errors.PtxSyntaxError):
        run(body, out(32))


def test_a_function_has_one_body() -> None:
    twice = ".func f() { ret; } .func f();"
    parse(HEADER + twice)
    with pytest.raises(errors.PtxSyntaxError, match="f is defined twice"):
        parse(HEADER + twice + ".func f() { ret; }")


def test_two_variables_of_one_name_are_not_taken_for_one() -> None:
    body = f"{{ .const .b32 twice = 7; }} ld.const.u32 %r5, [twice]; {STORES}"
    with pytest.raises(errors.PtxSyntaxError, match="two variables are called twice"):
        run(body, out(32), before=".const .b32 twice = 0;")


def test_two_variables_of_one_name_in_shared_memory_have_a_place_each() -> None:
    body = f""".shared .b32 s; {{ .shared .b32 s; mov.u32 %r6, s; }} mov.u32 %r7, s;
    sub.u32 %r5, %r6, %r7; {MINE} st.global.u32 [%d0], %r5;"""
    a = out(32)
    run(" ".join(body.split("\n")), a)
    assert a.all()


def test_a_function_of_the_module_s_own_is_called_whatever_its_name() -> None:
    before = """.func (.param .b32 out) vprintf(.param .b64 a, .param .b64 b)
    { .reg .b32 %r<2>; mov.u32 %r1, 77; st.param.b32 [out], %r1; ret; }"""
    body = f"""{{ .param .b64 a; .param .b64 b; .param .b32 r; st.param.b64 [a], 0;
    st.param.b64 [b], 0; call.uni (r), vprintf, (a, b); ld.param.b32 %r5, [r]; }}
    {MINE} st.global.u32 [%d0], %r5;"""
    a = out(32)
    assert run(body, a, before=before).output == ""
    assert (a == 77).all()


@pytest.mark.parametrize("space", ["const", "param"])
def test_constants_and_parameters_are_all_that_their_loads_reach(space: str) -> None:
    with pytest.raises(errors.OutOfBounds, match=f"does not lie in .{space}"):
        run(f"{MINE} ld.{space}.u32 %r5, [%d0];", out(32))
    a, numbers = out(32), ", ".join(map(str, range(32)))
    body = f"""shl.b32 %r6, %r0, 2; mov.u32 %r7, t; add.u32 %r7, %r7, %r6; ld.const.u32 %r5, [%r7];
    {MINE} st.global.u32 [%d0], %r5;"""
    run(body, a, before=f".const .b32 t[32] = {{{numbers}}};")
    assert (a == np.arange(32)).all()


@pytest.mark.parametrize(
    "body",
    [
        "st.shared.b32 [%r1], {%r2, %r3, %r4};",
        "ld.shared.b32 {%r2, %r3, %r4}, [%r1];",
        "atom.shared.exch.b32 {%r2, %r3, %r4}, [%r1], {%r5, %r6, %r7};",
        "st.shared.v4.b32 [%r1], {%r2, %r3};",
    ],
)
def test_an_access_has_as_many_elements_as_its_opcode_names(body: str) -> None:
    """Twelve bytes are aligned by one reading and not by another."""
    with pytest.raises(errors.PtxSyntaxError, match=r"takes [14] elements, not [23]"):
        run(f"mov.u32 %r1, 1032; {body}", out(32), before=".shared .align 16 .b8 s[1024];")


def test_launch_bounds_bind() -> None:
    text = ptx_of("", 0, directives=".maxntid 64, 1, 1")
    run_ptx(text, "k", (1,), (8, 8, 1), [])
    with pytest.raises(errors.LaunchError, match="128 threads a block, its launch bounds allow 64"):
        run_ptx(text, "k", (1,), (128,), [])


def test_a_bulk_store_that_is_in_no_group_is_not_waited_for() -> None:
    body = """mov.u32 %r10, s; shl.b32 %r11, %r0, 2; add.u32 %r12, %r10, %r11;
    st.shared.u32 [%r12], %r0; fence.proxy.async.shared::cta; bar.sync 0; setp.eq.u32 %p1, %r0, 0;
    @!%p1 bra E; cp.async.bulk.global.shared::cta.bulk_group [%q0], [%r10], 128; {}
    cp.async.bulk.wait_group.read 0; st.shared.u32 [%r12], 9; E:"""
    before = ".shared .align 128 .b8 s[128];"
    found = run(body.format("cp.async.bulk.commit_group;"), aligned(out(32)), before=before)
    assert not found.findings
    with pytest.raises(errors.SharedRace, match="depends on the order"):
        run(body.format(""), aligned(out(32)), before=before)


def test_what_is_undefined_in_another_cta_s_shared_memory_is_kept_there() -> None:
    body = """mov.u32 %r10, %cluster_ctarank; xor.b32 %r11, %r10, 1; mov.u32 %r12, s;
    shl.b32 %r8, %r0, 2; add.u32 %r12, %r12, %r8; mapa.shared::cluster.u32 %r13, %r12, %r11;
    st.shared::cluster.u32 [%r13], %r40; barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned; ld.shared.u32 %r5, [%r12];
    mov.u32 %r6, %ctaid.x; mad.lo.u32 %r6, %r6, 32, %r0; mul.wide.u32 %d1, %r6, 4;
    add.u64 %d0, %q0, %d1; st.global.u32 [%d0], %r5;"""
    with pytest.raises(errors.UninitialisedRegister, match="shared address 0x400, where PTX line"):
        run(body, out(64), grid=2, cluster=2, before=".shared .align 16 .b8 s[128];")


@pytest.mark.skipif(not tools("ptxas"), reason="there is no ptxas")
def test_the_machine_code_of_each_statement_has_its_place(tmp_path: Path) -> None:
    ptx = f"""{HEADER}{FILE}.section .debug_x {{ .b8 1 }}
.global .u64 here[1] = {{k}}; .visible .entry k(.param .u64 p) {{
  .loc 1 70 0
  .reg .b32 %r<4>; .reg .b64 %d<2>; ld.param.u64
  %d1, [p]; .loc 1 71 0 ld.global.u32 %r1, [%d1];
  {{ add.u32 %r2, %r1, %r1; }} L:
  st.global.u32 [%d1], %r2; ret; }}"""
    ptx = ptx.replace("= {k}", "= {1}")
    text = located(ptx)
    places = [int(line.split()[2]) for line in text.split("\n") if line.startswith(".loc")]
    words = [ptx[place:].split(None, 1)[0] for place in places]
    assert words == ["ld.param.u64", "ld.global.u32", "add.u32", "st.global.u32", "ret;"]
    (tmp_path / "k.ptx").write_text(text)
    ptxas = shutil.which("ptxas") or str(tools("ptxas")[0])
    command = [ptxas, "-arch=sm_100a", "-lineinfo", str(tmp_path / "k.ptx"), "-o", "/dev/null"]
    assert subprocess.run(command).returncode == 0
