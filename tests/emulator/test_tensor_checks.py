"""What kernels on tensor memory do wrong is found at its line; what is right is not blamed."""

import re
import struct
from typing import Any

import numpy as np
import pytest
from ptx_harness import aligned, ptx_of, run
from tensor_harness import (
    BARRIER,
    COMMIT,
    TILES,
    WAIT,
    by_one_thread,
    core_matrices,
    descriptor,
    execute,
    kernel,
    read_back,
    registers,
)

from nvfp4 import emulator
from nvfp4.emulator import LaunchReport
from nvfp4.emulator.errors import (
    Deadlock,
    EmulatorError,
    TensorDescriptorFault,
    TensorMemoryFault,
    TensorRace,
    UnsupportedInstruction,
    UnwrittenTensor,
)
from nvfp4.records.launch import Buffer, Launch, ListedMemory
from nvfp4.records.tensormap import DataType, Swizzle, TensorMap

Array = np.ndarray[Any, Any]

A_BYTES, B_BYTES = 128 * 32, 16 * 32
F16 = 1 << 4 | 16 // 8 << 17 | 128 // 16 << 24
"""The instruction descriptor of kind::f16, M = 128, N = 16, sums in f32."""
OF_A, OF_B = descriptor(TILES, 128, 256), descriptor(TILES + A_BYTES, 128, 256)


def operands(a: int = OF_A, b: int = OF_B, bits: int = F16) -> str:
    return f"""mov.b64 %d5, {a}; mov.b64 %d6, {b}; mov.b32 %r5, {bits};
setp.ne.u32 %p5, %r0, %r0; setp.eq.u32 %p6, %r0, %r0;"""


PRODUCT = "tcgen05.mma.cta_group::1.kind::f16 [%r1], %d5, %d6, %r5, %p5;"
SUM = PRODUCT.replace("%p5", "%p6")
ISSUE = by_one_thread(operands() + PRODUCT + COMMIT)
STORE = f"tcgen05.st.sync.aligned.32x32b.x2.b32 [%r2], {registers(2)};"
STORED = "mov.u32 %v0, %r0; add.u32 %v1, %r0, 1000;" + STORE


def matrices() -> tuple[Array, Array]:
    rng = np.random.default_rng(7)
    return tuple(  # type: ignore[return-value]
        rng.integers(-8, 8, (rows, 16)).astype(np.float16) for rows in (128, 16)
    )


def ran(middle: str, count: int = 16, **options: Any) -> tuple[LaunchReport, Array]:
    """The report, and what each thread has stored to q1."""
    tiles = [core_matrices(each.view(np.uint8).reshape(len(each), -1)) for each in matrices()]
    out = np.zeros((128, count), np.uint32)
    return execute(middle, tiles, out, **options), out


def findings(middle: str, count: int = 16, **options: Any) -> list[str]:
    """The codes of what is found, whether a result depends on it or not, each once."""
    try:
        report, _ = ran(middle, count, **options)
    except EmulatorError as error:
        return [error.code]
    return sorted({found.code for found in report.findings})


def faulted(middle: str, kind: type[EmulatorError], words: str, count: int = 16) -> None:
    with pytest.raises(kind, match=words) as caught:
        ran(middle, count)
    assert caught.value.where is not None
    assert caught.value.where.line is not None


def test_a_product_that_is_waited_for_is_right_and_blamed_for_nothing() -> None:
    report, out = ran(ISSUE + WAIT + read_back(16))
    a, b = (each.astype(np.float32) for each in matrices())
    assert np.array_equal(out.view(np.float32), a @ b.T)
    assert not report.findings
    assert (report.tensor_instructions, report.tensor_cycles) == (1, 36)
    assert (report.tensor_bytes_read, report.tensor_bytes_written) == (128 * 16 * 4, 0)


