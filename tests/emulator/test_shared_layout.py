"""Where shared variables lie: those of called functions, of scopes and dynamic arrays."""

import numpy as np
from ptx_harness import MINE, ptx_of, run

from nvfp4.emulator.ptx.link import link
from nvfp4.emulator.ptx.parser import parse
from nvfp4.emulator.ptx.syntax import SHARED_BASE

# Each thread of f writes its word of f's own array and of what it is given, and reads the first.
OWN_ARRAY = """
.extern .shared .align 16 .b8 dyn[];
.func (.param .b32 out) f(.param .b32 value, .param .b32 given)
{
    .shared .align 4 .b8 own[128];
    .reg .b32 %a<8>;
    ld.param.b32 %a1, [value]; ld.param.b32 %a5, [given];
    mov.u32 %a2, %tid.x; shl.b32 %a2, %a2, 2; mov.u32 %a3, own; add.u32 %a3, %a3, %a2;
    st.shared.b32 [%a3], %a1;
    not.b32 %a6, %a1; st.shared.b32 [%a5], %a6;
    ld.shared.b32 %a4, [%a3];
    st.param.b32 [out], %a4;
    ret;
}
"""
CALLS = f"""
shl.b32 %r11, %r0, 2; mov.u32 %r10, dyn; add.u32 %r10, %r10, %r11;
{{ .param .b32 v; .param .b32 g; .param .b32 o; st.param.b32 [v], %r0; st.param.b32 [g], %r10;
  call (o), f, (v, g); ld.param.b32 %r5, [o]; }}
{{ .param .b32 v; .param .b32 g; .param .b32 o; st.param.b32 [v], %r5; st.param.b32 [g], %r10;
  call (o), f, (v, g); ld.param.b32 %r6, [o]; }}
{MINE} st.global.u32 [%d0], %r6;
"""


def test_a_called_function_s_array_lies_before_dynamic_shared_memory() -> None:
    a = np.zeros(32, np.uint32)
    report = run(CALLS, a, before=OWN_ARRAY, shared_bytes=128)
    assert report.findings == []
    assert a.tolist() == list(range(32))


def test_a_function_has_its_array_once_however_often_it_is_called() -> None:
    program = link(parse(ptx_of(CALLS, 1, OWN_ARRAY)), "k")
    assert program.shared_end == program.dynamic_shared == SHARED_BASE + 128
    report = run(CALLS, np.zeros(32, np.uint32), before=OWN_ARRAY, shared_bytes=128)
    assert report.shared_bytes == 256


def test_a_function_that_nobody_calls_takes_no_shared_memory() -> None:
    assert link(parse(ptx_of("", 1, OWN_ARRAY)), "k").shared_end == SHARED_BASE


def test_variables_of_one_name_in_two_scopes_are_two() -> None:
    body = f"""
    {{ .shared .align 4 .b32 s; st.shared.u32 [s], 1; {{ .shared .align 4 .b32 s;
       st.shared.u32 [s], 2; }} ld.shared.u32 %r5, [s]; }} {MINE} st.global.u32 [%d0], %r5;
    """
    a = np.zeros(32, np.uint32)
    run(body, a)
    assert (a == 1).all()
