"""Kernels on tensor memory: their cost, the swizzle of a tensor map, a permit that is kept."""

import numpy as np
from ptx_harness import aligned, launch_of, run
from tensor_harness import (
    BARRIER,
    COMMIT,
    F16,
    TILES,
    WAIT,
    by_one_thread,
    core_matrices,
    descriptor,
    kernel,
    matrices,
    packed,
    read_back,
)

from nvfp4 import emulator
from nvfp4.records.tensormap import DataType, Swizzle, TensorMap

A_BYTES = 128 * 32
OF_A, OF_B = descriptor(TILES, 128, 256), descriptor(TILES + A_BYTES, 128, 256)


def product(a: int = OF_A) -> str:
    return f"""mov.b64 %d5, {a}; mov.b64 %d6, {OF_B}; mov.b32 %r5, {F16}; setp.ne.u32 %p5, %r0, %r0;
    tcgen05.mma.cta_group::1.kind::f16 [%r1], %d5, %d6, %r5, %p5; {COMMIT}"""


RIGHT = by_one_thread(product()) + WAIT + read_back(16)


def test_an_explanation_counts_products_and_traffic_at_their_lines() -> None:
    data, out = aligned(np.concatenate([*map(packed, matrices())])), np.zeros((128, 16), np.uint32)
    body, shared_bytes = kernel(RIGHT, 32, data.size // 16), TILES + data.size
    launch = launch_of(body, data, out, block=128, shared_bytes=shared_bytes)
    (line,) = emulator.cost_of(launch, 10**9).lines
    assert (line.tensor_products, line.tensor_cycles, line.tensor_bytes) == (1, 36, 128 * 16 * 4)


def by_a_tensor_map(swizzle: int, stride: int) -> tuple[list[str], np.ndarray]:
    """(codes of findings, sums) where a tensor map writes rows of a in lines of 32 bytes, and the
    descriptor reads by another swizzle."""
    a, b = matrices()
    source, out = aligned(a), np.zeros((128, 16), np.uint32)
    tile = TensorMap(
        DataType.FLOAT16, source.ctypes.data, (16, 128), (32,), (16, 128), (1, 1),
        swizzle=Swizzle.BYTES_32,
    )  # fmt: skip
    copy = by_one_thread(f"""mov.u32 %r20, {TILES}; mov.u32 %r21, {BARRIER + 8}; mov.u32 %r22, 0;
    mbarrier.init.shared.b64 [%r21], 1; mbarrier.arrive.expect_tx.shared.b64 _, [%r21], {A_BYTES};
    cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes
    [%r20], [%q2, {{%r22, %r22}}], [%r21];
    ARRIVING: mbarrier.try_wait.parity.shared.b64 %p7, [%r21], 0; @!%p7 bra ARRIVING;
    {product(descriptor(TILES, 16, stride, swizzle))}""")
    before = np.concatenate([np.zeros(A_BYTES, np.uint8), core_matrices(b.view(np.uint8))])
    body = kernel(copy + WAIT + read_back(16), 32, before.size // 16)
    arrays = aligned(before), out, aligned(tile.pack()), source
    report = run(body, *arrays, block=128, shared_bytes=TILES + before.size + 1024)
    return [each.code for each in report.findings], out


def test_a_descriptor_has_the_swizzle_of_the_tensor_map() -> None:
    found, out = by_a_tensor_map(6, 256)
    a, b = (each.astype(np.float32) for each in matrices())
    assert found == []
    assert np.array_equal(out.view(np.float32), a @ b.T)
    assert by_a_tensor_map(4, 256)[0] == ["tensor_swizzle"]


def test_the_permit_may_be_kept_until_the_end() -> None:
    """The manual asks nobody to give it back."""
    data, out = aligned(np.concatenate([*map(packed, matrices())])), np.zeros((128, 16), np.uint32)
    body = kernel(RIGHT, 32, data.size // 16)
    kept = body.replace("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;", "")
    assert kept != body
    assert not run(kept, data, out, block=128, shared_bytes=TILES + data.size).findings
