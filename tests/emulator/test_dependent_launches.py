"""Programmatic dependent launches: what one may touch before it has waited for the one before."""

from typing import Any

import numpy as np
import pytest
from ptx_harness import MINE_IN_GRID, launch_of, out

from nvfp4 import emulator
from nvfp4.emulator import LaunchReport, UnderWay, errors

WAIT, TRIGGER = "griddepcontrol.wait;", "griddepcontrol.launch_dependents;"
FIRST = f"{MINE_IN_GRID} add.u32 %r5, %r3, 100; st.global.u32 [%d0], %r5;"
LOAD = f"{MINE_IN_GRID} ld.global.u32 %r5, [%d0];"
STORE = """add.u32 %r5, %r5, 1; mul.wide.u32 %d1, %r3, 4; add.u64 %d1, %q1, %d1;
st.global.u32 [%d1], %r5;"""
"""LOAD and STORE: what an earlier kernel has left at the place of this thread, and 1, to y."""
OVERWRITE = f"{MINE_IN_GRID} st.global.u32 [%d0], 7;"
IDLE = "mov.u32 %r5, 1;"
BY_ONE = f"setp.eq.u32 %p1, %r0, 0; @%p1 {WAIT}"
ODD = "and.b32 %r6, %r3, 3; setp.eq.u32 %p1, %r6, 1; @%p1"
EVEN = "and.b32 %r6, %r3, 3; setp.ne.u32 %p1, %r6, 1; mov.u32 %r5, 0; @%p1"
BULK = """.shared .align 128 .b8 tile[256]; .shared .align 8 .b64 mbar;
mov.u32 %r20, mbar; mov.u32 %r10, tile; setp.ne.u32 %p1, %r0, 0; @%p1 bra DONE;
mbarrier.init.shared.b64 [%r20], 1; fence.mbarrier_init.release.cluster;
mbarrier.arrive.expect_tx.shared.b64 _, [%r20], 256;
add.u64 %d3, %q0, 64; and.b64 %d3, %d3, -16;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r10], [%d3], 256, [%r20];
W: mbarrier.try_wait.parity.shared.b64 %p2, [%r20], 0; @!%p2 bra W;
ld.shared.u32 %r5, [%r10]; st.global.u32 [%q1], %r5; DONE:"""


def first(prefix: str = "") -> str:
    """A first kernel whose store is behind a prefix."""
    return f"{TRIGGER} {FIRST}".replace("st.global", f"{prefix} st.global")


def take(prefix: str = "") -> str:
    """A kernel that loads before it waits, behind a prefix."""
    return f"{LOAD} {WAIT} {STORE}".replace("ld.global", f"{prefix} ld.global")


LAST_HALF = "mov.u32 %r5, 0; setp.ge.u32 %p1, %r3, 64; @%p1"
EARLY = "launched before this"
CASES = {
    "it waits for what it reads": ([first(), f"{WAIT} {LOAD} {STORE}"], ""),
    "it does not": ([first(), take()], r"no griddepcontrol\.wait before"),
    "the launch before tells nobody": ([FIRST, f"{LOAD} {STORE}"], "early_access"),
    "what is not written before": ([first("setp.lt.u32 %p1, %r3, 64; @%p1"), take(LAST_HALF)], ""),
    "a write that the launch before may overwrite": ([first(), OVERWRITE], "also writes"),
    "other bytes than those that are written": ([first(ODD), take(EVEN)], ""),
    "the first of the bytes that are written": ([first(ODD), take()], "byte 4 of a0"),
    "a write of what is still read": ([f"{TRIGGER} {LOAD} {STORE}", OVERWRITE], "early_access"),
    "a write behind a wait": ([f"{TRIGGER} {LOAD} {STORE}", WAIT + OVERWRITE], ""),
    "a write of what a launch that tells nobody reads": ([f"{LOAD} {STORE}", OVERWRITE], ""),
    "what is read before the trigger": ([f"{LOAD} {TRIGGER} {STORE}", OVERWRITE], ""),
    "one thread waits for its block": ([first(), f"{BY_ONE} bar.sync 0; {LOAD} {STORE}"], ""),
    "one thread waits without a barrier": ([first(), f"{BY_ONE} {LOAD} {STORE}"], "early_access"),
    "a launch between that never waits": ([first(), f"{TRIGGER} {IDLE}", f"{LOAD} {STORE}"], EARLY),
    "the second never waits": ([first(), f"{TRIGGER} {IDLE}", f"{WAIT} {LOAD} {STORE}"], EARLY),
    "a launch between that waits": ([first(), f"{TRIGGER} {WAIT}", f"{WAIT} {LOAD} {STORE}"], ""),
    "a launch between that waits too late": ([first(), f"{TRIGGER} {WAIT}", LOAD + STORE], EARLY),
    "a launch between that waits in time": ([first(), f"{WAIT} {TRIGGER}", LOAD + STORE], ""),
    "a bulk copy": ([first(), BULK], r"cp\.async\.bulk"),
}
"""Launches, and what is found in the last: nothing, a finding, or a part of the error."""


def launched(
    bodies: list[str], programmatic: bool = True, first_stream: int = 0
) -> tuple[LaunchReport, np.ndarray]:
    """The last report, and y, after launches of two CTAs of 64 threads. programmatic: all but the
    first may begin early."""
    under_way, x, y = UnderWay(), out(128), out(128)
    for i, body in enumerate(bodies):
        how: dict[str, Any] = {
            "programmatic": programmatic and i > 0,
            "stream": 0 if i else first_stream,
        }
        report = emulator.run(launch_of(body, x, y, grid=2, block=64, **how), under_way=under_way)
    return report, y


@pytest.mark.parametrize("name", CASES)
def test_a_launch_that_may_begin_early(name: str) -> None:
    bodies, expected = CASES[name]
    if expected not in ("", "early_access"):
        with pytest.raises(errors.EarlyAccess, match=f"(?s){expected}") as raised:
            launched(bodies)
        assert raised.value.code == "early_access"
        return
    report, y = launched(bodies)
    assert [found.code for found in report.findings] == ([expected] if expected else [])
    if expected:
        assert EARLY in report.findings[0].message
    if LOAD in bodies[-1]:
        assert (y == np.arange(128) + 101).all()
    elif LAST_HALF in bodies[-1]:
        assert (y == 1).all()


@pytest.mark.parametrize("options", [{"programmatic": False}, {"first_stream": 7}], ids=str)
def test_a_launch_of_another_kind_or_stream_does_not(options: dict[str, Any]) -> None:
    report, _ = launched([first(), f"{LOAD} {STORE}"], **options)
    assert not report.findings
