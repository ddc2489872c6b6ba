"""Clusters of several CTAs: where they are, what they see of each other, and what goes wrong."""

import numpy as np
import pytest
from ptx_harness import MINE_IN_GRID, aligned, out, run

from nvfp4 import emulator
from nvfp4.emulator import errors
from nvfp4.records.tensormap import DataType, TensorMap

SYNC = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n"
BUFFER = ".shared .align 16 .b8 tile[1024];\n"
# %r10: the rank of the CTA; %r11: that of the next one; %r12: the own place of the thread in
# `tile`; %r13: the same in the next CTA.
NEXT = """
mov.u32 %r10, %cluster_ctarank; mov.u32 %r9, %cluster_nctarank;
add.u32 %r11, %r10, 1; rem.u32 %r11, %r11, %r9;
mov.u32 %r12, tile; shl.b32 %r8, %r0, 2; add.u32 %r12, %r12, %r8;
mapa.shared::cluster.u32 %r13, %r12, %r11;
"""
MINE_VALUE = "mad.lo.u32 %r14, %r10, 1000, %r0;\n"


def codes(report: object) -> list[str]:
    return [finding.code for finding in report.findings]  # type: ignore[attr-defined]


def test_ctas_know_their_place_in_a_cluster_of_two_by_two() -> None:
    names = (
        "%cluster_ctaid.x", "%cluster_ctaid.y", "%cluster_ctarank", "%clusterid.x", "%clusterid.y",
        "%nclusterid.x", "%nclusterid.y", "%cluster_nctaid.x", "%cluster_nctarank",
    )  # fmt: skip
    stores = "".join(
        f"mov.u32 %r5, {name}; st.global.u32 [%d0 + {4 * i}], %r5;" for i, name in enumerate(names)
    )
    found = out(16 * 8 * 2)
    body = (
        "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ctaid.y; mad.lo.u32 %r3, %r2, 4, %r1;"
        f"mul.wide.u32 %d0, %r3, 64; add.u64 %d0, %q0, %d0; {stores}"
        "mov.pred %p1, %is_explicit_cluster; selp.u32 %r5, 1, 0, %p1;"
        "st.global.u32 [%d0 + 36], %r5;"
    )
    run(body, found, grid=(4, 4, 1), block=1, cluster=(2, 2, 1))
    rows = found.reshape(16, 16)
    for y in range(4):
        for x in range(4):
            expected = [x % 2, y % 2, x % 2 + 2 * (y % 2), x // 2, y // 2, 2, 2, 2, 4, 1]
            assert rows[4 * y + x][:10].tolist() == expected


@pytest.mark.parametrize(
    ("grid", "cluster", "match"),
    [((3, 1, 1), (2, 1, 1), "cannot be divided"), ((32, 1, 1), (32, 1, 1), "32 CTAs")],
)
def test_what_a_device_refuses_of_a_cluster(grid: object, cluster: object, match: str) -> None:
    with pytest.raises(errors.LaunchError, match=match):
        run("", out(), grid=grid, cluster=cluster)


def _with_directives(directives: str, grid: int, cluster: int = 1) -> None:
    text = ".version 8.8\n.target sm_100a\n.address_size 64\n.visible .entry k()\n"
    emulator.run_ptx(f"{text}{directives} {{ ret; }}", "k", (grid,), (32,), [], cluster=(cluster,))


def test_a_kernel_that_asks_for_clusters_itself() -> None:
    _with_directives(".explicitcluster .reqnctapercluster 2, 1, 1", 4)
    _with_directives(".reqnctapercluster 2", 4, cluster=2)
    with pytest.raises(errors.LaunchError, match="cannot be divided"):
        _with_directives(".explicitcluster .reqnctapercluster 2, 1, 1", 3)
    with pytest.raises(errors.LaunchError, match="requires clusters of"):
        _with_directives(".reqnctapercluster 2", 4, cluster=4)


@pytest.mark.parametrize("size", [2, 4, 8, 16])
def test_a_store_to_the_next_cta_is_seen_behind_the_barrier_of_the_cluster(size: int) -> None:
    found = out(2 * size * 64)
    body = f"""{BUFFER}{NEXT}{MINE_VALUE}
    st.shared::cluster.u32 [%r13], %r14; {SYNC}
    ld.shared.u32 %r15, [%r12]; {MINE_IN_GRID} st.global.u32 [%d0], %r15;
    """
    report = run(body, found, grid=2 * size, block=64, cluster=size)
    rank = np.arange(2 * size) % size
    expected = ((rank - 1) % size)[:, None] * 1000 + np.arange(64)
    assert (found.reshape(-1, 64) == expected).all()
    assert (report.peer_bytes_read, report.peer_bytes_written) == (0, 2 * size * 64 * 4)
    assert codes(report) == []


def test_a_load_from_the_next_cta_through_a_generic_address() -> None:
    found = out(128)
    body = f"""{BUFFER}{NEXT}{MINE_VALUE}
    st.shared.u32 [%r12], %r14; {SYNC}
    cvt.u64.u32 %d5, %r12; cvta.shared.u64 %d5, %d5; mapa.u64 %d6, %d5, %r11;
    ld.u32 %r15, [%d6]; getctarank.u32 %r16, %d6; mad.lo.u32 %r15, %r16, 100000, %r15; {SYNC}
    {MINE_IN_GRID} st.global.u32 [%d0], %r15;
    """
    report = run(body, found, grid=2, block=64, cluster=2)
    expected = np.array([[101000], [0]]) + np.arange(64)
    assert (found.reshape(2, 64) == expected).all()
    assert codes(report) == []


def test_isspacep_tells_the_own_memory_from_that_of_the_cluster() -> None:
    found = out(2)
    body = f"""{BUFFER}{NEXT}
    cvt.u64.u32 %d5, %r13; cvta.shared::cluster.u64 %d5, %d5;
    isspacep.shared::cta %p1, %d5; isspacep.shared::cluster %p2, %d5;
    selp.u32 %r15, 1, 0, %p1; selp.u32 %r16, 2, 0, %p2; or.b32 %r15, %r15, %r16;
    {MINE_IN_GRID} st.global.u32 [%d0], %r15;
    """
    run(body, found, grid=2, block=1, cluster=2)
    assert found.tolist() == [2, 2]


# --- what goes wrong ---------------------------------------------------------------------


def test_a_relaxed_arrival_does_not_tell_of_earlier_stores() -> None:
    found = out(128)
    relaxed = "barrier.cluster.arrive.relaxed; barrier.cluster.wait;"
    body = f"""{BUFFER}{NEXT}{MINE_VALUE}
    st.shared::cluster.u32 [%r13], %r14; {relaxed}
    ld.shared.u32 %r15, [%r12]; {SYNC} {MINE_IN_GRID} st.global.u32 [%d0], %r15;
    """
    report = run(body, found, grid=2, block=64, cluster=2)
    assert codes(report) == ["shared_race"]
    fenced = body.replace(relaxed, "fence.acq_rel.cluster;" + relaxed)
    assert codes(run(fenced, found, grid=2, block=64, cluster=2)) == []


def test_a_cta_that_has_ended() -> None:
    found = out(128)
    body = f"""{BUFFER}{NEXT}
    setp.eq.u32 %p1, %r10, 1; @%p1 bra DONE;
    barrier.cluster.arrive; barrier.cluster.wait;
    ld.shared::cluster.u32 %r15, [%r13]; {MINE_IN_GRID} st.global.u32 [%d0], %r15; DONE:
    """
    with pytest.raises(errors.ExitedPeer, match=r"\(rank 1\), which has ended"):
        run(body, found, grid=2, block=64, cluster=2, check=False)


@pytest.mark.parametrize(
    ("body", "match"),
    [
        ("mov.u32 %r11, 2; mapa.shared::cluster.u32 %r13, %r12, %r11;"
         "ld.shared::cluster.u32 %r15, [%r13];", "rank 2: the cluster has 2 CTAs"),
        ("ld.shared.u32 %r15, [%r13];", "its own CTA alone"),
        ("ld.shared::cluster.u32 %r15, [%r13 + 4096];", "outside the CTA's shared memory"),
    ],
)  # fmt: skip
def test_addresses_that_reach_too_far(body: str, match: str) -> None:
    with pytest.raises(errors.OutOfBounds, match=match):
        run(f"{BUFFER}{NEXT}{body}", out(), grid=2, cluster=2)


@pytest.mark.parametrize(
    ("body", "match"),
    [
        ("barrier.cluster.arrive; barrier.cluster.arrive; barrier.cluster.wait;", "twice"),
        ("barrier.cluster.wait;", "has not arrived"),
    ],
)
def test_a_barrier_of_the_cluster_used_wrongly(body: str, match: str) -> None:
    with pytest.raises(errors.BarrierMisuse, match=match):
        run(body, out(), grid=2, cluster=2)


# --- mbarriers and asynchronous stores ----------------------------------------------------

MBAR = ".shared .align 8 .b64 mbar; .shared .align 16 .b8 tile[1024];\n"
INIT = """
mov.u32 %r30, mbar; setp.eq.u32 %p8, %r0, 0;
@%p8 mbarrier.init.shared::cta.b64 [%r30], COUNT;
fence.mbarrier_init.release.cluster;
"""
WAIT = """
WAIT: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p9, [%r30], 0; @!%p9 bra WAIT;
"""


def _with(body: str, count: int = 1) -> str:
    relaxed = "barrier.cluster.arrive.relaxed; barrier.cluster.wait;"
    return f"{MBAR}{NEXT}{INIT.replace('COUNT', str(count))}{relaxed}{MINE_VALUE}{body}"


STORE_RESULT = f"ld.shared.u32 %r15, [%r12]; {SYNC} {MINE_IN_GRID} st.global.u32 [%d0], %r15;"
REMOTE_ARRIVE = """
mapa.shared::cluster.u32 %r31, %r30, %r11;
mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r31];
"""


def _previous(size: int, block: int) -> np.ndarray:
    return ((np.arange(size) - 1) % size)[:, None] * 1000 + np.arange(block)


def test_an_arrival_before_the_initialisation_is_seen_is_a_race() -> None:
    body = _with(f"{REMOTE_ARRIVE} {WAIT} {SYNC}", 64)
    body = body.replace("barrier.cluster.arrive.relaxed; barrier.cluster.wait;", "")
    with pytest.raises((errors.SharedRace, errors.BarrierMisuse), match="initialis"):
        run(body, out(), grid=2, block=64, cluster=2)
    without_wait = _with(f"{REMOTE_ARRIVE} {WAIT} barrier.cluster.wait; {SYNC}", 64)
    without_wait = without_wait.replace("relaxed; barrier.cluster.wait;", "relaxed; bar.sync 0;", 1)
    with pytest.raises(errors.SharedRace, match="is used, and nothing orders that after its init"):
        run(without_wait, out(), grid=2, block=64, cluster=2)
    unfenced = _with(f"{REMOTE_ARRIVE} {WAIT} {SYNC}", 64)
    unfenced = unfenced.replace("fence.mbarrier_init.release.cluster;", "")
    assert codes(run(unfenced, out(), grid=2, block=64, cluster=2)) == ["shared_race"]


def test_a_later_fence_takes_nothing_back() -> None:
    body = _with(f"fence.mbarrier_init.release.cluster; {REMOTE_ARRIVE} {WAIT} {SYNC}", 64)
    assert codes(run(body, out(), grid=2, block=64, cluster=2)) == []


@pytest.mark.parametrize("vector", [1, 2, 4])
def test_st_async_counts_bytes_at_the_mbarrier_of_its_target(vector: int) -> None:
    values = "%r14" if vector == 1 else "{" + ", ".join(["%r14"] * vector) + "}"
    suffix = "" if vector == 1 else f".v{vector}"
    found = out(64)
    body = _with(
        f"""mapa.shared::cluster.u32 %r31, %r30, %r11;
        @%p8 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r30], {32 * 4 * vector};
        mul.lo.u32 %r32, %r8, {vector - 1}; add.u32 %r13, %r13, %r32; add.u32 %r12, %r12, %r32;
        st.async.shared::cluster.mbarrier::complete_tx::bytes{suffix}.b32 [%r13], {values}, [%r31];
        {WAIT} {STORE_RESULT}"""
    )
    report = run(body, found, grid=2, block=32, cluster=2)
    assert (found.reshape(2, 32) == _previous(2, 32)).all()
    assert codes(report) == []


BULK = (
    "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r33], [%r34], 128, "
    "[%r31];"
)


SENT = f"""mapa.shared::cluster.u32 %r31, %r30, %r11;
st.shared.u32 [%r12 + 128], %r14; fence.proxy.async; bar.sync 0;
@%p8 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r30], 128;
mov.u32 %r34, tile; mapa.shared::cluster.u32 %r33, %r34, %r11; add.u32 %r34, %r34, 128;
@%p8 {BULK} {WAIT} {STORE_RESULT}"""


def test_a_cta_that_may_end_before_its_bulk_copy_has_left() -> None:
    body, _, _ = _with(SENT).rpartition(SYNC)
    report = run(body, out(64), grid=2, block=32, cluster=2)
    assert codes(report) == ["exited_peer"]
    assert "copy out of shared memory of CTA" in report.findings[0].message


MULTICAST = (
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
    "[%r34], [%q1], 128, [%r30], %h1;"
)


def test_a_multicast_reads_once_and_arrives_everywhere() -> None:
    found, source = out(128), aligned(np.arange(32, dtype=np.uint32))
    body = _with(
        f"""mov.u32 %r34, tile; mov.u16 %h1, 0xd;
        setp.eq.u32 %p10, %r10, 0; and.pred %p10, %p10, %p8; setp.ne.u32 %p11, %r10, 1;
        and.pred %p12, %p11, %p8;
        @%p12 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r30], 128;
        @%p10 {MULTICAST}
        mov.u32 %r20, 7; @!%p11 st.shared.u32 [%r12], %r20; @!%p11 bra READ;
        {WAIT} READ: {STORE_RESULT}"""
    )
    report = run(body, found, source, grid=4, block=32, cluster=4)
    expected = np.stack([np.arange(32), np.full(32, 7), np.arange(32), np.arange(32)])
    assert (found.reshape(4, 32) == expected).all()
    assert codes(report) == []
    assert report.global_read_bytes == 128
    assert report.peer_bytes_written == 3 * 128 - 128  # it is its own for the CTA that loads
    with pytest.raises(errors.OutOfBounds, match="multicast to the CTAs 0x1d"):
        run(body.replace("0xd;", "0x1d;"), found, source, grid=4, block=32, cluster=4)


def test_a_cta_that_ends_before_a_multicast_has_come() -> None:
    found, source = out(64), aligned(np.arange(32, dtype=np.uint32))
    body = _with(
        f"""mov.u32 %r34, tile; mov.u16 %h1, 3;
        setp.eq.u32 %p10, %r10, 0; and.pred %p10, %p10, %p8;
        @%p8 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r30], 128;
        @%p10 {MULTICAST}"""
    )
    report = run(body, found, source, grid=2, block=32, cluster=2)
    assert codes(report) == ["exited_peer"]


def test_a_grid_that_counts_clusters_is_refused() -> None:
    with pytest.raises(errors.PtxSyntaxError, match="counts clusters"):
        _with_directives(".blocksareclusters .reqnctapercluster 2, 1, 1 .reqntid 32, 1, 1", 2)


TILE_BUFFER = ".shared .align 8 .b64 mbar; .shared .align 128 .b8 tile[128];\n"
PAIR_LOAD = (
    "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
    "{}.cta_group::2 [%r34], [%q1, {{0, %r35}}], [%r36]{};"
)


def _tiles(copy: str, expected_bytes: int, ctas: int = 4) -> tuple[str, list[np.ndarray]]:
    """Each pair of CTAs has its mbarrier in the CTA with the even rank; a row a CTA is loaded."""
    data = aligned(np.arange(ctas * 32, dtype=np.uint32).reshape(ctas, 32))
    tile = TensorMap(DataType.UINT32, data.ctypes.data, (32, ctas), (128,), (32, 1), (1, 1))
    body = f"""{TILE_BUFFER}{NEXT}{INIT.replace("COUNT", "1")}
    and.b32 %r16, %r10, 1; setp.eq.u32 %p3, %r16, 0; and.pred %p4, %p3, %p8;
    @%p4 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r30], {expected_bytes};
    barrier.cluster.arrive; barrier.cluster.wait;
    mov.u32 %r34, tile; mov.u32 %r35, %r10; and.b32 %r36, %r30, 0xFEFFFFFF; mov.u16 %h1, 0xf;
    setp.eq.u32 %p6, %r10, 0; and.pred %p6, %p6, %p8;
    {copy}
    @!%p3 bra TOGETHER; {WAIT} TOGETHER: {SYNC} {STORE_RESULT}"""
    return body, [out(ctas * 32), aligned(tile.pack()), data]


def test_both_ctas_of_a_pair_load_for_the_mbarrier_of_the_first() -> None:
    body, (found, packed, data) = _tiles(f"@%p8 {PAIR_LOAD.format('', '')}", 256)
    report = run(body, found, packed, data, grid=4, block=32, cluster=4)
    assert (found.reshape(4, 32) == data).all()
    assert codes(report) == []
    alone = body.replace(".cta_group::2", "")
    with pytest.raises(errors.BarrierMisuse, match="its mbarrier is in the one with rank 0"):
        run(alone, found, packed, data, grid=4, block=32, cluster=4)


def test_a_multicast_tile_counts_at_the_first_of_each_pair() -> None:
    copy = PAIR_LOAD.format(".multicast::cluster", ", %h1")
    body, (found, packed, data) = _tiles(f"@%p6 {copy}", 256)
    report = run(body, found, packed, data, grid=4, block=32, cluster=4)
    assert (found.reshape(4, 32) == data[0]).all()
    assert codes(report) == []
    assert report.global_read_bytes == 128
