"""The time of kernels with tcgen05."""

import numpy as np
import pytest
from model_kernels import MISSING

from nvfp4.emulator.work import Asked, Work
from nvfp4.model.gpu import NoPrediction
from nvfp4.model.machine import Access, machine
from nvfp4.model.paths import Trace
from nvfp4.model.prediction import GPUS, Counted, predict, simulated
from nvfp4.model.sass import Block, Code, Instruction

pytestmark = pytest.mark.skipif(MISSING, reason="there is no ptxas or no nvdisasm")

PTX = """.version 8.6
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 a, .param .u32 copies, .param .u32 products) {
.reg .b32 %r<8>; .reg .b64 %d<2>; .reg .pred %p<3>;
.shared .align 16 .b8 room[16384];
.shared .align 8 .b64 bar;
ld.param.u64 %d1, [a];
ld.param.u32 %r1, [copies];
ld.param.u32 %r2, [products];
mov.u32 %r0, %ctaid.x;
cvt.u64.u32 %d0, %r0;
setp.eq.u32 %p1, %r1, 0;
@%p1 bra MULTIPLY;
COPY:
.pragma "nounroll";
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [room], [%d1], 16384, [bar];
sub.u32 %r1, %r1, 1;
setp.ne.u32 %p1, %r1, 0;
@%p1 bra COPY;
MULTIPLY:
setp.eq.u32 %p2, %r2, 0;
@%p2 bra END;
AGAIN:
.pragma "nounroll";
tcgen05.mma.cta_group::1.kind::f16 [%r0], %d0, %d0, %r0, %p1;
sub.u32 %r2, %r2, 1;
setp.ne.u32 %p2, %r2, 0;
@%p2 bra AGAIN;
END:
ret;
}"""
COPY, PRODUCT = PTX.index("cp.async.bulk"), PTX.index("tcgen05")
"""Positions of statements."""
CTAS = 148


def launch(copies: int, products: int, cycles: int = 48) -> Counted:
    """One warp of each CTA copies and multiplies; 16 KiB a copy, so many cycles a product."""
    copied = CTAS * copies * 16384
    work = Work(
        warps=np.array([[1, copies, products], [1, 0, 0]]),
        ctas=[(0, 1, 1, 1)],
        of_cta=dict.fromkeys(range(CTAS), 0),
        starts=[{PTX.index("mov"): "mov.u32"}, {COPY: "cp.async"}, {PRODUCT: "tcgen05.mma"}],
        asked={COPY: Asked(requests=CTAS * copies, copied=copied, fresh=copied // 32)},
    )
    busy = CTAS * products * cycles
    return Counted(PTX, "k", (CTAS, 1, 1), (128, 1, 1), 96 << 10, work, tensor_cycles=busy)


def test_a_kernel_with_tcgen05_takes_as_long_as_its_copies() -> None:
    found = predict(GPUS["B200"], [launch(100, 100)], clean=True)
    assert found.bound == "memory bandwidth"
    read_us = CTAS * 100 * 16384 / 6690e3
    assert found.us == pytest.approx(3.3 + 0.39 + 0.09 + read_us, rel=0.01)


@pytest.mark.parametrize("cycles", [48, 128])
def test_products_are_bound_by_the_tensor_cores_and_their_width(cycles: int) -> None:
    found = predict(GPUS["B200"], [launch(100, 10_000, cycles)], clean=True)
    assert found.bound == "tensor cores"
    products_us = 10_000 * cycles / GPUS["B200"].clock_mhz
    assert found.us == pytest.approx(3.3 + 0.39 + 0.09 + products_us, rel=0.01)


def test_products_that_are_not_executed_take_no_time() -> None:
    assert predict(GPUS["B200"], [launch(100, 0)], clean=True).bound != "tensor cores"


def waiting(copies: int, waits_before: int) -> float:
    """Return the cycles of an SM with two warps: one copies 1 KiB so often between waits, the other
    waits once."""
    copy = Instruction("UBLKCP", "UBLKCP", 1, 1, 7, 7, 0)
    wait = Instruction("SYNCS.PHASECHK.TRANS64.TRYWAIT", "", 0, 1, 7, 7, 0)
    code = Code([copy, wait, Instruction("EXIT", "EXIT", 0, 1, 7, 7, 0)], [Block(0, 0, 3)], 16)
    read = {1: Access(requests=copies, copied=1024 * copies, copied_fresh=1024 * copies)}
    table = machine(GPUS["B200"], code, read, {1: float(copies)}, 1)
    both = [[1] * waits_before + [0] * copies + [1, 2], [1, 2]]
    traces = [Trace(np.array(steps), np.bincount(steps, minlength=3)) for steps in both]
    # The warp that copies is the second kind, as it is in most kernels. The first CTA has none.
    kinds: list[tuple[int, ...]] = [(1, 0), (0, 0)]
    two = np.array([1, 0])
    return simulated(GPUS["B200"], table, traces[::-1], kinds, two, 1, 296, clean=True)[0]


@pytest.mark.parametrize("copies", [64, 8192])
def test_a_wait_is_for_all_copies_since_the_last_one_whoever_has_started_them(copies: int) -> None:
    assert waiting(copies, waits_before=0) > copies * 1024 * 148 / 6690e3 * GPUS["B200"].clock_mhz


def test_there_is_no_time_where_warps_would_wait_forever() -> None:
    with pytest.raises(NoPrediction, match="does not follow how the warps"):
        waiting(4, waits_before=1)
