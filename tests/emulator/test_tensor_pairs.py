"""tcgen05 in clusters of several CTAs, each by itself or in pairs (cta_group::2)."""

from typing import Any

import numpy as np
import pytest
from ptx_harness import Array, aligned, run
from tensor_harness import (
    BASE,
    E2M1,
    TILES,
    WAIT,
    by_one_thread,
    core_matrices,
    descriptor,
    in_lanes,
    kernel,
    matrices,
    nibbles,
    packed,
    read_back,
    scaled,
)

from nvfp4.emulator import LaunchReport
from nvfp4.emulator.errors import (
    Deadlock,
    EmulatorError,
    OutOfBounds,
    TensorDescriptorFault,
    TensorMemoryFault,
    TensorRace,
    UninitialisedRegister,
    UnsupportedInstruction,
)

PLACE = """mov.u32 %r50, %cluster_ctarank; shl.b32 %r51, %r50, 24; setp.eq.u32 %p8, %r50, 0;
mov.u32 %r55, %ctaid.x; mul.wide.u32 %d8, %r55, BYTES; add.u64 %q0, %q0, %d8;
mul.wide.u32 %d8, %r55, RESULTS; add.u64 %q1, %q1, %d8;
"""
"""%r50: the rank, %p8: whether it is 0. Each CTA has matrices and results of its own."""
MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
READY = f"fence.mbarrier_init.release.cluster; {MEET} add.u32 %r41, %r41, %r51;"
"""All mbarriers are initialised. %r41: the CTA's own one, with its rank."""
LEADS_A_PAIR = "and.b32 %r56, %r50, 1; setp.eq.u32 %p8, %r56, 0;"
OF_THE_PAIR = (
    "and.b32 %r56, %r50, 2; mov.u32 %r57, 3; shl.b32 %r57, %r57, %r56; cvt.u16.u32 %h1, %r57;"
)
"""A mask of the CTAs of the pair, in %h1."""
F16 = 1 << 4
"""The instruction descriptor of kind::f16 with sums in f32, but for its shape."""


def shape(rows: int, columns: int, bits: int = F16) -> int:
    return bits | columns // 8 << 17 | rows // 16 << 24


def product(
    bits: int, a_bytes: int, group: int = 2, more: str = "", accumulate: str = "%p5"
) -> str:
    """Thread 0 multiplies what lies at the beginning of shared memory."""
    return f"""mov.b64 %d5, {descriptor(TILES, 128, 256)};
mov.b64 %d6, {descriptor(TILES + a_bytes, 128, 256)}; mov.b32 %r5, {bits};
setp.ne.u32 %p5, %r0, %r0; setp.eq.u32 %p6, %r0, %r0;
tcgen05.mma.cta_group::{group}.kind::f16 [%r1], %d5, %d6, %r5, {more}{accumulate};"""


def commit(group: int, mask: int | None = None) -> str:
    """Arrive at this CTA's mbarrier, or at those of a mask."""
    opcode = f"tcgen05.commit.cta_group::{group}.mbarrier::arrive::one.shared::cluster"
    if mask is None:
        return f"{opcode}.b64 [%r41];"
    return f"mov.b16 %h1, {mask}; {opcode}.multicast::cluster.b64 [%r41], %h1;"


def by_leader(text: str) -> str:
    """What thread 0 of the first CTA alone executes."""
    return f"@!%p1 bra ISSUED; @!%p8 bra ISSUED;\n{text}\nISSUED:\n"