def test_an_explanation_counts_products_and_traffic_at_their_lines() -> None:
    tiles = [core_matrices(each.view(np.uint8).reshape(len(each), -1)) for each in matrices()]
    data, out = aligned(np.concatenate(tiles)), np.zeros((128, 16), np.uint32)
    arrays = {"data": data, "out": out}
    text = ptx_of(kernel(ISSUE + WAIT + read_back(16), 32, data.size // 16), 2)
    launch = Launch(
        text, "k", (1, 1, 1), (128, 1, 1), [struct.pack("<Q", x.ctypes.data) for x in (data, out)],
        TILES + data.size,
        memory=ListedMemory([Buffer(n, x.ctypes.data, x.nbytes) for n, x in arrays.items()]),
    )  # fmt: skip
    (line,) = emulator.cost_of(launch, 10**9).lines
    assert (line.tensor_products, line.tensor_cycles, line.tensor_bytes) == (1, 36, 128 * 16 * 4)


# --- tensor memory that something may still write ---------------------------------------------


def test_a_load_that_waits_for_no_commit_depends_on_luck() -> None:
    middle = by_one_thread(operands() + PRODUCT) + "bar.sync 0;" + read_back(16)
    with pytest.raises(TensorRace, match="may still be writing it: no wait for a"):
        ran(middle)


def test_nor_does_a_load_see_a_copy_that_it_does_not_wait_for() -> None:
    copy = "tcgen05.cp.cta_group::1.128x128b [%r1], %d5;"
    assert findings(by_one_thread(operands() + copy + COMMIT) + WAIT + read_back(4), 4) == []
    unwaited = by_one_thread(operands() + copy) + "bar.sync 0;" + read_back(4)
    with pytest.raises(TensorRace, match=r"tcgen05\.cp\S* may still be writing it: no wait"):
        ran(unwaited, 4)


def test_the_message_names_both_places() -> None:
    with pytest.raises(TensorRace) as caught:
        ran(ISSUE + "bar.sync 0;" + read_back(16))
    assert "tcgen05.ld" in str(caught.value.where)
    assert "tcgen05.mma" in str(caught.value.related[0].where)
    assert "rule: PTX ISA" in str(caught.value)


def test_a_commit_before_the_product_tells_nothing_of_it() -> None:
    middle = by_one_thread(operands() + SUM.replace("%p6", "%p5") + COMMIT + SUM)
    assert findings(middle + WAIT + read_back(16)) == ["tensor_race"]


def test_a_commit_tells_of_what_its_own_thread_has_issued() -> None:
    other = "setp.eq.u32 %p7, %r0, 32; bar.sync 0; @!%p7 bra TOLD;" + COMMIT + "TOLD:"
    middle = by_one_thread(operands() + PRODUCT) + other
    assert findings(middle + WAIT + read_back(16)) == ["tensor_race"]


@pytest.mark.parametrize("kind", ["try_wait", "test_wait"])
def test_a_wait_at_whose_result_nobody_looks_tells_nothing(kind: str) -> None:
    once = f"mbarrier.{kind}.parity.shared.b64 %p4, [%r41], 0; selp.u32 %r9, 1, 0, %p4;"
    with pytest.raises(TensorRace, match="may still be writing it: no wait for a"):
        ran(ISSUE + once + read_back(16))
    assert findings(ISSUE + once + WAIT + read_back(16)) == []


def test_products_of_one_shape_alone_are_in_order() -> None:
    """A product of another kind is 32 deep, not 16."""
    deeper = SUM.replace("kind::f16", "kind::f8f6f4")
    first = operands() + PRODUCT
    assert findings(by_one_thread(first + SUM + COMMIT) + WAIT + read_back(16)) == []
    report, _ = ran(by_one_thread(first + deeper + COMMIT) + WAIT + read_back(16))
    (found,) = report.findings
    assert found.code == "tensor_race"
    assert "f16 of shape 128 x 16 x 16 has written it and may still be under way" in found.message
    second = f"@!%p1 bra ISSUED2; {deeper} {COMMIT} ISSUED2:"
    again = WAIT.replace("WAITING", "AGAIN").replace(", 0;", ", 1;")
    waited = by_one_thread(first + COMMIT) + WAIT + second + again
    assert findings(waited + read_back(16)) == []


def test_one_warp_may_wait_for_another() -> None:
    wait = (
        f"@%p2 bra WAITING; bra WAITED; {WAIT.replace('WAITING:', 'WAITING: ')} WAITED: bar.sync 0;"
    )
    assert findings(ISSUE + wait + read_back(16)) == []


def test_what_a_warp_stores_is_read_after_its_wait() -> None:
    right = STORED + "tcgen05.wait::st.sync.aligned;" + read_back(2)
    report, out = ran(right, count=2)
    assert not report.findings
    assert out[5].tolist() == [5, 1005]
    assert findings(STORED + read_back(2), 2) == ["tensor_race"]


def test_a_product_over_what_a_load_still_reads_is_found() -> None:
    load = f"tcgen05.ld.sync.aligned.32x32b.x16.b32 {registers(16)}, [%r2];"
    again = by_one_thread(operands() + SUM + COMMIT)
    second = again.replace("ISSUED", "ISSUED2") + WAIT.replace("], 0", "], 1").replace(
        "ING", "ING2"
    )
    waited = load + "tcgen05.wait::ld.sync.aligned; bar.sync 0;" + second
    assert findings(ISSUE + WAIT + waited + read_back(16)) == []
    assert findings(ISSUE + WAIT + load + "bar.sync 0;" + second + read_back(16)) == ["tensor_race"]
    unordered = load + "tcgen05.wait::ld.sync.aligned;" + second
    assert findings(ISSUE + WAIT + unordered + read_back(16)) == ["tensor_race"]


def test_a_load_is_complete_where_its_value_is_used() -> None:
    """As in all that CuTe DSL compiles, which never waits for a load."""
    load = f"tcgen05.ld.sync.aligned.32x32b.x2.b32 {registers(2)}, [%r2];"
    stored = "mul.wide.u32 %d2, %r0, 4; add.u64 %d2, %q1, %d2; st.global.u32 [%d2], %v0;"
    assert findings(ISSUE + WAIT + load + stored, 1) == []
    assert findings(ISSUE + WAIT + load + "bar.sync 1, 128;" + stored, 1) == ["tensor_race"]


def test_deallocation_waits_for_all_that_read() -> None:
    early = """bar.sync 1, 128; @!%p2 bra GONE;
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, 32; GONE: exit;"""
    assert "tensor_race" in findings(ISSUE + early)


# --- what nothing has written -----------------------------------------------------------------


def test_tensor_memory_that_nothing_has_written_is_noticed_where_it_matters() -> None:
    with pytest.raises(UnwrittenTensor, match=r"lane 0, column 0 of tensor memory, which nothing"):
        ran(read_back(1), count=1)
    unused = f"tcgen05.ld.sync.aligned.32x32b.x4.b32 {registers(4)}, [%r2+8];"
    unused += "tcgen05.wait::ld.sync.aligned;"
    assert findings(unused) == []


def test_a_sum_with_unwritten_tensor_memory_is_unwritten() -> None:
    issue = by_one_thread(operands() + SUM + COMMIT)
    with pytest.raises(UnwrittenTensor, match="a product with lane 0, column 0, which") as caught:
        ran(issue + WAIT + read_back(16))
    assert "tcgen05.mma" in str(caught.value.related[0].where)


def test_rows_of_b_that_nothing_has_written_spoil_their_columns_alone() -> None:
    """As where N is 8 at least, and one vector is all there is."""
    beyond = TILES + A_BYTES + B_BYTES - 256
    issue = by_one_thread(operands(b=descriptor(beyond, 128, 256)) + PRODUCT + COMMIT)
    first = f"tcgen05.ld.sync.aligned.32x32b.x16.b32 {registers(16)}, [%r2];"
    first += "tcgen05.wait::ld.sync.aligned; mul.wide.u32 %d2, %r0, 4; add.u64 %d2, %q1, %d2;"
    for column, expected in ((7, []), (8, ["unset_register"])):
        stored = f"{first} st.global.u32 [%d2], %v{column};"
        assert findings(issue + WAIT + stored, 1, columns=32) == expected


# --- shared memory ----------------------------------------------------------------------------


def test_a_product_of_what_threads_have_stored_wants_a_proxy_fence() -> None:
    store = f"mov.u32 %r20, {TILES}; mov.u32 %r21, 0; @%p1 st.shared.u32 [%r20], %r21; bar.sync 0;"
    assert findings(store + ISSUE + WAIT + read_back(16)) == ["proxy_fence"]
    fenced = store.replace("bar.sync", "fence.proxy.async.shared::cta; bar.sync")
    assert findings(fenced + ISSUE + WAIT + read_back(16)) == []


def test_a_product_of_what_threads_store_wants_a_barrier() -> None:
    store = f"mov.u32 %r20, {TILES + 2048}; mov.u32 %r21, 0; setp.eq.u32 %p7, %r0, 40;"
    store += "@%p7 st.shared.u32 [%r20], %r21; fence.proxy.async.shared::cta;"
    assert "shared_race" in findings(store + ISSUE + WAIT + read_back(16))


def test_shared_memory_is_not_overwritten_while_a_product_reads_it() -> None:
    store = f"mov.u32 %r20, {TILES + 64}; mov.u32 %r21, 0; @%p1 st.shared.u32 [%r20], %r21;"
    assert findings(ISSUE + store + WAIT + read_back(16)) == ["tensor_race"]
    assert findings(ISSUE + WAIT + store + read_back(16)) == []


def test_nor_while_a_copy_to_tensor_memory_reads_it() -> None:
    copy = by_one_thread(operands() + "tcgen05.cp.cta_group::1.128x128b [%r1], %d5;" + COMMIT)
    store = f"mov.u32 %r20, {TILES + 64}; mov.u32 %r21, 0; @%p1 st.shared.u32 [%r20], %r21;"
    assert findings(copy + store + WAIT + read_back(4), 4) == ["tensor_race"]
    assert findings(copy + WAIT + store + read_back(4), 4) == []


def test_nor_by_the_copy_engine() -> None:
    copy = f"""@!%p1 bra COPIED; mov.u32 %r20, {TILES}; mov.u32 %r21, {BARRIER + 8};
    mbarrier.init.shared.b64 [%r21], 1; mbarrier.arrive.expect_tx.shared.b64 _, [%r21], 4096;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r20], [%q0], 4096, [%r21];
    COPIED: """
    arrived = "ARRIVING: mbarrier.try_wait.parity.shared.b64 %p7, [%r21], 0; @!%p7 bra ARRIVING;"
    arrived = f"@!%p1 bra ARRIVED; {arrived} ARRIVED: "
    assert findings(ISSUE + copy + arrived + WAIT + read_back(16)) == ["tensor_race"]
    assert findings(ISSUE + WAIT + copy + arrived + read_back(16)) == []


def by_a_tensor_map(swizzle: int, stride: int) -> tuple[list[str], Array]:
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
    {operands(a=descriptor(TILES, 16, stride, swizzle))} {PRODUCT} {COMMIT}""")
    before = np.concatenate([np.zeros(A_BYTES, np.uint8), core_matrices(b.view(np.uint8))])
    body = kernel(copy + WAIT + read_back(16), 32, before.size // 16)
    arrays = aligned(before), out, aligned(tile.pack()), source
    report = run(body, *arrays, block=128, shared_bytes=TILES + before.size + 1024)
    return [each.code for each in report.findings], out


def test_a_descriptor_has_the_swizzle_of_the_tensor_map() -> None:
    found, out = by_a_tensor_map(6, 256)
    a, b = (each.astype(np.float32) for each in matrices())
    assert found == [] and np.array_equal(out.view(np.float32), a @ b.T)
    assert by_a_tensor_map(4, 256)[0] == ["tensor_swizzle"]


# --- what is not the kernel's own -------------------------------------------------------------


def test_a_warp_reads_its_own_lanes() -> None:
    others = read_back(16).replace("%r2+", "%r3+")
    faulted(
        ISSUE + WAIT + "add.u32 %r3, %r1, 0x400000;" + others,
        TensorMemoryFault,
        r"lanes 64 to 95 by warp \d, which reaches lanes",
    )


def test_columns_are_allocated_before_they_are_used_and_not_freed() -> None:
    faulted(
        ISSUE + WAIT + read_back(16, column=32),
        TensorMemoryFault,
        "column 32, which is not allocated",
    )
    again = (
        "@!%p2 bra AGAIN; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, 32; AGAIN: bar.sync 0;"
    )
    faulted(
        ISSUE + WAIT + again + read_back(16), TensorMemoryFault, "column 0, which has been freed"
    )


def test_a_product_stays_inside_the_allocation() -> None:
    wide = F16 & ~(63 << 17) | 64 // 8 << 17
    issue = by_one_thread(operands(bits=wide) + PRODUCT + COMMIT)
    faulted(issue + WAIT, TensorMemoryFault, "d of tensor memory reaches column 32")


@pytest.mark.parametrize(
    ("count", "words"), [(48, "of 48 columns"), (16, "of 16 columns"), (1024, "of 1024 columns")]
)
def test_the_count_of_columns_is_a_power_of_two(count: int, words: str) -> None:
    with pytest.raises(TensorMemoryFault, match=words):
        ran("", columns=count)


def test_columns_are_given_back_by_address_and_count() -> None:
    free = "@!%p2 bra NO; tcgen05.dealloc.cta_group::1.sync.aligned.b32 {}; NO: bar.sync 0;"
    faulted(free.format("%r1, 64"), TensorMemoryFault, "dealloc of 64 columns .* which has 32")
    faulted(
        "add.u32 %r3, %r1, 32;" + free.format("%r3, 32"),
        TensorMemoryFault,
        "which is no allocation",
    )


def test_a_cta_that_keeps_its_columns_makes_the_next_one_wait() -> None:
    faulted("exit;", TensorMemoryFault, "ends with 32 columns of tensor memory allocated here")


def test_nothing_is_allocated_after_the_permit_is_given_back() -> None:
    more = (
        "@!%p2 bra MORE; tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r40], 32; MORE:"
    )
    faulted(more, TensorMemoryFault, "after tcgen05.relinquish_alloc_permit")


def test_the_permit_may_be_kept_until_the_end() -> None:
    """The manual asks nobody to give it back."""
    a, b = matrices()
    tiles = [core_matrices(each.view(np.uint8).reshape(len(each), -1)) for each in (a, b)]
    data, out = aligned(np.concatenate(tiles)), np.zeros((128, 16), np.uint32)
    body = kernel(ISSUE + WAIT + read_back(16), 32, data.size // 16)
    kept = body.replace("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;", "")
    assert kept != body
    report = run(kept, data, out, block=128, shared_bytes=TILES + data.size)
    assert not report.findings


def test_an_allocation_that_can_never_be_granted_is_a_deadlock() -> None:
    body = """.shared .align 8 .b32 slot; .reg .b32 %s; mov.u32 %s, slot;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%s], 512;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%s], 32;"""
    with pytest.raises(Deadlock, match=r"tcgen05\.alloc"):
        run(body, np.zeros(32, np.uint32))


def test_lanes_of_a_warp_agree_about_the_address() -> None:
    apart = ISSUE + WAIT + "add.u32 %r2, %r2, %r0;" + read_back(16)
    faulted(apart, TensorMemoryFault, "the lanes of the warp disagree about operand 1")


# --- descriptors ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "words"),
    [
        (descriptor(0x3_0000, 128, 256), "outside the CTA's shared memory"),
        (descriptor(TILES, 128, 1 << 17), "outside the CTA's shared memory"),
        (descriptor(TILES, 128, 256, version=0), "bits 46-48 are 0b000, which must be 0b001"),
        (descriptor(TILES, 128, 256, swizzle=3), "swizzle invalid"),
        (descriptor(TILES, 128, 256, swizzle=1), "only transposed tf32"),
        (OF_A | 1 << 53, "bits 53-60 are 0x1"),
    ],
)
def test_a_matrix_descriptor_that_cannot_be_is_shown_in_words(a: int, words: str) -> None:
    issue = by_one_thread(operands(a=a) + PRODUCT + COMMIT)
    faulted(issue, TensorDescriptorFault, re.escape(words))
    faulted(issue, TensorDescriptorFault, "the descriptor of a .address 0x")


def test_a_base_offset_is_refused_by_name() -> None:
    issue = by_one_thread(operands(a=OF_A | 1 << 49) + PRODUCT + COMMIT)
    faulted(
        issue, UnsupportedInstruction, "the base offset 1 of a matrix descriptor is not emulated"
    )


@pytest.mark.parametrize(
    ("bits", "words"),
    [
        (
            F16 | 2 << 7,
            r"the type of a \(bits 7-9\) is 2, and kind::f16 takes 0 \(f16\), 1 \(bf16\)",
        ),
        (F16 | 2 << 4, "the type of d .bits 4-5. is 3"),
        (F16 | 1 << 3, "it saturates"),
        (F16 | 1 << 29, "reserved bits"),
        (F16 & ~(31 << 24) | 32 // 16 << 24, "M = 32 and N = 16, where kind::f16 has M = 64"),
        (F16 & ~(63 << 17) | 8 // 8 << 17, "M = 128 and N = 8"),
    ],
)
def test_an_instruction_descriptor_that_contradicts_its_kind_is_told(bits: int, words: str) -> None:
    faulted(by_one_thread(operands(bits=bits) + PRODUCT), TensorDescriptorFault, words)


def test_sparse_products_are_refused_by_name() -> None:
    issue = by_one_thread(operands(bits=F16 | 1 << 2) + PRODUCT)
    faulted(issue, UnsupportedInstruction, "a sparse matrix")


@pytest.mark.parametrize("between", [0, 2000])
def test_a_load_whose_value_is_used_has_been_waited_for_however_far_behind_that_is(
    between: int,
) -> None:
    """As with the masks of a softmax, written out."""
    used = "add.u32 %v0, %v0, 1; add.u32 %v1, %v1, 1;"
    load = f"tcgen05.ld.sync.aligned.32x32b.x2.b32 {registers(2)}, [%r2];"
    body = "mov.u32 %r4, 0;" + STORED + "tcgen05.wait::st.sync.aligned;" + load
    body += "add.u32 %r4, %r4, 1;" * between + used + STORE + "tcgen05.wait::st.sync.aligned;"
    assert findings(body) == []
