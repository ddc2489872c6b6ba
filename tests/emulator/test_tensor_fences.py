"""tcgen05.fence: what the manual asks for between threads is missed, and nothing else is."""

import pytest
from tensor_harness import COMMIT, WAIT, by_one_thread, read_back
from test_tensor_checks import ISSUE, PRODUCT, STORED, SUM, findings, operands, ran

BEFORE, AFTER = "tcgen05.fence::before_thread_sync;", "tcgen05.fence::after_thread_sync;"
RELAXED = WAIT.replace("parity", "parity.relaxed.cta")
SECOND = f"setp.eq.u32 %p7, %r0, 32; @!%p7 bra ISSUED2; {operands()} {SUM} {COMMIT} ISSUED2: "
"""Thread 32 adds a product."""


def crossing(*between: str) -> str:
    """A product of thread 0, and one of thread 32 with the same sums."""
    first = by_one_thread(operands() + PRODUCT)
    return first + " ".join(between) + SECOND + WAIT + read_back(16)


def arrival(how: str, wait: str) -> str:
    """All threads arrive at a second mbarrier and wait for it."""
    return f"""add.u32 %r50, %r41, 8; @!%p1 bra INITIALISED; mbarrier.init.shared.b64 [%r50], 128;
    INITIALISED: bar.sync 0; {how} ARRIVED:
    mbarrier.try_wait.parity{wait}.shared.b64 %p8, [%r50], 0; @!%p8 bra ARRIVED;"""


def test_operations_of_two_threads_are_ordered_by_two_fences_and_a_barrier() -> None:
    assert findings(crossing(BEFORE, "bar.sync 0;", AFTER)) == []


@pytest.mark.parametrize(
    ("between", "words"),
    [
        (("bar.sync 0;",), "no tcgen05.fence::before_thread_sync lies between"),
        (("bar.sync 0;", AFTER), "no tcgen05.fence::before_thread_sync lies between"),
        (("bar.sync 0;", BEFORE, AFTER), "no tcgen05.fence::before_thread_sync lies between"),
        ((BEFORE, "bar.sync 0;"), "no tcgen05.fence::after_thread_sync lies between"),
        ((BEFORE, AFTER, "bar.sync 0;"), "no tcgen05.fence::after_thread_sync lies between"),
    ],
)
def test_a_fence_that_is_missing_or_misplaced_is_named_at_the_second_operation(
    between: tuple[str, ...], words: str
) -> None:
    report, _ = ran(crossing(*between))
    (found,) = report.findings
    assert found.code == "tensor_fence"
    assert words in found.message
    assert found.thread == (32, 0, 0)
    assert found.related[0]["thread"] == (0, 0, 0)


def test_fences_without_a_barrier_order_nothing() -> None:
    assert findings(crossing(BEFORE, AFTER)) == ["tensor_race"]


def test_a_third_warp_may_stand_between() -> None:
    on = "bar.sync 0; bar.sync 0;"
    assert findings(crossing(BEFORE, on, AFTER)) == []
    assert findings(crossing("bar.sync 0;", BEFORE, "bar.sync 0;", AFTER)) == []
    another = f"setp.ge.u32 %p9, %r0, 64; @%p9 {BEFORE}"
    assert findings(crossing("bar.sync 0;", another, "bar.sync 0;", AFTER)) == ["tensor_fence"]


def test_a_copy_by_one_thread_and_a_product_by_another_want_fences() -> None:
    scales = operands() + "add.u32 %r3, %r1, 16;"
    copy = by_one_thread(scales + "tcgen05.cp.cta_group::1.128x256b [%r3], %d5;")
    second = SECOND.replace("%r5, %p6", "%r5, %p5").replace("%d5, %d6", "[%r3], %d6")
    second = second.replace("bra ISSUED2;", "bra ISSUED2; add.u32 %r3, %r1, 16;")
    rest = second + WAIT + "bar.sync 0;"
    assert findings(copy + BEFORE + "bar.sync 0;" + AFTER + rest) == []
    assert findings(copy + "bar.sync 0;" + rest) == ["tensor_fence"]


def test_relaxed_arrivals_tell_what_a_fence_has_ordered() -> None:
    relaxed = "mbarrier.arrive.relaxed.cta.shared.b64 _, [%r50];"
    middle = arrival(relaxed, ".relaxed.cta")
    first, second = middle.split("bar.sync 0;")
    fenced = first + "bar.sync 0;" + BEFORE + second + AFTER
    # The mbarrier is initialised before the first product, so that no barrier follows that one.
    setup, rest = fenced.split("bar.sync 0;")
    product = by_one_thread(operands() + PRODUCT)
    whole = setup + "bar.sync 0;" + product + rest + SECOND + WAIT + read_back(16)
    assert findings(whole) == []
    assert findings(whole.replace(BEFORE, "")) == ["tensor_race"]
    without = setup + "bar.sync 0;" + product + rest.replace(AFTER, "") + SECOND + WAIT
    assert findings(without + read_back(16)) == ["tensor_race"]


def test_what_a_commit_tells_wants_no_fence_unless_the_wait_is_relaxed() -> None:
    """CUTLASS's kernels have none behind a wait that acquires, as every wait does by itself."""
    assert findings(ISSUE + WAIT.replace(AFTER, "") + read_back(16)) == []
    assert findings(ISSUE + RELAXED + read_back(16)) == []
    assert findings(ISSUE + RELAXED.replace(AFTER, "fence.acq_rel.cta;") + read_back(16)) == []
    assert findings(ISSUE + RELAXED.replace(AFTER, "") + read_back(16)) == ["tensor_fence"]


def test_what_is_waited_for_wants_no_fence_at_a_barrier() -> None:
    stored = STORED + "tcgen05.wait::st.sync.aligned; bar.sync 0;"
    product = by_one_thread(operands() + SUM + COMMIT)
    middle = stored + product + WAIT + read_back(2)
    assert findings(middle, 2) == []
    assert findings(middle.replace("bar.sync 0;", BEFORE + "bar.sync 0;" + AFTER), 2) == []
