"""Flags in shared memory, and the part of the system's shared memory that kernels may use."""

import numpy as np
import pytest
from ptx_harness import run

from nvfp4.emulator import errors

SHARED = ".shared .align 8 .b8 s[256];"


def handed_over(store: str, load: str, clear: str = "st.shared.u32") -> list[str]:
    """Warp 0 writes words and raises a flag, warp 1 waits for it and takes them; the findings.
    clear: how thread 0 has cleared the flag."""
    out = np.zeros(32, np.uint32)
    body = f"""mov.u32 %r10, s; and.b32 %r11, %r0, 31;
    shl.b32 %r12, %r11, 2; add.u32 %r12, %r10, %r12;
    setp.eq.u32 %p1, %r0, 0; @%p1 {clear} [%r10+128], 0; bar.sync 0;
    setp.ge.u32 %p2, %r0, 32; @%p2 bra TAKE;
    add.u32 %r13, %r0, 7; st.shared.u32 [%r12], %r13; bar.warp.sync -1;
    @%p1 {store} [%r10+128], 1; bra END;
    TAKE: {load} %r14, [%r10+128]; setp.eq.u32 %p3, %r14, 0; @%p3 bra TAKE; bar.warp.sync -1;
    ld.shared.u32 %r15, [%r12]; mul.wide.u32 %d0, %r11, 4; add.u64 %d0, %q0, %d0;
    st.global.u32 [%d0], %r15; END:"""
    report = run(body, out, block=64, before=SHARED)
    assert (out == np.arange(32) + 7).all()
    return [finding.code for finding in report.findings]


RELAXED = "st.relaxed.cta.shared.u32"


@pytest.mark.parametrize(
    "store", ["st.release.cta.shared.u32", f"fence.acq_rel.cta; @%p1 {RELAXED}"]
)
@pytest.mark.parametrize("load", ["ld.acquire.cta.shared.u32", "ld.relaxed.cta.shared.u32"])
def test_a_flag_orders_what_comes_before_and_after(store: str, load: str) -> None:
    assert handed_over(store, load) == []


def test_a_relaxed_store_tells_only_what_a_fence_has_ordered() -> None:
    assert handed_over(RELAXED, "ld.acquire.cta.shared.u32") == ["shared_race"]
    late = f"{RELAXED} [%r10+132], 1; fence.acq_rel.cta; @%p1 {RELAXED}"
    assert handed_over(late, "ld.acquire.cta.shared.u32") == []


def test_a_flag_may_be_cleared_by_a_store_of_its_kind() -> None:
    store = "st.release.cta.shared.u32"
    assert handed_over(store, "ld.acquire.cta.shared.u32", clear=store) == []


def test_an_atomic_tells_whoever_loads_the_flag() -> None:
    assert handed_over("red.shared.add.u32", "ld.acquire.cta.shared.u32") == []


def test_plain_accesses_of_a_flag_race() -> None:
    assert "shared_race" in handed_over("st.shared.u32", "ld.shared.u32")
    assert "shared_race" in handed_over("st.shared.u32", "ld.acquire.cta.shared.u32")


def test_the_system_keeps_the_first_kilobyte() -> None:
    out = np.zeros(8, np.uint32)
    names = ("begin", "end", "cap", "0", "1")
    body = "".join(
        f"mov.u32 %r5, %reserved_smem_offset_{name}; st.global.u32 [%q0+{4 * i}], %r5;"
        for i, name in enumerate(names)
    )
    body += "mov.u32 %r20, %total_smem_size; st.global.u32 [%q0+20], %r20;"
    body += "mov.u32 %r21, %aggr_smem_size; st.global.u32 [%q0+24], %r21;"
    run(body, out, before=SHARED)
    begin, end, cap, first, second, total, aggregate, _ = out.tolist()
    assert (begin, end, cap) == (0, 1024, 1024)
    assert begin <= first < second <= end - 288, "cooperative groups want 288 bytes there"
    assert (total, aggregate) == (256, 1024 + 256)


def test_groups_may_use_their_part_of_it() -> None:
    """Whatever it holds: it is no variable of the kernel's, which nothing has written."""
    out = np.zeros(32, np.uint32)
    body = """mov.u32 %r10, %reserved_smem_offset_1; setp.eq.u32 %p1, %r0, 0;
    @%p1 red.shared.and.b32 [%r10], -2; @%p1 red.shared.or.b32 [%r10], 1; bar.sync 0;
    ld.shared.u32 %r11, [%r10]; and.b32 %r11, %r11, 1; mul.wide.u32 %d0, %r0, 4;
    add.u64 %d0, %q0, %d0; st.global.u32 [%d0], %r11;"""
    report = run(body, out, block=32)
    assert (out == 1).all()
    assert not report.findings


@pytest.mark.parametrize("address", ["%r10+-4", "0"])
def test_nobody_may_use_the_rest(address: str) -> None:
    body = f"mov.u32 %r10, %reserved_smem_offset_1; st.shared.u32 [{address}], %r10;"
    with pytest.raises(errors.OutOfBounds):
        run(body, np.zeros(1))


def test_a_kernel_that_does_not_ask_may_use_none_of_it() -> None:
    with pytest.raises(errors.OutOfBounds):
        run("mov.u32 %r10, 640; st.shared.u32 [%r10], %r10;", np.zeros(1), before=SHARED)
