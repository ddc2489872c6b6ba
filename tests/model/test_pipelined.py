"""The time of kernels with tcgen05."""

from __future__ import annotations

from dataclasses import replace

import pytest
from model_kernels import MISSING

from nvfp4.model.prediction import GPUS, Counted, NoMachineCode, predict
from nvfp4.model.traffic import Access

pytestmark = pytest.mark.skipif(MISSING, reason="there is no ptxas or no nvdisasm")

PTX = """.version 8.6
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 a) {
.reg .b32 %r<2>; .reg .b64 %d<2>; .reg .pred %p;
mov.u32 %r0, %ctaid.x;
cvt.u64.u32 %d0, %r0;
setp.ne.u32 %p, %r0, 0;
tcgen05.mma.cta_group::1.kind::f16 [%r0], %d0, %d0, %r0, %p;
ret;
}"""
COPY, PRODUCT = 7, 9
"""Lines; the first stands for the one that copies."""

LAUNCH = Counted(
    ptx=PTX,
    kernel="k",
    grid=(148, 1, 1),
    block=(128, 1, 1),
    shared_bytes=96 << 10,
    runs={COPY: 148 * 100, PRODUCT: 148 * 100},
    accesses={COPY: Access(requests=1, copied=16384.0)},
)


def test_a_kernel_with_tcgen05_takes_as_long_as_its_copies() -> None:
    found = predict(GPUS["B200"], [LAUNCH], clean=True)
    assert found.bound == "memory bandwidth"
    read_us = 148 * 100 * 16384 / 6690e3
    assert found.us == pytest.approx(3.3 + 0.39 + 0.09 + read_us, rel=0.01)


def test_more_products_than_copies_are_bound_by_the_tensor_cores() -> None:
    busy = replace(LAUNCH, runs={COPY: 148 * 100, PRODUCT: 148 * 10_000})
    found = predict(GPUS["B200"], [busy], clean=True)
    assert found.bound == "tensor cores"
    assert found.us == pytest.approx(3.3 + 0.39 + 0.09 + 10_000 * 48 / 1965, rel=0.01)


def test_a_kernel_with_tcgen05_has_no_time_if_its_copies_are_not_known() -> None:
    with pytest.raises(NoMachineCode, match="copies are not known"):
        predict(GPUS["B200"], [replace(LAUNCH, accesses={})])
