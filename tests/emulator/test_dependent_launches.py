"""Programmatic dependent launches: what one may touch before it has waited for the one before."""

import struct
from typing import Any

import numpy as np
import pytest
from ptx_harness import MINE_IN_GRID, out, ptx_of

from nvfp4 import emulator
from nvfp4.emulator import Launch, LaunchReport, ListedMemory, UnderWay, errors

WAIT, TRIGGER = "griddepcontrol.wait;", "griddepcontrol.launch_dependents;"
FIRST = f"{{}} {MINE_IN_GRID} add.u32 %r5, %r3, 100; st.global.u32 [%d0], %r5;"
# What the first kernel has left at the place of this thread, and 1, to the second buffer.
LOAD = f"{MINE_IN_GRID} ld.global.u32 %r5, [%d0];"
STORE = """add.u32 %r5, %r5, 1; mul.wide.u32 %d1, %r3, 4; add.u64 %d1, %q1, %d1;
st.global.u32 [%d1], %r5;"""


class Chain:
    """Launches of two CTAs of 64 threads, one after the other in one stream."""

    def __init__(self) -> None:
        self.under_way = UnderWay()
        self.x, self.y = out(128), out(128)

    def run(self, body: str, programmatic: bool = False, stream: int = 0) -> LaunchReport:
        arrays = self.x, self.y
        buffers = [
            emulator.Buffer(name, a.ctypes.data, a.nbytes)
            for name, a in zip("xy", arrays, strict=True)
        ]
        parameters = [struct.pack("<Q", a.ctypes.data) for a in arrays]
        launch = Launch(
            ptx_of(body, 2), "k", (2, 1, 1), (64, 1, 1), parameters,
            memory=ListedMemory(buffers), programmatic=programmatic, stream=stream,
        )  # fmt: skip
        return emulator.run(launch, under_way=self.under_way)


def codes(report: Any) -> list[str]:
    return [finding.code for finding in report.findings]


def test_a_launch_that_waits_for_what_it_reads() -> None:
    chain = Chain()
    chain.run(FIRST.format(TRIGGER))
    assert codes(chain.run(f"{WAIT} {LOAD} {STORE}", programmatic=True)) == []
    assert (chain.y == np.arange(128) + 101).all()


def test_a_launch_that_does_not_wait_for_what_it_reads() -> None:
    chain = Chain()
    chain.run(FIRST.format(TRIGGER))
    with pytest.raises(errors.EarlyAccess, match=r"no griddepcontrol\.wait before") as raised:
        chain.run(f"{LOAD} {WAIT} {STORE}", programmatic=True)
    assert "ld.global.u32" in str(raised.value)
    assert "x" in raised.value.message


def test_without_the_attribute_nothing_begins_early() -> None:
    chain = Chain()
    chain.run(FIRST.format(TRIGGER))
    assert codes(chain.run(f"{LOAD} {STORE}")) == []


def test_a_launch_before_that_tells_nobody_ends_first_but_its_writes_need_not_be_seen() -> None:
    chain = Chain()
    chain.run(FIRST.format(""))
    assert codes(chain.run(f"{LOAD} {STORE}", programmatic=True)) == ["early_access"]
    assert (chain.y == np.arange(128) + 101).all()


def test_what_the_launch_before_has_not_written_may_be_read_early() -> None:
    chain = Chain()
    first = FIRST.format(TRIGGER).replace("st.global", "setp.lt.u32 %p1, %r3, 64; @%p1 st.global")
    chain.run(first)
    body = f"{LOAD} {WAIT} {STORE}".replace("ld.global", "setp.ge.u32 %p1, %r3, 64; @%p1 ld.global")
    assert codes(chain.run(f"mov.u32 %r5, 0; {body}", programmatic=True)) == []
    assert (chain.y == 1).all()


def test_a_write_that_the_launch_before_may_overwrite() -> None:
    chain = Chain()
    chain.run(FIRST.format(TRIGGER))
    with pytest.raises(errors.EarlyAccess, match="also writes"):
        chain.run(f"{MINE_IN_GRID} mov.u32 %r5, 7; st.global.u32 [%d0], %r5;", programmatic=True)


