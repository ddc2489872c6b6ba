"""Rows that need memory or other lanes: small kernels before and after."""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernels_of_rows import HEADER, Array, on_gpu, ptxas
from ptx_runs import launch_on

from nvfp4 import emulator
from nvfp4.retarget.rewrite import rewrite

ALL = ("sm_80", "sm_89", "sm_90a", "sm_120a")
BEFORE_100 = ALL[:3]
BEFORE_90 = ALL[:2]

# Each thread has 32 bytes of a0 and of a1 at %q0 and %q1, its number in %t and its lane in %l.
START = """
.reg .pred %p<8>; .reg .b16 %h<16>; .reg .b32 %r<32>, %t, %l; .reg .b64 %d<16>, %q<4>, %o;
.reg .f32 %f<16>;
mov.u32 %t, %tid.x; and.b32 %l, %t, 31; mul.wide.u32 %o, %t, 32;
ld.param.u64 %q0, [a0]; add.u64 %q0, %q0, %o; ld.param.u64 %q1, [a1]; add.u64 %q2, %q1, %o;
and.b32 %r0, %t, 1; setp.eq.u32 %p0, %r0, 0; ld.global.v2.b32 {%r1, %r2}, [%q0];
"""


@dataclass(frozen=True)
class Program:
    """A body and the targets that lack something in it. before: at module scope."""

    body: str
    lacking: tuple[str, ...]
    before: str = ""

    @property
    def text(self) -> str:
        return HEADER + self.entry("k")

    def entry(self, name: str) -> str:
        parameters = f"(.param .u64 {name}0, .param .u64 {name}1)"
        body = (START + self.body).replace("[a", f"[{name}")
        return f"{self.before}.visible .entry {name}{parameters}\n{{{body}\nret;\n}}\n"


_EIGHT = "{%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}"
_STORE = (
    "st.global.v4.b32 [%q2], {%r1, %r2, %r3, %r4}; st.global.v4.b32 [%q2+16], {%r5, %r6, %r7, %r8};"
)

PROGRAMS = {
    "ld.v8": Program(f"ld.global.v8.b32 {_EIGHT}, [%q0]; {_STORE}", BEFORE_100),
    "ld.v8 with hints": Program(
        f"ld.global.nc.L1::no_allocate.L2::evict_first.v8.f32 {_EIGHT}, [%q0];{_STORE}", BEFORE_100
    ),
    "ld.v4.b64 into its own address": Program(
        "ld.global.L1::evict_last.L2::evict_last.v4.b64 {%q0, %d1, %d2, %d3}, [%q0];"
        "st.global.v4.b64 [%q2], {%q0, %d1, %d2, %d3};",
        BEFORE_100,
    ),
    "ld.v8 without some": Program(
        "ld.global.v8.b32 {%r1, _, %r3, _, _, _, _, %r8}, [%q0]; st.global.b32 [%q2], %r1;"
        "st.global.b32 [%q2+4], %r3; st.global.b32 [%q2+8], %r8;",
        BEFORE_100,
    ),
    "st.v8 by some": Program(
        f"ld.global.v8.u32 {_EIGHT}, [%q0];@!%p0 st.global.L2::evict_first.v8.b32 [%q2], {_EIGHT};",
        BEFORE_100,
    ),
    "ld.v8 with a policy": Program(
        "createpolicy.fractional.L2::evict_first.b64 %d0, 1.0;"
        f"ld.global.L2::cache_hint.v8.b32 {_EIGHT}, [%q0], %d0; {_STORE}",
        BEFORE_100,
    ),
    "launch control": Program(
        "griddepcontrol.wait; setmaxnreg.inc.sync.aligned.u32 64; fence.proxy.async;"
        "fence.mbarrier_init.release.cluster; fence.acq_rel.cluster;"
        "ld.relaxed.cluster.global.b32 %r3, [%q0]; st.global.b32 [%q2], %r3;"
        "griddepcontrol.launch_dependents;",
        BEFORE_90,
    ),
    "alone in a cluster": Program(
        "mov.u32 %r3, %cluster_ctarank; mov.u32 %r4, %cluster_nctaid.x; mov.u32 %r5, %clusterid.x;"
        "st.global.v4.b32 [%q2], {%r3, %r4, %r5, %r3};",
        BEFORE_90,
    ),
    "mbarrier": Program(
        "setp.eq.u32 %p1, %t, 0; mov.u32 %r3, bar; mov.u32 %r4, %ntid.x;"
        "@%p1 mbarrier.init.shared.b64 [%r3], %r4; bar.sync 0;"
        "mbarrier.arrive.shared.b64 _, [%r3];"
        "again: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r3], 0, 1000; @!%p2 bra again;"
        "st.global.b32 [%q2], %r4;",
        BEFORE_90,
        before=".shared .align 8 .b64 bar;\n",
    ),
}


