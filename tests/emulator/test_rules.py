"""Each finding says which rule of which manual it breaks."""

import re
from collections.abc import Iterator

import numpy as np
import pytest
from ptx_harness import MINE, run

from nvfp4.emulator import errors
from nvfp4.emulator.report import noted
from nvfp4.records.launch import Note
from scripts.codes import finding_codes

NO_MANUAL = {
    *("output_dtype", "tolerance", "autotune", "own_stream", "software_conversion"),
    "input_changed",
}
"""What the contest or the machine decides."""


def classes(base: type[errors.EmulatorError]) -> Iterator[type[errors.EmulatorError]]:
    for each in base.__subclasses__():
        yield each
        yield from classes(each)


@pytest.mark.parametrize("code", sorted(set(finding_codes) - NO_MANUAL - {"stream.unordered"}))
def test_every_kind_of_finding_names_a_manual_and_a_section(code: str) -> None:
    found = [each for each in classes(errors.EmulatorError) if each.code == code]
    assert found
    for each in found:
        assert each.rule is not None
        assert re.fullmatch(r"(PTX ISA|CUDA C\+\+ Programming Guide), [^:]+: [^\n]+", each.rule)
        assert len(each.rule) <= 200, "it stands in a record of limited length"


def test_a_note_on_streams_names_its_section_too() -> None:
    found = noted(Note("stream.unordered", "it may still run", None, None, None), "kernel")
    assert found.rule is not None
    assert found.rule.startswith("CUDA C++ Programming Guide, Streams: ")
    assert noted(Note("autotune", "one of several", None, None, None), "kernel").rule is None


def test_a_shuffle_from_a_lane_that_is_not_there_quotes_the_rule_of_shuffles() -> None:
    body = f"""{MINE} setp.ge.u32 %p1, %r0, 16; @%p1 exit;
    shfl.sync.bfly.b32 %r7, %r0, 16, 31, 0xffff; st.global.u32 [%d0], %r7;"""
    with pytest.raises(errors.UninitialisedRegister) as caught:
        run(body, np.zeros(32, np.uint32))
    rule = "rule: PTX ISA, shfl.sync: the result is undefined if a thread reads from an inactive"
    assert rule in str(caught.value)


def test_a_register_that_nothing_sets_quotes_another_rule() -> None:
    with pytest.raises(errors.UninitialisedRegister, match="rule: PTX ISA, Initializers: "):
        run(f"{MINE} st.global.u32 [%d0], %r50;", np.zeros(32, np.uint32))


def test_a_thread_outside_its_mask_and_lanes_in_no_order_break_different_rules() -> None:
    outside = run("bar.warp.sync 0xffff;", np.zeros(32, np.uint32)).findings
    body = f"""{MINE} xor.b32 %r5, %r0, 1; mul.wide.u32 %d1, %r5, 4; add.u64 %d1, %q0, %d1;
    st.global.u32 [%d0], %r0; ld.global.u32 %r6, [%d1]; setp.eq.u32 %p1, %r6, 99; @%p1 trap;"""
    unordered = run(body, np.zeros(32, np.uint32)).findings
    assert [found.code for found in (*outside, *unordered)] == ["warp_sync", "warp_sync"]
    assert "membermask" in str(outside[0].rule)
    assert str(unordered[0].rule).startswith("PTX ISA, bar.warp.sync: ")