def test_the_bytes_that_a_launch_has_written_are_known_exactly() -> None:
    chain = Chain()
    odd = "and.b32 %r6, %r3, 3; setp.eq.u32 %p1, %r6, 1;"
    chain.run(FIRST.format(TRIGGER).replace("st.global", f"{odd} @%p1 st.global"))
    even = "setp.ne.u32 %p1, %r6, 1; mov.u32 %r5, 0; @%p1 ld.global"
    body = f"{LOAD} {WAIT} {STORE}".replace("ld.global", f"and.b32 %r6, %r3, 3; {even}")
    assert codes(chain.run(body, programmatic=True)) == []
    chain = Chain()
    chain.run(FIRST.format(TRIGGER).replace("st.global", f"{odd} @%p1 st.global"))
    with pytest.raises(errors.EarlyAccess, match=r"byte 4 of x"):
        chain.run(f"{LOAD} {WAIT} {STORE}", programmatic=True)


READER = f"{{}} {LOAD} {{}} {STORE}"
OVERWRITE = f"{MINE_IN_GRID} {{}} st.global.u32 [%d0], 7;"


def test_a_write_of_what_the_launch_before_may_still_read() -> None:
    chain = Chain()
    chain.run(READER.format(TRIGGER, ""))
    (found,) = chain.run(OVERWRITE.format(""), programmatic=True).findings
    assert found.code == "early_access"
    assert "launched before this in the stream, reads: that may still run" in found.message
    for trigger, wait in ((TRIGGER, WAIT), ("", "")):
        chain = Chain()
        chain.run(READER.format(trigger, ""))
        assert codes(chain.run(OVERWRITE.format(wait), programmatic=True)) == []


def test_what_is_read_before_the_trigger_may_be_overwritten() -> None:
    chain = Chain()
    chain.run(READER.format("", TRIGGER))
    assert codes(chain.run(OVERWRITE.format(""), programmatic=True)) == []


def test_one_thread_may_wait_for_its_block() -> None:
    chain = Chain()
    chain.run(FIRST.format(TRIGGER))
    one = f"setp.eq.u32 %p1, %r0, 0; @%p1 {WAIT} bar.sync 0;"
    assert codes(chain.run(f"{one} {LOAD} {STORE}", programmatic=True)) == []
    assert (chain.y == np.arange(128) + 101).all()


def test_one_thread_may_not_wait_for_others_without_a_barrier() -> None:
    chain = Chain()
    chain.run(FIRST.format(TRIGGER))
    one = f"setp.eq.u32 %p1, %r0, 0; @%p1 {WAIT}"
    report = chain.run(f"{one} {LOAD} {STORE}", programmatic=True)
    assert codes(report) == ["early_access"]


def test_a_launch_between_that_never_waits() -> None:
    chain = Chain()
    chain.run(FIRST.format(TRIGGER))
    chain.run(f"{TRIGGER} mov.u32 %r5, 1;", programmatic=True)
    with pytest.raises(errors.EarlyAccess, match="launched before this"):
        chain.run(f"{LOAD} {STORE}", programmatic=True)
    chain = Chain()
    chain.run(FIRST.format(TRIGGER))
    chain.run(f"{TRIGGER} mov.u32 %r5, 1;", programmatic=True)
    with pytest.raises(errors.EarlyAccess, match="launched before this"):
        chain.run(f"{WAIT} {LOAD} {STORE}", programmatic=True)
    chain = Chain()
    chain.run(FIRST.format(TRIGGER))
    chain.run(f"{TRIGGER} {WAIT}", programmatic=True)
    assert codes(chain.run(f"{WAIT} {LOAD} {STORE}", programmatic=True)) == []


def test_another_stream_is_another_matter() -> None:
    chain = Chain()
    chain.run(FIRST.format(TRIGGER), stream=7)
    assert codes(chain.run(f"{LOAD} {STORE}", programmatic=True)) == []


def test_what_a_bulk_copy_reads_early() -> None:
    chain = Chain()
    chain.run(FIRST.format(TRIGGER))
    body = """.shared .align 128 .b8 tile[256]; .shared .align 8 .b64 mbar;
    mov.u32 %r20, mbar; mov.u32 %r10, tile; setp.ne.u32 %p1, %r0, 0; @%p1 bra DONE;
    mbarrier.init.shared.b64 [%r20], 1; fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.shared.b64 _, [%r20], 256;
    add.u64 %d3, %q0, 64; and.b64 %d3, %d3, -16;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r10], [%d3], 256, [%r20];
    W: mbarrier.try_wait.parity.shared.b64 %p2, [%r20], 0; @!%p2 bra W;
    ld.shared.u32 %r5, [%r10]; st.global.u32 [%q1], %r5; DONE:"""
    with pytest.raises(errors.EarlyAccess) as raised:
        chain.run(body, programmatic=True)
    assert "cp.async.bulk" in str(raised.value)
