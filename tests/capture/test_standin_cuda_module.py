"""torch.cuda while the stand-in is installed, and torch as it was afterwards."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from nvfp4.capture import standin
from nvfp4.capture.device import device_for

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a real CUDA device")


@pytest.fixture(autouse=True)
def installed() -> Iterator[standin.StandIn]:
    with standin.install() as active:
        yield active


def test_there_is_one_device() -> None:
    assert torch.cuda.is_available()
    assert torch.cuda.device_count() == 1
    assert torch.cuda.current_device() == 0
    assert torch.accelerator.current_accelerator() == torch.device("cuda")
    assert torch.backends.cuda.is_built()
    assert torch.version.cuda == "13.0"


@pytest.mark.parametrize("device", [None, 0, "cuda", "cuda:0", torch.device("cuda")], ids=repr)
def test_the_device_is_a_b200(device: Any) -> None:
    properties = torch.cuda.get_device_properties(device)
    assert properties.name == torch.cuda.get_device_name(device) == "NVIDIA B200"
    assert (properties.major, properties.minor) == (10, 0)
    assert torch.cuda.get_device_capability(device) == (10, 0)
    assert properties.multi_processor_count == 148
    assert properties.warp_size == 32
    assert properties.L2_cache_size == 126 * 2**20
    assert properties.shared_memory_per_block == 48 * 1024
    assert properties.shared_memory_per_block_optin == 227 * 1024
    assert properties.shared_memory_per_multiprocessor == 228 * 1024
    assert properties.max_threads_per_multi_processor == 2048
    assert properties.regs_per_multiprocessor == 65536
    assert torch.cuda.mem_get_info(device)[1] == properties.total_memory > 170e9


def test_the_architecture_chooses_the_device(installed: standin.StandIn) -> None:
    installed.uninstall()
    with standin.install("sm_90a") as active:
        assert active.device == device_for("sm_90a")
        assert torch.cuda.get_device_capability() == (9, 0)
        assert "H100" in torch.cuda.get_device_name()
    with pytest.raises(ValueError, match="sm_75"):
        standin.install("sm_75")
    assert not torch.cuda.is_available()


def test_another_device_than_the_first_is_refused() -> None:
    for ask in (torch.cuda.get_device_properties, torch.cuda.set_device, torch.cuda.synchronize):
        with pytest.raises(RuntimeError, match="invalid device ordinal"):
            ask(1)
    with pytest.raises(ValueError, match="Expected a cuda device"):
        torch.cuda.set_device("cpu")
    with pytest.raises(RuntimeError, match="invalid device ordinal"), torch.cuda.device(1):
        pass
    with pytest.raises(ValueError, match="Expected a cuda device"):
        torch.cuda.device("cpu")


def test_device_contexts_do_nothing() -> None:
    torch.cuda.set_device(0)
    tensor = torch.zeros(2, device="cuda")
    with torch.cuda.device(0), torch.cuda.device("cuda:0"), torch.cuda.device_of(tensor):
        torch.cuda.synchronize()
        torch.cuda.synchronize(tensor.device)
        assert torch.ones(2, device="cuda").device == tensor.device
    with torch.cuda.device("cuda") as of_the_first, torch.cuda.device_of(torch.ones(1)):
        assert of_the_first is None
    assert torch.cuda.current_device() == 0


def test_the_current_stream_is_the_default_stream_until_another_is_made_current() -> None:
    default = torch.cuda.default_stream()
    assert torch.cuda.current_stream() == torch.cuda.current_stream("cuda:0") == default
    assert default.cuda_stream == 0
    stream = torch.cuda.Stream()
    assert stream != default
    with torch.cuda.stream(stream):
        assert torch.cuda.current_stream() == stream
        with torch.cuda.stream(None):
            assert torch.cuda.current_stream() == stream
    assert torch.cuda.current_stream() == default
    stream.wait_stream(default)
    stream.synchronize()
    assert stream.query()
    torch.zeros(2, device="cuda").record_stream(stream)


def test_events_are_complete_and_tell_no_time() -> None:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    torch.cuda.current_stream().wait_event(start)
    end.record(torch.cuda.current_stream())
    end.synchronize()
    assert end.query()
    with pytest.raises(RuntimeError, match="no time can be measured"):
        start.elapsed_time(end)
    with pytest.raises(RuntimeError, match="no time can be measured"):
        torch.cuda.current_stream().record_event().elapsed_time(end)


def test_torch_s_events_of_any_device_tell_no_time_either() -> None:
    def time() -> float:
        start, end = (torch.Event("cuda", enable_timing=True) for _ in range(2))
        start.record()
        end.record()
        return start.elapsed_time(end)

    with pytest.raises(RuntimeError):
        time()


def test_memory_questions_and_markers_are_answered() -> None:
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.memory_allocated() == torch.cuda.max_memory_allocated() == 0
    with torch.cuda.nvtx.range("kernel"):
        torch.cuda.nvtx.mark("launch")
    torch.cuda.nvtx.range_push("a")
    torch.cuda.nvtx.range_pop()
    assert torch.cuda.memory_reserved() == torch.cuda.memory_stats().get("allocated", 0) == 0
    with pytest.raises(RuntimeError, match="not available without a GPU"):
        torch.cuda.cudart()
    assert isinstance(torch.cuda.memory_summary(), str)
    torch.backends.cuda.preferred_linalg_library("cusolver")
    torch.backends.cuda.preferred_blas_library("cublaslt")


def test_what_follows_from_the_properties_is_answered() -> None:
    assert torch.cuda.is_bf16_supported()
    assert torch.cuda.is_tf32_supported()
    assert torch.cuda.get_gencode_flags() == "-gencode compute=compute_100,code=sm_100"


def test_random_numbers_have_one_seed_and_one_state() -> None:
    def drawn() -> list[float]:
        return torch.rand(3, device="cuda").tolist()

    for seed in (torch.cuda.manual_seed, torch.cuda.manual_seed_all, torch.manual_seed):
        seed(7)
        assert torch.cuda.initial_seed() == 7
        state, states = torch.cuda.get_rng_state(), torch.cuda.get_rng_state_all()
        first = drawn()
        torch.cuda.set_rng_state(state)
        assert drawn() == first
        torch.cuda.set_rng_state_all(states)
        assert drawn() == first
    torch.cuda.seed_all()
    assert drawn() != first
    torch.cuda.seed()


def everything_that_is_replaced() -> dict[str, Any]:
    owners: list[Any] = [torch, torch.Tensor, torch.cuda, torch.cuda.nvtx, torch.accelerator]
    owners += [torch.cuda.random]
    owners += [torch.cuda.streams, torch.cuda.graphs, torch.backends.cuda, torch.version]
    return {
        f"{owner.__name__}.{name}": value
        for owner in owners
        for name, value in vars(owner).items()
        if not name.startswith("__") or name in ("__dlpack__",)
    }


def test_uninstall_restores_everything(installed: standin.StandIn) -> None:
    installed.uninstall()
    _ = torch.utils._device._device_constructors()
    before = everything_that_is_replaced()
    registered = len(torch._C._dispatch_get_registrations_for_dispatch_key("CUDA"))
    with standin.install():
        assert everything_that_is_replaced() != before
        torch.zeros(2, device="cuda")
    assert everything_that_is_replaced() == before
    assert len(torch._C._dispatch_get_registrations_for_dispatch_key("CUDA")) == registered
    assert not standin.is_installed()
    assert not torch.cuda.is_available()
    assert (torch.ones(3) + 1).tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    "use",
    [
        lambda: torch.zeros(2, device="cuda"),
        lambda: torch.ones(2).cuda(),
        lambda: torch.tensor([1], device="cuda"),
    ],
)
def test_without_the_stand_in_there_is_no_device(
    installed: standin.StandIn, use: Callable[[], object]
) -> None:
    installed.uninstall()
    with pytest.raises((RuntimeError, AssertionError, NotImplementedError)):
        use()


def test_only_one_stand_in_can_be_installed(installed: standin.StandIn) -> None:
    with pytest.raises(RuntimeError, match="installed already"):
        standin.install()
    installed.uninstall()
    installed.uninstall()
    with standin.install():
        assert torch.cuda.is_available()


def test_a_machine_with_a_device_needs_none(
    installed: standin.StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed.uninstall()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(RuntimeError, match="has a CUDA device"):
        standin.install()


def test_nothing_can_be_adopted_without_a_stand_in(installed: standin.StandIn) -> None:
    installed.uninstall()
    for function in (standin.adopt, standin.host_view):
        with pytest.raises(RuntimeError, match="no stand-in"):
            function(torch.ones(2))
