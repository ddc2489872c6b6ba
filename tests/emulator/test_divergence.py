"""Threads that diverge and meet compute what each would compute alone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ptx_harness import run

from nvfp4.emulator.execution import schedule


@st.composite
def statements(draw: st.DrawFn, depth: int = 3, prefix: str = "L") -> list[str]:
    """Structured random code over four registers; labels start with `prefix`."""
    out: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        a, b, c = (draw(st.sampled_from(("%r20", "%r21", "%r22", "%r23"))) for _ in range(3))
        number = draw(st.integers(0, 7))
        kind = draw(st.sampled_from(["add", "xor", "mul", "if", "loop", "guard", "exit", "leave"]))
        if kind in ("if", "loop") and depth == 0:
            kind = "add"
        if kind == "if":
            label = f"{prefix}_{len(out)}"
            then = draw(statements(depth - 1, f"{label}t"))
            other = draw(statements(depth - 1, f"{label}o"))
            out += [f"and.b32 %r30, {a}, 7;", f"setp.lt.u32 %p1, %r30, {number};"]
            out += [f"@%p1 bra {label}a;", *other, f"bra {label}b;", f"{label}a:", *then]
            out += [f"{label}b:"]
        elif kind == "loop":
            label = f"{prefix}_{len(out)}"
            inner = draw(statements(depth - 1, f"{label}i"))
            counter = f"%r{40 + depth}"
            out += [f"and.b32 {counter}, {a}, 3;", f"{label}:", *inner]
            out += [f"sub.s32 {counter}, {counter}, 1;", f"setp.gt.s32 %p2, {counter}, 0;"]
            out += [f"@%p2 bra {label};"]
        elif kind == "guard":
            out += [f"setp.gt.u32 %p3, {a}, {b};", f"@!%p3 sub.u32 {c}, {a}, {number};"]
        elif kind == "exit":
            out += [f"setp.eq.u32 %p4, {a}, {number + 3};", "@%p4 bra DONE;"]
        elif kind == "leave":
            out += [f"mov.u32 {c}, {a};", f"setp.eq.u32 %p4, {a}, {number + 100};", "@%p4 exit;"]
        else:
            name = {"add": "add.u32", "xor": "xor.b32", "mul": "mul.lo.u32"}[kind]
            out.append(f"{name} {c}, {a}, {b if kind == 'add' else number + 1};")
    return out


def kernel(body: list[str]) -> str:
    """Thread numbers start at the word in a1; the four registers end in a0."""
    return f"""
    ld.global.u32 %r1, [%q1]; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x;
    mad.lo.u32 %r4, %r2, %r3, %r0; add.u32 %r4, %r4, %r1;
    mov.u32 %r20, %r4; mov.u32 %r21, 5; mov.u32 %r22, %r2; mov.u32 %r23, %r0;
    shr.u32 %r22, %r4, 5; and.b32 %r23, %r4, 31;
    {" ".join(body)}
    DONE: mul.wide.u32 %d0, %r4, 16; add.u64 %d0, %q0, %d0;
    st.global.v4.u32 [%d0], {{%r20, %r21, %r22, %r23}};"""


@settings(max_examples=60)
@given(statements())
def test_many_threads_give_what_each_gives_alone(body: list[str]) -> None:
    text = kernel(body)
    together = np.zeros((96, 4), np.uint32)
    run(text, together, np.zeros(1, np.uint32), grid=3, block=32)
    ragged = np.zeros((96, 4), np.uint32)
    run(text, ragged, np.zeros(1, np.uint32), grid=2, block=48)
    assert (ragged == together).all()
    alone = np.zeros((96, 4), np.uint32)
    for thread in (0, 1, 2, 7, 31, 32, 47, 48, 63, 64, 90, 95):
        run(text, alone, np.array([thread], np.uint32), block=1)
        assert together[thread].tolist() == alone[thread].tolist()


@st.composite
def meetings(draw: st.DrawFn) -> list[str]:
    """Random divergent code between warp-wide exchanges that every thread left comes to. What is
    read of a thread that has left counts as 0."""
    out: list[str] = []
    for i in range(draw(st.integers(1, 3))):
        out += draw(statements(2, f"P{i}"))
        out += ["and.b32 %r31, %r21, 31;", "shfl.sync.idx.b32 %r20, %r20, %r31, 31, -1;"]
        out += ["setp.eq.u32 %p5, %r0, %r0;", "vote.sync.ballot.b32 %r32, %p5, -1;"]
        out += ["bfe.u32 %r32, %r32, %r31, 1;", "setp.eq.u32 %p5, %r32, 0;"]
        out += ["selp.u32 %r20, 0, %r20, %p5;"]
    return out


@settings(max_examples=40)
@given(meetings(), st.sampled_from([1, 2, 5]))
def test_the_order_of_threads_changes_nothing(body: list[str], turn: int) -> None:
    """However often the scheduler interrupts a group, exchanges see the same values."""
    text = kernel(body)
    results = []
    for grid, block, steps in ((3, 32, schedule.TURN_STEPS), (3, 32, turn), (1, 96, turn)):
        a = np.zeros((96, 4), np.uint32)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(schedule, "TURN_STEPS", steps)
            run(text, a, np.zeros(1, np.uint32), grid=grid, block=block)
        results.append(a.tolist())
    assert results[0] == results[1]
    assert results[0] == results[2]
