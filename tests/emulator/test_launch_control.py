"""clusterlaunchcontrol: CTAs do the work of others that have not started. And the registers of 128
bits that its responses are read into."""

import struct
from typing import Any

import numpy as np
import pytest
from ptx_harness import MINE, aligned, out, ptx_of, run

from nvfp4.emulator import LaunchReport, cost_of
from nvfp4.emulator.errors import EmulatorError, UnsupportedInstruction
from nvfp4.records.launch import Buffer, Launch, ListedMemory

Array = np.ndarray[Any, Any]

CTAS = 12
WAIT = "ARRIVING: mbarrier.try_wait.parity.shared.b64 %p3, [%r21], %r22; @!%p3 bra ARRIVING;"
FENCE = "fence.proxy.async.shared::cta; bar.sync 0;"
IS_CANCELED = "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p2, %w;"
FIRST = "clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r2, %w;"
MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"


def requests(
    wait: str = WAIT, fence: str = FENCE, to_all: str = "", again: str = "@%p2", first: str = FIRST
) -> str:
    """Each CTA stores its number + 1 where it works: at its own place first, then at those of CTAs
    that it has cancelled. to_all: the modifier by which the first CTA of a cluster asks for all."""
    asks = "@!%p4 bra ASKED;" if to_all else ""
    meet = "fence.mbarrier_init.release.cluster;" + MEET if to_all else "bar.sync 0;"
    return f"""
.shared .align 16 .b8 response[16]; .shared .align 8 .b64 arrived; .reg .b128 %w;
mov.u32 %r20, response; mov.u32 %r21, arrived; mov.u32 %r22, 0;
mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %cluster_ctarank;
sub.u32 %r2, %r2, %r3; setp.eq.u32 %p4, %r3, 0; setp.eq.u32 %p1, %r0, 0; add.u32 %r5, %r1, 1;
@%p1 mbarrier.init.shared.b64 [%r21], 1; {meet}
WORK: add.u32 %r4, %r2, %r3; mul.wide.u32 %d0, %r4, 4; add.u64 %d0, %q0, %d0;
@!%p1 bra ASKED; st.global.u32 [%d0], %r5;
mbarrier.arrive.expect_tx.shared.b64 _, [%r21], 16; {asks}
clusterlaunchcontrol.try_cancel.async.mbarrier::complete_tx::bytes{to_all}.b128 [%r20], [%r21];
ASKED: {wait}
ld.shared.b128 %w, [%r20]; {IS_CANCELED} {first} {fence}
xor.b32 %r22, %r22, 1; {again} bra WORK;
"""


def worked(body: str, **options: Any) -> tuple[LaunchReport, Array]:
    """The report, and which CTA has done the work of each."""
    by = out(CTAS)
    return run(body, by, grid=CTAS, **options), by - 1


def findings(body: str, **options: Any) -> list[str]:
    try:
        return sorted({found.code for found in worked(body, **options)[0].findings})
    except EmulatorError as error:
        return [error.code]


def test_ctas_do_all_the_work_of_those_that_they_cancel() -> None:
    report, by = worked(requests())
    assert not report.findings
    assert set(by.tolist()) == {0, 1, 2, 3}


def test_the_first_cta_may_be_asked_for_as_a_vector() -> None:
    vector = "clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%r2, %r6, %r7, _}, %w;"
    assert np.array_equal(worked(requests(first=vector))[1], worked(requests())[1])


def test_a_cluster_is_cancelled_as_a_whole_and_all_of_its_ctas_are_told() -> None:
    body = requests(to_all=".multicast::cluster::all", fence=FENCE + MEET)
    report, by = worked(body, cluster=2)
    assert not report.findings
    assert set(by.tolist()) == {0, 1, 2, 3}
    assert all(one % 2 == 0 and other == one + 1 for one, other in by.reshape(-1, 2).tolist())


def test_a_response_is_waited_for() -> None:
    assert "shared_race" in findings(requests(wait=""))


def test_a_response_is_read_before_the_next_is_asked_for() -> None:
    assert findings(requests(fence="bar.sync 0;")) == []
    assert "shared_race" in findings(requests(fence=""), block=64)


def test_nobody_asks_after_a_refusal() -> None:
    with pytest.raises(UnsupportedInstruction, match="to which one has been refused"):
        worked(requests(again="@!%p2 mov.u32 %r2, 0;"))


def test_a_kernel_without_requests_has_all_its_ctas() -> None:
    _, by = worked(
        "mov.u32 %r1, %ctaid.x; mul.wide.u32 %d0, %r1, 4; add.u64 %d0, %q0, %d0;"
        "add.u32 %r1, %r1, 1; st.global.u32 [%d0], %r1;"
    )
    assert by.tolist() == list(range(CTAS))


def test_registers_of_128_bits_are_loaded_moved_and_stored() -> None:
    values = np.arange(1, 9, dtype=np.uint32)
    result = out(8)
    body = """.reg .b128 %w<2>; ld.global.b128 %w0, [%q0]; ld.global.b128 %w1, [%q0+16];
    mov.b128 {%d1, %d2}, %w0; mov.b128 %w0, {%d2, %d1};
    setp.eq.u32 %p1, %r0, 0; @%p1 st.global.b128 [%q1], %w1; @%p1 st.global.b128 [%q1+16], %w0;"""
    result = aligned(result)
    run(body, aligned(values), result)
    assert result.tolist() == [5, 6, 7, 8, 3, 4, 1, 2]


def test_a_register_of_128_bits_is_not_moved_from_one_of_64() -> None:
    with pytest.raises(EmulatorError, match="takes registers of 128 bits, or two of 64"):
        run(f".reg .b128 %w; {MINE} mov.b128 %w, {{%r1, %r2, %r3, %r4}};", out(32))


def test_the_cost_has_the_work_of_cancelled_ctas_once() -> None:
    by = out(CTAS)
    memory = ListedMemory([Buffer("by", by.ctypes.data, by.nbytes)])
    pointer = struct.pack("<Q", by.ctypes.data)
    launch = Launch(ptx_of(requests(), 1), "k", (CTAS, 1, 1), (32, 1, 1), [pointer], memory=memory)
    found = cost_of(launch, 10**9)
    assert found.ctas_run == found.ctas_total
    assert found.lines[0].opcodes["st.global.u32"] == CTAS