def ran(
    middle: str, tiles: list[list[Array]], count: int, group: int = 2, end: str = MEET,
    edit: tuple[str, str] = ("", ""), **options: Any,
) -> tuple[LaunchReport, Array]:  # fmt: skip
    """tiles: by CTA. The report, and what each thread has stored: uint32[CTA, thread, count]."""
    data = [
        np.concatenate([np.ascontiguousarray(x).view(np.uint8).reshape(-1) for x in own])
        for own in tiles
    ]
    out = np.zeros((len(tiles), 128, count), np.uint32)
    body = kernel(READY + middle + end, 128, data[0].size // 16)
    body = body.replace("cta_group::1", f"cta_group::{group}").replace("GROUP_1", "cta_group::1")
    place = PLACE.replace("BYTES", str(data[0].size)).replace("RESULTS", str(512 * count))
    body = (place + body).replace(*edit) if edit[0] else place + body
    shared = TILES + data[0].size + 1024 - BASE
    options = {"grid": len(tiles), "cluster": len(tiles), **options}
    return run(
        body, aligned(np.concatenate(data)), out, block=128, shared_bytes=shared, **options
    ), out


def split(a: Array, b: Array) -> list[list[Array]]:
    """Halves of the rows of each for the CTAs of a pair."""
    halves = zip(np.split(a, 2), np.split(b, 2), strict=True)
    return [[packed(one), packed(other)] for one, other in halves]


PAIR = split(*matrices(256, 32))
SHAPE, A_BYTES = shape(256, 32), 128 * 32
RIGHT = by_leader(product(SHAPE, A_BYTES) + commit(2, 3)) + WAIT + read_back(32)


def findings(middle: str, **options: Any) -> list[str]:
    """The codes of what is found in a kernel of a pair, each once."""
    try:
        report, _ = ran(middle, PAIR, 32, **options)
    except EmulatorError as error:
        return [error.code]
    return sorted({found.code for found in report.findings})


# --- each CTA by itself -----------------------------------------------------------------------


def test_ctas_of_a_cluster_multiply_each_by_itself() -> None:
    parts = [matrices(128, 16), matrices(128, 32)]
    parts[1] = parts[1][0], parts[1][1][:16]
    middle = by_one_thread(product(shape(128, 16), A_BYTES, 1) + commit(1)) + WAIT + read_back(16)
    report, out = ran(middle, [[packed(a), packed(b)] for a, b in parts], 16, 1)
    assert not report.findings
    assert report.tensor_instructions == 2
    for (a, b), d in zip(parts, out.view(np.float32), strict=True):
        assert np.array_equal(d, a.astype(np.float32) @ b.astype(np.float32).T)


def test_a_commit_tells_other_ctas_that_their_shared_memory_is_read() -> None:
    """As where a tile is multicast, and its next one must wait for all CTAs."""
    tiles = [[packed(each) for each in matrices(128, 16)]] * 2
    edit = ("mbarrier.init.shared.b64 [%r41], 1", "mbarrier.init.shared.b64 [%r41], 2")
    other = f"xor.b32 %r52, %r51, {1 << 24}; add.u32 %r52, %r52, {TILES}; mov.u32 %r53, 0;"
    store = f"{other} @%p1 st.shared::cluster.u32 [%r52], %r53;"
    both = by_one_thread(product(shape(128, 16), A_BYTES, 1) + commit(1, 3)) + WAIT
    report, _ = ran(both + store + read_back(16), tiles, 16, 1, edit=edit)
    assert not report.findings
    own = by_one_thread(product(shape(128, 16), A_BYTES, 1) + commit(1)) + WAIT
    with pytest.raises(TensorRace, match=r"which tcgen05\.mma.* may still read"):
        ran(own + store + read_back(16), tiles, 16, 1)


def test_a_commit_goes_to_ctas_that_there_are() -> None:
    tiles = [[packed(each) for each in matrices(128, 16)]] * 2
    middle = by_one_thread(product(shape(128, 16), A_BYTES, 1) + commit(1, 5)) + WAIT
    with pytest.raises(OutOfBounds, match="to the CTAs 0x5, but the cluster has 2"):
        ran(middle, tiles, 16, 1)


# --- pairs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [16, 32, 128])
@pytest.mark.parametrize("rows", [128, 256])
def test_a_pair_multiplies_halves_of_both_matrices(rows: int, columns: int) -> None:
    a, b = matrices(rows, columns)
    issue = by_leader(product(shape(rows, columns), rows // 2 * 32) + commit(2, 3))
    width = columns if rows == 256 else columns // 2
    loads = 1 << (width - 1).bit_length()
    report, out = ran(issue + WAIT + read_back(loads), split(a, b), loads)
    expected = (a.astype(np.float32) @ b.astype(np.float32).T).reshape(2, rows // 2, columns)
    if rows == 128:  # the second half of the columns lies below the first
        expected = np.concatenate(np.split(expected, 2, axis=2), axis=1)
    assert np.array_equal(out.view(np.float32)[:, :, :width], expected)
    assert not report.findings
    assert report.tensor_instructions == 1


def test_pairs_do_not_touch_each_other() -> None:
    a, b = matrices(512, 64)
    tiles = [*split(a[:256], b[:32]), *split(a[256:], b[32:])]
    for cluster in (2, 4):
        to_pair = commit(2, 3).replace("mov.b16 %h1, 3;", OF_THE_PAIR)
        issue = LEADS_A_PAIR + by_leader(product(SHAPE, A_BYTES) + to_pair)
        report, out = ran(issue + WAIT + read_back(32), tiles, 32, cluster=cluster)
        assert not report.findings
        halves = zip(np.split(a, 2), np.split(b, 2), strict=True)
        expected = [x.astype(np.float32) @ y.astype(np.float32).T for x, y in halves]
        assert np.array_equal(out.view(np.float32).reshape(512, 32), np.concatenate(expected))


def test_a_pair_scales_rows_by_its_own_scales_and_columns_by_all() -> None:
    rng = np.random.default_rng(5)
    a, b = (rng.integers(0, 256, (rows, 32), np.uint8) for rows in (256, 32))
    sa, sb = (rng.integers(52, 60, (rows, 4), np.uint8) for rows in (256, 32))
    every = np.zeros((128, 4), np.uint8)
    every[:32] = sb

    tiles = [
        [core_matrices(a[rows]), core_matrices(b[half]), in_lanes(sa[rows]), in_lanes(every)]
        for rows, half in ((slice(128), slice(16)), (slice(128, 256), slice(16, 32)))
    ]
    bits = 1 << 7 | 1 << 10 | 32 // 8 << 17 | 2 << 27
    middle = f"""{scaled([each.size for each in tiles[0]], bits, group=2)}
tcgen05.mma.cta_group::2.kind::mxf4nvf4.block_scale.block16 [%r1], %d5, %d6, %r5, [%r3], [%r4], %p5;
{commit(2, 3)}"""
    report, out = ran(by_leader(middle) + WAIT + read_back(32), tiles, 32)
    assert not report.findings

    def values(codes: Array, scales: Array) -> Array:
        factors = np.exp2((scales >> 3).astype(np.float64) - 7) * (1 + (scales & 7) / 8)
        return E2M1[nibbles(codes)] * np.repeat(factors, 16, axis=1)

    expected = values(a, sa) @ values(b, sb).T
    assert np.array_equal(out.view(np.float32).reshape(256, 32), expected.astype(np.float32))


def test_a_pair_that_does_all_in_order_is_blamed_for_nothing() -> None:
    assert findings(RIGHT) == []


def test_what_the_other_cta_multiplies_is_waited_for() -> None:
    alone = by_leader(product(SHAPE, A_BYTES) + commit(2))
    wait = f"@!%p8 bra WAITED; {WAIT} WAITED: "
    assert findings(alone + wait + read_back(32)) == ["tensor_race"]
    assert findings(alone + wait + MEET + read_back(32)) == []


def test_shared_memory_of_the_other_cta_is_not_overwritten_while_it_is_read() -> None:
    store = f"mov.u32 %r20, {TILES + 64}; mov.u32 %r21, 0; @%p1 st.shared.u32 [%r20], %r21;"
    issue = by_leader(product(SHAPE, A_BYTES) + commit(2, 3))
    assert "tensor_race" in findings(issue + store + WAIT + read_back(32))
    assert findings(issue + WAIT + store + read_back(32)) == []


def test_shared_memory_of_the_other_cta_wants_fence_and_barrier() -> None:
    store = f"mov.u32 %r20, {TILES}; mov.u32 %r21, 0; @%p1 st.shared.u32 [%r20], %r21;"
    assert findings(store + MEET + RIGHT) == ["proxy_fence"]
    fenced = store + "fence.proxy.async.shared::cta;"
    assert findings(fenced + MEET + RIGHT) == []
    assert "shared_race" in findings(fenced + "bar.sync 0;" + RIGHT)


def test_both_ctas_of_a_pair_allocate_the_same_and_free_it() -> None:
    alone = ("@!%p2 bra ALLOCATED;", "@!%p2 bra ALLOCATED; @!%p8 bra ALLOCATED;")
    with pytest.raises(Deadlock, match=r"tcgen05\.alloc"):
        ran(RIGHT, PAIR, 32, edit=alone)
    other = ("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r40], 128;",
             "mov.u32 %r54, 128; @!%p8 mov.u32 %r54, 64;"
             "tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r40], %r54;")  # fmt: skip
    with pytest.raises(TensorMemoryFault, match="where the other CTA of the pair has asked for"):
        ran(RIGHT, PAIR, 32, edit=other)
    kept = ("@!%p2 bra FREED;", "@!%p2 bra FREED; @!%p8 bra FREED;")
    with pytest.raises(TensorMemoryFault, match="ends with 128 columns of tensor memory"):
        ran(RIGHT, PAIR, 32, edit=kept)


FREE = "tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r1, 128;"
PRODUCT = product(SHAPE, A_BYTES)
UNSET = f""".reg .b32 %unset; tcgen05.st.sync.aligned.32x32b.x1.b32 [%r2], {{%unset}};
tcgen05.wait::st.sync.aligned; {read_back(1)}"""
GONE = f"""@%p8 bra STAYS; bar.sync 0; @!%p2 bra GONE; {FREE} GONE: exit; STAYS:
mov.u32 %r20, 0; SPIN: add.u32 %r20, %r20, 1; setp.lt.u32 %p9, %r20, 2000; @%p9 bra SPIN;
{by_leader(PRODUCT)}"""
INSIDE = product(shape(128, 32), A_BYTES).replace("%d5, %d6, %r5", "[%r1], %d6, %r5")
MIXED = RIGHT.replace("tcgen05.commit.cta_group::2", "tcgen05.commit.GROUP_1")
FAULTS: dict[str, tuple[str, type[EmulatorError]]] = {
    "has written undefined values": (UNSET, UninitialisedRegister),
    "which has been freed": (
        f"@%p8 bra KEPT; @!%p2 bra KEPT; {FREE} KEPT: {MEET} {RIGHT}",
        TensorMemoryFault,
    ),
    "with cta_group::1, after instructions with": (MIXED, TensorMemoryFault),
    "in a cluster of 1 CTAs, which are no pairs": (RIGHT, TensorMemoryFault),
    "which has ended": (GONE, EmulatorError),
    "M = 64 and N = 32, where kind::f16 has M = 128, 256 and N = 16": (
        by_leader(product(shape(64, 32), A_BYTES)),
        TensorDescriptorFault,
    ),
    "M = 256 and N = 24": (by_leader(product(shape(256, 24), A_BYTES)), TensorDescriptorFault),
    "a in tensor memory with M = 128 of a pair": (by_leader(INSIDE), UnsupportedInstruction),
    "stationary weights are not emulated": (
        by_leader(PRODUCT.replace("tcgen05.mma", "tcgen05.mma.ws")),
        UnsupportedInstruction,
    ),
}


@pytest.mark.parametrize("words", FAULTS)
def test_what_is_wrong_about_pairs_is_told(words: str) -> None:
    middle, error = FAULTS[words]
    options: dict[str, Any] = {"cluster": 1} if "of 1 CTAs" in words else {}
    with pytest.raises(error, match=words):
        ran(middle, PAIR, 32, end="" if words == "which has ended" else MEET, **options)
