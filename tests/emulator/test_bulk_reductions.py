"""cp.reduce.async.bulk: the copy engine adds shared memory to global memory, word by word."""

from typing import Any

import numpy as np
import pytest
from ptx_harness import Array, aligned, run

from nvfp4.emulator import LaunchReport, errors

SHARED = ".shared .align 128 .b8 s[1024];"


def reduced(
    form: str, own: Array, start: Array, grid: int = 1, wait: str = "cp.async.bulk.wait_group 0;"
) -> tuple[Array, LaunchReport]:
    """Each CTA copies `own` to shared memory, which is then reduced into a copy of `start`."""
    source, target = aligned(own), aligned(start)
    nbytes = source.nbytes
    body = f"""mov.u32 %r10, s; setp.lt.u32 %p2, %r0, {nbytes // 4}; shl.b32 %r11, %r0, 2;
    add.u32 %r12, %r10, %r11; mul.wide.u32 %d1, %r0, 4; add.u64 %d1, %q0, %d1;
    @%p2 ld.global.u32 %r13, [%d1]; @%p2 st.shared.u32 [%r12], %r13;
    fence.proxy.async.shared::cta; bar.sync 0; setp.ne.u32 %p1, %r0, 0; @%p1 bra E;
    cp.reduce.async.bulk.global.shared::cta.bulk_group.{form} [%q1], [%r10], {nbytes};
    cp.async.bulk.commit_group; {wait} E:"""
    report = run(body, source, target, grid=grid, block=64, before=SHARED)
    return target, report


CASES: list[tuple[str, str, Any]] = [
    ("add.u32", "u4", np.add),
    ("add.s32", "i4", np.add),
    ("add.f32", "f4", np.add),
    ("add.noftz.f16", "f2", np.add),
    ("add.f64", "f8", np.add),
    ("min.s32", "i4", np.minimum),
    ("max.u64", "u8", np.maximum),
    ("and.b32", "u4", np.bitwise_and),
    ("xor.b64", "u8", np.bitwise_xor),
]


@pytest.mark.parametrize(("form", "dtype", "operate"), CASES)
def test_each_element_is_combined_with_what_is_there(form: str, dtype: str, operate: Any) -> None:
    draw = np.random.default_rng(3)
    own, start = (draw.integers(0, 50, 24).astype(dtype) for _ in range(2))
    found, report = reduced(form, own, start)
    assert (found == operate(start, own)).all()
    assert report.atomics == 24
    assert not report.findings


def test_ctas_add_to_the_same_words_without_a_race() -> None:
    own = np.arange(48, dtype=np.uint32)
    found, report = reduced("add.u32", own, np.ones(48, np.uint32), grid=7)
    assert (found == 1 + 7 * own).all()
    assert not report.findings


def test_a_reduction_has_to_be_waited_for() -> None:
    _, report = reduced("add.u32", np.ones(4, np.uint32), np.ones(4, np.uint32), wait="")
    assert [finding.code for finding in report.findings] == ["unwaited_store"]


def test_words_past_the_end_are_out_of_bounds() -> None:
    with pytest.raises(errors.OutOfBounds):
        reduced("add.u32", np.ones(8, np.uint32), np.ones(4, np.uint32))


def test_tiles_are_refused_by_name() -> None:
    body = (
        "cp.reduce.async.bulk.tensor.1d.global.shared::cta.add.tile.bulk_group [%q0, {%r1}], [%r2];"
    )
    with pytest.raises(errors.UnsupportedInstruction, match=r"modifier \.tensor is not"):
        run(body, np.zeros(1))
