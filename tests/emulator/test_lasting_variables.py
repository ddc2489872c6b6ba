"""Whether something of a module lasts from launch to launch."""

from __future__ import annotations

import pytest

from nvfp4 import emulator

MODULE = """
.version 8.7
.target sm_100a
.address_size 64
{declared}
.visible .entry k()
{{
    .reg .b32 %r<3>;
    .reg .b64 %d<2>;
{body}
    ret;
}}
"""


@pytest.mark.parametrize(
    "declared",
    [
        ".global .align 4 .u32 kept = 7;",
        ".visible .global .align 4 .u32 kept = 7;",
        ".visible.global .align 4 .u32 kept = 7;",
        ".weak.global .align 4 .u32 kept = 7;",
    ],
)
def test_variables_of_the_device_last_however_they_are_declared(declared: str) -> None:
    body = "mov.u64 %d1, kept; ld.global.u32 %r1, [%d1]; st.global.u32 [%d1], %r1;"
    text = MODULE.format(declared=declared, body=body)
    emulator.run_ptx(text, "k", (1, 1, 1), (1, 1, 1), [])
    assert emulator.has_variables(text)


def test_nothing_of_a_kernel_that_uses_shared_memory_alone_lasts() -> None:
    body = "mov.u32 %r1, own; st.shared.u32 [%r1], %r1;"
    text = MODULE.format(declared=".shared .align 4 .b8 own[4];", body=body)
    emulator.run_ptx(text, "k", (1, 1, 1), (1, 1, 1), [])
    assert not emulator.has_variables(text)
