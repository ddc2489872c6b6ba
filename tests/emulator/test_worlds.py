"""Memory that differs in another order, from launch to launch: who uses it decides."""

from typing import Any

import numpy as np
import pytest
from ptx_harness import MINE, MINE_IN_GRID, Array, launch_of

from nvfp4 import emulator
from nvfp4.emulator import Worlds, errors
from nvfp4.records.launch import Buffer

# Threads below 16 store 7 in their word of q0, the others what nothing has set.
HALF_SET = f"setp.lt.u32 %p1, %r0, 16; @%p1 mov.u32 %r5, 7; {MINE} st.global.u32 [%d0], %r5;"
# Every CTA stores its number in the first word of q0.
LAST_CTA = "mov.u32 %r1, %ctaid.x; st.global.u32 [%q0], %r1;"
# Each thread copies the word of thread `first` + its own number % 16 to q1.
TAKE = """
and.b32 %r6, %r0, 15; add.u32 %r6, %r6, {first}; mul.wide.u32 %d1, %r6, 4; add.u64 %d1, %q0, %d1;
ld.global.u32 %r7, [%d1]; mul.wide.u32 %d2, %r0, 4; add.u64 %d2, %q1, %d2;
st.global.u32 [%d2], %r7;
"""
FIRST_WORD = """
ld.global.u32 %r7, [%q0]; mul.wide.u32 %d2, %r0, 4; add.u64 %d2, %q1, %d2;
st.global.u32 [%d2], %r7;
"""


def run(worlds: Worlds, body: str, *arrays: Array, again: bool = False, **how: Any) -> None:
    """One launch."""
    emulator.run(launch_of(body, *arrays, **how), worlds=worlds, again=again)


def buffer_of(array: Array) -> Buffer:
    return Buffer("array", array.ctypes.data, array.nbytes)


def cause_of(worlds: Worlds, array: Array) -> errors.EmulatorError | None:
    return worlds.cause_of(buffer_of(array), array.copy)


def words(n: int = 32) -> Array:
    return np.zeros(n, np.uint32)


def half_set() -> tuple[Worlds, Array]:
    """Half of the words of an array are undefined."""
    worlds, scratch = Worlds(), words()
    run(worlds, HALF_SET, scratch)
    return worlds, scratch


@pytest.mark.parametrize(("first", "value"), [(0, 7), (16, 3)], ids=["nobody takes", "overwritten"])
def test_an_undefined_value_that_nobody_takes_or_the_host_has_overwritten_is_no_cause(
    first: int, value: int
) -> None:
    (worlds, scratch), out = half_set(), words()
    scratch[16:] = 3 if first else scratch[16:]
    run(worlds, TAKE.format(first=first), scratch, out)
    assert (out == value).all()
    assert cause_of(worlds, out) is None


def test_an_undefined_value_that_a_later_launch_takes_is_the_cause() -> None:
    (worlds, scratch), between, out = half_set(), words(), words()
    run(worlds, TAKE.format(first=16), scratch, between)
    run(worlds, TAKE.format(first=0), between, out)
    cause = cause_of(worlds, out)
    assert isinstance(cause, errors.UninitialisedRegister)
    assert "st.global.u32 [%d0], %r5" in str(cause)


def test_a_race_on_scratch_memory_counts_once_its_outcome_is_taken() -> None:
    worlds, scratch, out = Worlds(), words(1), words()
    run(worlds, LAST_CTA, scratch, grid=8)
    assert scratch[0] == 7
    assert cause_of(worlds, out) is None
    run(worlds, FIRST_WORD, scratch, out)
    assert isinstance(cause_of(worlds, out), errors.GlobalRace)
    assert (out == 7).all()


def test_memory_that_is_written_anew_differs_no_longer() -> None:
    (worlds, scratch), out = half_set(), words()
    run(worlds, f"{MINE} st.global.u32 [%d0], %r0;", scratch)
    run(worlds, TAKE.format(first=16), scratch, out)
    assert not worlds.differences
    assert out.tolist() == [*range(16, 32), *range(16, 32)]


def test_memory_that_was_given_back_is_forgotten() -> None:
    (worlds, scratch), other = half_set(), words()
    run(worlds, HALF_SET, other)
    worlds.forget_all_but([buffer_of(other)])
    assert cause_of(worlds, scratch) is None
    assert cause_of(worlds, other) is not None


def test_a_fault_in_another_order_fails_a_later_launch() -> None:
    worlds, scratch, out = Worlds(), words(1), words(64)[56:]  # no buffer lies just before `out`
    run(worlds, LAST_CTA, scratch, grid=8)
    scratch_word_from_the_end = """ld.global.u32 %r5, [%q0]; add.u32 %r5, %r5, -7;
    mul.wide.s32 %d0, %r5, 4; add.u64 %d0, %q1, %d0; st.global.u32 [%d0], 1;"""
    with pytest.raises(errors.GlobalRace, match="before"):
        run(worlds, scratch_word_from_the_end, scratch, out)


def test_without_worlds_all_memory_counts() -> None:
    scratch = words()
    with pytest.raises(errors.UninitialisedRegister, match="the result depends on a value"):
        emulator.run(launch_of(HALF_SET, scratch))


def test_a_launch_that_touches_nothing_that_differs_runs_once() -> None:
    (worlds, scratch), other = half_set(), words(64)
    before = scratch.copy()
    run(worlds, f"{MINE_IN_GRID} ld.global.u32 %r5, [%d0]; st.global.u32 [%d0], %r5;", other)
    assert (scratch == before).all()
    assert cause_of(worlds, scratch) is not None