def contents(seed: int) -> Array:
    """32 bytes a thread: f32 of every kind in the first two words."""
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 2**32, (64, 8), dtype=np.uint64).astype(np.uint32)
    special = [0, 1 << 31, 0x7F800000, 0xFF800000, 0x7FC00001, 0xFFFFFFFF, 0x3F800000, 1]
    chosen = rng.choice(np.array(special, np.uint32), (64, 2))
    words[:, :2] = np.where(rng.random((64, 2)) < 0.5, chosen, words[:, :2])
    words[32:40, :2] = 0x7FC00001 + np.arange(8, dtype=np.uint32)[:, None]
    return words


def run(text: str, seed: int) -> Array:
    """The second array after the kernel ran on 64 threads."""
    arrays = [contents(seed), contents(seed + 1)]
    aligned: list[Any] = []
    for array in arrays:
        raw = np.zeros(array.nbytes + 32, np.uint8)
        start = -raw.ctypes.data % 32
        view = raw[start : start + array.nbytes]
        view[:] = array.view(np.uint8).reshape(-1)
        aligned.append(view)
    emulator.run(launch_on(aligned, text, block=64))
    return aligned[1].view(np.uint32)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_rewritten_program_does_the_same(name: str, tmp_path: Path) -> None:
    program = PROGRAMS[name]
    expected = [run(program.text, seed) for seed in range(4)]
    for target in ALL:
        rewritten = rewrite(program.text, target)
        changes = any(each.rewritten for each in rewritten.kernels)
        assert changes == (target in program.lacking), target
        for seed, want in enumerate(expected):
            np.testing.assert_array_equal(run(rewritten.ptx, seed), want)


@pytest.mark.gpu
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_rewritten_program_does_the_same_on_a_gpu(name: str) -> None:
    if name.startswith(("red.", "launch control")):
        pytest.skip("atomic sums in no order, or registers that a launch must have set aside")
    text = PROGRAMS[name].text
    for seed in range(4):
        got = on_gpu(text, 1, 64, [contents(seed), contents(seed + 1)])
        np.testing.assert_array_equal(got.reshape(-1), run(text, seed).reshape(-1))


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="needs ptxas")
@pytest.mark.parametrize("target", ALL)
def test_the_assembler_takes_what_is_rewritten_and_not_what_it_was(
    target: str, tmp_path: Path
) -> None:
    entries = [program.entry(f"k{i}_") for i, program in enumerate(PROGRAMS.values())]
    text = HEADER + "".join(entries)
    assert not ptxas(text, "sm_100a", tmp_path)
    assert not ptxas(rewrite(text, target).ptx, target, tmp_path)
    told = ptxas(text.replace("sm_100a", target), target, tmp_path)
    refused = {int(n) for n in re.findall(r", line (\d+); error", told)}
    line = HEADER.count("\n")
    for name, entry in zip(PROGRAMS, entries, strict=True):
        lines = range(line + 1, line + 1 + entry.count("\n"))
        assert bool(refused & {*lines}) == (target in PROGRAMS[name].lacking), name
        line += entry.count("\n")
