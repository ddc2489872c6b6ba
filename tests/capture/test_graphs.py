"""CUDA graphs on the stand-in: what is captured is done at each replay."""

import ctypes
import gc
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from nvfp4.capture import graphs, standin, stream_order  # noqa: E402
from nvfp4.capture.interception import Interception  # noqa: E402
from nvfp4.records.launch import Launch, anything_goes  # noqa: E402


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    with standin.install():
        yield
        with suppress(stream_order.NotWhileCapturing):
            graphs.end()


def test_operators_are_done_again_on_what_is_there_then() -> None:
    x, out = torch.arange(4.0, device="cuda"), torch.zeros(4, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        assert torch.cuda.is_current_stream_capturing()
        doubled = (x * 2).to(x)[1:]
        out[1:].copy_(doubled)
        out += 1
        torch.cuda._sleep(1000)
    assert doubled.isnan().all(), "nothing is computed before a replay"
    for start in (0.0, 10.0):
        stream_order.begin()
        x.copy_(torch.arange(4.0) + start)
        out.zero_()
        graph.replay()
        assert out.tolist() == [1.0, *[2 * (start + i) + 1 for i in (1, 2, 3)]]
        assert stream_order.operators() is None, "the GPU sleeps"
    assert doubled.tolist() == [22.0, 24.0, 26.0]


def test_copies_within_the_device_are_operators() -> None:
    x, other = torch.ones(4, device="cuda"), torch.zeros(4, device="cuda")
    stream_order.begin()
    other.copy_(x), x.clone(), x.half(), x[None].t().contiguous()
    assert stream_order.operators() == 3, "the last one is contiguous already"


@pytest.mark.parametrize(
    "look_up", [lambda t, i: t[i], lambda t, i: torch.nn.functional.embedding(i, t)]
)
def test_indices_that_are_captured_need_not_be_there_yet(look_up: Any) -> None:
    table = torch.arange(16.0, device="cuda")[:, None]
    codes = torch.empty(64, dtype=torch.uint8, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = look_up(table, (codes & 15).long())
    for first in (0, 100):
        codes.copy_(torch.arange(first, first + 64, dtype=torch.uint8))
        graph.replay()
        assert found.flatten().tolist() == [float(i & 15) for i in range(first, first + 64)]


def test_shifts_by_operators_are_not_done_in_place() -> None:
    codes = torch.zeros(4, dtype=torch.uint8, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        high, low = codes >> 4, codes & 15
        shifted = low.clone()
        shifted <<= 1
    codes.copy_(torch.tensor([0x12, 0x34, 0x56, 0xFF], dtype=torch.uint8))
    graph.replay()
    assert codes.tolist() == [0x12, 0x34, 0x56, 0xFF]
    assert (high.tolist(), low.tolist()) == ([1, 3, 5, 15], [2, 4, 6, 15])
    assert shifted.tolist() == [4, 8, 12, 30]


def test_what_a_capture_made_keeps_its_memory_and_empty_sets_nothing() -> None:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = torch.empty(1 << 16, device="cuda")
        address = kept.data_ptr()
        target = kept + 1
    kept.fill_(3.0)
    graph.replay()
    assert target[0].item() == 4.0
    del kept
    gc.collect()
    others = [torch.full((1 << 16,), 7.0, device="cuda") for _ in range(4)]
    assert address not in [each.data_ptr() for each in others]
    graph.replay()
    assert target[0].item() == 4.0


def test_what_waits_for_the_device_is_not_permitted_in_a_capture() -> None:
    x = torch.ones(4, device="cuda")
    for waits in (
        lambda: x.sum().item(), x.cpu, lambda: torch.tensor([1.0], device="cuda"),
        torch.cuda.synchronize, lambda: torch.cuda.current_stream().synchronize(),
        lambda: torch.cuda.current_stream().record_event().synchronize(), lambda: x[x > 0],
        lambda: x.int().bincount(), lambda: x.repeat_interleave(x.int()),
        # On an H200 with torch 2.11, as all of what follows:
        lambda: x[torch.tensor([1, 2])], lambda: x.__setitem__(x.long(), 1.0),
        lambda: x.copy_(torch.ones(4), non_blocking=True), lambda: x.histc(4),
        lambda: torch.where(x > 0, x, torch.tensor(1.0)), lambda: torch.manual_seed(1),
        lambda: torch.linalg.matrix_exp(x.view(2, 2)),
    ):  # fmt: skip
        graph = torch.cuda.CUDAGraph()
        with (
            pytest.raises(RuntimeError, match="not permitted when stream is capturing"),
            torch.cuda.graph(graph),
        ):
            waits()
        with pytest.raises(RuntimeError, match="no CUDA graph is captured"):
            graphs.end()
        with (
            pytest.raises(RuntimeError, match="not permitted when stream is capturing"),
            torch.cuda.graph(graph),
            suppress(RuntimeError),
        ):
            waits()


@pytest.mark.parametrize(
    "use",
    [
        lambda x: x.__setitem__(x > 0, 1.0), lambda x: x.rot90(), lambda x: x.histc(4, -1, 1),
        lambda x: x.copy_(torch.ones(4, 4).pin_memory()[:2, :2], non_blocking=True),
        lambda x: x.quantile(0.5, dim=-1), lambda x: x.clone().resize_(2, 1).mul_(2),
        lambda x: x.unsqueeze_(0).mul_(2).squeeze_(0), lambda x: x.clone().t_().mul_(x),
    ],
)  # fmt: skip
def test_what_only_changes_sizes_is_done_once_and_what_does_not_wait_is_captured(use: Any) -> None:
    x, graph = torch.zeros(2, 2, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = use(x)
    for _ in range(2):
        x.copy_(torch.randn(2, 2))
        other = x.clone()
        graph.replay()
        wanted = use(other)
        assert torch.equal(x, other)
        assert result is None or torch.equal(result, wanted)


@pytest.mark.parametrize("of", ["add_", "mul_", "copy_"])
def test_operands_that_overlap_what_is_written_are_refused(of: str) -> None:
    x = torch.ones(8, 8, device="cuda")
    for target, source in ((x[1:], x[:-1]), (x, x.t())):
        with pytest.raises(RuntimeError, match="refer to a single memory location"):
            getattr(target, of)(source)
    with pytest.raises(RuntimeError, match="refer to a single memory location"):
        x[torch.tensor([1, 2], device="cuda")] = x[0]


def test_only_streams_that_wait_for_what_is_captured_take_part() -> None:
    out = torch.zeros(3, device="cuda")
    sides = [torch.cuda.Stream() for _ in range(2)]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        main = torch.cuda.current_stream()
        sides[0].wait_event(main.record_event())
        for i, stream in enumerate((main, *sides)):
            with torch.cuda.stream(stream):
                assert torch.cuda.is_current_stream_capturing() is (i < 2)
                out[i] += 1
        assert stream_order.runs_alongside(main.cuda_stream)
        main.wait_stream(sides[0])
        assert not stream_order.runs_alongside(main.cuda_stream)
        assert not sides[1].is_capturing() and sides[1].query()
    assert out.tolist() == [0, 0, 1], "the last stream runs at once"
    graph.replay()
    assert out.tolist() == [1, 1, 1]


@pytest.mark.parametrize("joined", [True, False])
def test_streams_that_take_part_must_be_joined(joined: bool) -> None:
    side, out = torch.cuda.Stream(), torch.zeros(1, device="cuda")
    refused = nullcontext() if joined else pytest.raises(RuntimeError, match="unjoined work")
    with refused, torch.cuda.graph(torch.cuda.CUDAGraph()):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            out.add_(1)
        if joined:
            torch.cuda.current_stream().wait_stream(side)
    assert not side.is_capturing()
    with pytest.raises(RuntimeError, match="no CUDA graph is captured"):
        graphs.end()


def test_a_callable_is_graphed_by_torch() -> None:
    x = torch.arange(4.0, device="cuda")
    doubled = torch.cuda.make_graphed_callables(lambda data: data * 2, (x.clone(),))
    assert doubled(x).tolist() == [0, 2, 4, 6]


def test_the_default_stream_cannot_be_captured() -> None:
    with pytest.raises(RuntimeError, match="on a non-default stream"):
        torch.cuda.CUDAGraph().capture_begin()


def test_captures_do_not_nest_and_an_empty_graph_cannot_be_replayed() -> None:
    one, other = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        one.replay()
    with torch.cuda.graph(again := torch.cuda.CUDAGraph()):
        torch.zeros(1, device="cuda")
    with pytest.raises(RuntimeError, match="already owns a captured graph"):
        again.capture_begin()
    with torch.cuda.graph(one), pytest.raises(RuntimeError, match="captured already"):
        other.capture_begin()
    with pytest.raises(RuntimeError, match="no CUDA graph is captured"):
        other.capture_end()


def test_a_replay_in_a_capture_is_part_of_it() -> None:
    count = torch.zeros(1, device="cuda")
    inner, outer = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(inner):
        count += 1
    with torch.cuda.graph(outer):
        inner.replay()
        inner.replay()
    assert count.item() == 0
    outer.replay()
    assert count.item() == 2


def test_a_fill_waits_for_the_replay_and_takes_time_as_a_copy_to_a_symbol_does(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    from nvfp4.capture import host_access
    from nvfp4.capture.cuda.calls import copy_to_symbol, cudaMemset
    from nvfp4.capture.cuda.runtime import RUNTIME

    copied: list[tuple[int, ...]] = []
    monkeypatch.setattr(host_access, "copy", lambda *given: copied.append(given))
    request.addfinalizer(
        RUNTIME.start(lambda launch: None, "sm_100a", None, anything_goes, lambda: RUNTIME.forget)
    )
    address = RUNTIME.allocate(4)
    value = ctypes.c_uint32.from_address(address)
    value.value = 1
    stream_order.begin_capture(0)
    cudaMemset(RUNTIME, address, 7, 4, 0)
    steps = graphs.end()
    assert value.value == 1
    graphs.replay(steps, 0)
    assert value.value == 0x07070707
    monkeypatch.setattr(RUNTIME, "variable", lambda shadow: RUNTIME.buffer_at(address))
    copy_to_symbol(RUNTIME, 1, address, 4, 0)
    assert copied == [(address, address, 2), (address, address, 4)]


def test_a_kernel_runs_in_the_stream_of_the_replay_not_in_that_of_the_capture() -> None:
    ran: list[int] = []

    class Noted(Interception):
        def _run(self, launch: Launch) -> None:
            ran.append(launch.stream)

    stream_order.begin_capture(7)
    Noted("sm_100a")._take(Launch("", "k", (1, 1, 1), (1, 1, 1), [], stream=7))
    graph = graphs.end()
    for stream in (0, 7, 8):
        graphs.replay(graph, stream)
    assert ran == [0, 7, 8]
