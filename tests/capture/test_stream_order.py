"""Which kernels may still run when the current stream is done."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from nvfp4.capture import standin, stream_order  # noqa: E402


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    with standin.install():
        stream_order.begin()
        yield
        stream_order.begin()


def launch(name: str = "kernel", on: Any = None) -> None:
    """In the current stream, or another one."""
    stream_order.launched((on or torch.cuda.current_stream()).cuda_stream, name)


def left_over() -> list[str]:
    current = torch.cuda.current_stream().cuda_stream
    return [each.kernel for each in stream_order.unordered(current) if not each.early]


def too_early() -> list[str]:
    return [each.kernel for each in stream_order.unordered(0) if each.early]


def test_a_kernel_in_the_current_stream_needs_no_join() -> None:
    launch()
    assert left_over() == []


def test_a_kernel_in_another_stream_is_named_with_the_line_that_launched_it() -> None:
    with torch.cuda.stream(torch.cuda.Stream()):
        launch("first")
        launch("second")
    *_, found = stream_order.unordered(0)
    assert (found.kernel, found.file) == ("second", __file__)
    assert found.line is not None


JOINS: dict[str, Callable[[Any], object]] = {
    "wait_stream": lambda side: torch.cuda.current_stream().wait_stream(side),
    "wait_event": lambda side: torch.cuda.current_stream().wait_event(side.record_event()),
    "Event.wait": lambda side: side.record_event().wait(),
    "Event.synchronize": lambda side: side.record_event().synchronize(),
    "Event.query": lambda side: side.record_event().query(),
    "Stream.synchronize": lambda side: side.synchronize(),
    "Stream.query": lambda side: side.query(),
    "torch.cuda.synchronize": lambda side: torch.cuda.synchronize(),
}


@pytest.mark.parametrize("join", JOINS.values(), ids=JOINS)
def test_all_ways_to_join(join: Callable[[Any], object]) -> None:
    side = torch.cuda.Stream()
    launch(on=side)
    assert stream_order.runs_alongside(0) and not stream_order.runs_alongside(side.cuda_stream)
    join(side)
    assert left_over() == [] and not stream_order.runs_alongside(0)
    launch("later", side)
    assert left_over() == ["later"]


@pytest.mark.parametrize("recorded", [True, False])
def test_an_event_covers_what_came_before_it_only(recorded: bool) -> None:
    event = torch.cuda.Event()
    with torch.cuda.stream(torch.cuda.Stream()):
        if recorded:
            event.record()
        launch()
    event.wait()
    assert left_over() == ["kernel"]


def test_streams_are_joined_through_others() -> None:
    one, other = torch.cuda.Stream(), torch.cuda.Stream()
    launch(on=one)
    other.wait_stream(one)
    assert left_over() == ["kernel"]
    torch.cuda.current_stream().wait_stream(other)
    assert left_over() == []


@pytest.mark.parametrize("blocking", ["0", "1"])
def test_the_host_waits_for_each_launch_where_the_environment_says_so(
    blocking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", blocking)
    stream_order.waits()
    for _ in range(3):
        launch(on=torch.cuda.Stream())
    assert stream_order.waits() == 3 * (blocking == "1")


def test_streams_that_block_wait_for_the_default_stream_and_it_for_them() -> None:
    stream_order.made(1 << 40, blocking=True)
    stream_order.made(1 << 41, blocking=False)
    stream_order.launched(1 << 40, "blocking")
    stream_order.launched(1 << 41, "non-blocking")
    assert left_over() == ["non-blocking"]
    assert [each.kernel for each in stream_order.unordered(1 << 40)] == ["non-blocking"] * 2


def test_the_stream_that_is_current_in_the_end_counts() -> None:
    with torch.cuda.stream(torch.cuda.Stream()):
        launch()
        assert left_over() == []


def test_a_graph_runs_in_the_stream_of_its_replay() -> None:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
        torch.zeros(1, device="cuda").add_(1)
    graph.replay()
    assert left_over() == []
    with torch.cuda.stream(torch.cuda.Stream()):
        graph.replay()
    assert left_over() == ["a CUDA graph"]


WAITS: dict[str, Callable[[Any], object]] = {
    "wait_stream": lambda side: side.wait_stream(torch.cuda.current_stream()),
    "wait_event": lambda side: side.wait_event(torch.cuda.current_stream().record_event()),
    "torch.cuda.synchronize": lambda side: torch.cuda.synchronize(),
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_all_ways_to_wait_for_the_caller(wait: Callable[[Any], object]) -> None:
    early, side = torch.cuda.Stream(), torch.cuda.Stream()
    launch("early", early)
    wait(side)
    launch(on=side)
    assert too_early() == ["early"]
    launch("in the caller's stream")
    assert too_early() == ["early"]


@pytest.mark.parametrize(
    ("missing", "early", "late"),
    [
        ("nothing", [], []),
        ("the wait for the caller", ["torch's mul", "torch's add"], []),
        ("the wait of the caller", [], ["torch's add"]),
        ("both", ["torch's mul", "torch's add"], ["torch's add"]),
        ("the wait for what was put in last", [], ["torch's add"]),
    ],
)
def test_torch_s_operators_are_work_in_their_stream(
    missing: str, early: list[str], late: list[str]
) -> None:
    data = torch.ones(4, device="cuda")
    stream_order.begin()
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    if missing not in ("the wait for the caller", "both"):
        side.wait_stream(main)
    with torch.cuda.stream(side):
        found = torch.mul(data, 2, out=torch.empty(4, device="cuda"))  # by Python's library
        event = side.record_event()
        found = found.view(2, 2).add(data[0])
        if missing != "the wait for what was put in last":
            event = side.record_event()
    if missing not in ("the wait of the caller", "both"):
        event.wait()
    assert (too_early(), left_over()) == (early, late)
    assert {each.file for each in stream_order.unordered(0)} <= {__file__}


def test_new_contents_need_no_wait_for_the_caller_but_one_of_the_caller() -> None:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.zeros(4, device="cuda").fill_(3)
    assert (too_early(), left_over()) == ([], ["torch's fill_"])
    torch.cuda.current_stream().wait_stream(side)
    assert left_over() == []


READS: dict[str, Callable[[Any], object]] = {
    "item": lambda tensor: tensor[0].item(),
    "tolist": lambda tensor: tensor.tolist(),
    "cpu": lambda tensor: tensor.cpu(),
    "copy_": lambda tensor: torch.empty(4).copy_(tensor),
    "nonzero": lambda tensor: tensor.nonzero(),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_host_code_that_reads_a_result_has_waited_for_its_stream(
    read: Callable[[Any], object],
) -> None:
    data, side = torch.ones(4, device="cuda"), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    launch(on=side)
    torch.empty(4).copy_(data, non_blocking=True)
    assert left_over() == ["kernel"], "it was read in another stream"
    with torch.cuda.stream(side):
        read(data)
    assert left_over() == []


def test_an_event_of_another_call_waits_for_nothing() -> None:
    event = torch.cuda.current_stream().record_event()
    stream_order.begin()
    with torch.cuda.stream(torch.cuda.Stream()):
        event.wait()
        launch()
    assert too_early() == ["kernel"]
