"""The module torch.cuda, answering for the pretended device."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from nvfp4.capture import stream_order
from nvfp4.capture.device import Device
from nvfp4.capture.graphs import do
from nvfp4.capture.patches import Patches
from nvfp4.capture.standin import graphs, streams
from nvfp4.capture.standin.functions import indexed
from nvfp4.records.launch_errors import NeedsGpu

CUDA_VERSION = "13.0"
_STREAMS = ("Stream", "ExternalStream", "Event", "current_stream", "default_stream", "set_stream")


def properties_of(device: Device) -> SimpleNamespace:
    """Return the result of torch.cuda.get_device_properties; sizes in bytes, no uuid."""
    attributes = device.attributes
    return SimpleNamespace(
        name=device.name, gcnArchName=device.name, uuid=None, major=device.capability[0],
        minor=device.capability[1], total_memory=device.memory_bytes,
        multi_processor_count=device.multiprocessors, L2_cache_size=device.l2_bytes,
        shared_memory_per_block=attributes[8],
        shared_memory_per_block_optin=device.shared_bytes_per_block,
        shared_memory_per_multiprocessor=device.shared_bytes_per_multiprocessor,
        max_threads_per_multi_processor=device.threads_per_multiprocessor,
        max_threads_per_block=attributes[1], regs_per_multiprocessor=attributes[82],
        warp_size=attributes[10], is_integrated=0, is_multi_gpu_board=0,
    )  # fmt: skip


def replace_cuda_module(patches: Patches, device: Device, generator: torch.Generator) -> None:
    """Replace functions and classes of torch.cuda, torch.version, torch.backends, accelerator."""
    # Functions that torch.cuda and its module of random numbers call first.
    initialized: dict[str, Any] = {
        "_lazy_init": _nothing,
        "_lazy_call": _seeded,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
    }
    of_graphs = {
        "CUDAGraph": graphs.CUDAGraph,
        "graph": graphs.graph,
        "graph_pool_handle": lambda: (0, 0),
    }
    replacements: dict[Any, dict[str, Any]] = {
        torch.cuda: {
            **initialized,
            **_about_the_device(device),
            **{name: getattr(streams, name) for name in _STREAMS},
            "get_stream_from_external": streams.ExternalStream,
            **of_graphs,
            "is_current_stream_capturing": lambda: streams.current_stream().is_capturing(),
            "default_generators": (generator,),
        },
        torch.cuda.random: initialized,
        torch.cuda.streams: {"Stream": streams.Stream, "Event": streams.Event},
        torch.cuda.graphs: of_graphs,
        torch.cuda.nvtx: {
            **dict.fromkeys(("range_push", "range_start"), lambda message: 0),
            **dict.fromkeys(("range_end", "mark"), _nothing),
            "range_pop": lambda: 0,
        },
        torch.version: {"cuda": CUDA_VERSION},
        torch._C: {
            "_cuda_getCurrentRawStream": lambda device: streams.current_stream().cuda_stream
        },
        torch._C._dynamo.guards: {"_empty_strided_cuda": _empty_strided},
        torch.compiler: {"cudagraph_mark_step_begin": _nothing, "reset": _nothing},
        torch.backends.cuda: {"is_built": lambda: True},
        torch.backends.cudnn: {"is_available": lambda: True, "version": lambda: 91900},
        # It asks C++ whether there is one.
        torch.accelerator: {
            "is_available": lambda: True,
            "device_count": lambda: 1,
            "current_accelerator": lambda check_available=False: torch.device("cuda"),
            "current_device_index": lambda: 0,
            "current_stream": streams.current_stream,
            "set_stream": streams.set_stream,
            "set_device_index": _require_cuda,
            "synchronize": _synchronize,
        },
    }
    for owner, values in replacements.items():
        for name, value in values.items():
            patches.set(owner, name, value)


def _checked(value: Any) -> Callable[..., Any]:
    """Return a function of a device that refuses other devices than cuda:0."""

    def answer(device: Any = None) -> Any:
        _require_cuda(device)
        return value

    return answer


def _synchronize(device: Any = None) -> None:
    _require_cuda(device)
    stream_order.synchronize()


def _require_cuda(device: Any) -> None:
    """Raise ValueError unless the device is a CUDA device or None, and RuntimeError for a second
    one."""
    if device is not None and getattr(indexed(device), "type", device) != "cuda":
        raise ValueError(f"Expected a cuda device, but got: {device}")


def _set_device(device: Any) -> None:
    """Raise ValueError for a name without an index, and as `_require_cuda`."""
    _require_cuda(device)
    if not isinstance(device, int) and torch.device(device).index is None:
        raise ValueError(f"Expected a torch.device with a specified index, but got: {device}")


def _seeded(call: Callable[[], None], **_: Any) -> None:
    stream_order.refuse_capture("another seed is set")
    call()


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _sleep(cycles: int) -> None:
    """Take no time here, but leave the call without a predicted one."""
    do(streams.current_stream().cuda_stream, lambda: stream_order.operated(sleeps=True))


def _exchange_device(index: int) -> int:
    """Set the current device and return the previous one. A negative index, as of a CPU tensor,
    changes nothing."""
    if index >= 0:
        _require_cuda(index)
    return 0


def _empty_strided(size: Any, stride: Any, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype, device="cuda")


def _no_cudart() -> None:
    raise NeedsGpu("torch.cuda.cudart() is not available without a GPU")


def _about_the_device(device: Device) -> dict[str, Any]:
    major, minor = device.capability
    return {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "set_device": _set_device,
        "_exchange_device": _exchange_device,
        "_maybe_exchange_device": _exchange_device,
        "get_device_properties": _checked(properties_of(device)),
        "get_arch_list": lambda: [f"sm_{major}{minor}"],
        "mem_get_info": _checked((device.memory_bytes, device.memory_bytes)),
        "reset_peak_memory_stats": _nothing,
        "memory_summary": lambda *_, **__: "",
        "synchronize": _synchronize,
        "empty_cache": _synchronize,  # by cudaFree
        "ipc_collect": _nothing,
        "_sleep": _sleep,
        "cudart": _no_cudart,
    }
