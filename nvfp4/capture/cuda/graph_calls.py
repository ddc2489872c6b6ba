"""The functions of the CUDA runtime for graphs; see `calls`. One that can be launched is a handle
of its own with the same steps.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

from nvfp4.capture import graphs
from nvfp4.capture.cuda.codes import Code, CudaError
from nvfp4.capture.cuda.registry import entry, store
from nvfp4.capture.cuda.runtime import CudaRuntime

_captured: dict[int, list[graphs.Step]] = {}


def _new(runtime: CudaRuntime, steps: list[graphs.Step]) -> int:
    handle = runtime.new_handle()
    _captured[handle] = steps
    return handle


def _steps_of(graph: int) -> list[graphs.Step]:
    if graph not in _captured:
        raise CudaError(Code.INVALID_VALUE, f"{graph:#x} is no CUDA graph")
    return _captured[graph]


@contextmanager
def _illegal_state() -> Iterator[None]:
    """The code that CUDA returns for a capture begun or ended out of turn."""
    try:
        yield
    except graphs.NotWhileCapturing as error:
        raise CudaError(Code.ILLEGAL_STATE, error.message) from None


@entry()
def begin_capture(runtime: CudaRuntime) -> None:
    with _illegal_state():
        graphs.begin()


@entry()
def end_capture(runtime: CudaRuntime, target: int) -> None:
    with _illegal_state():
        steps = graphs.end()
    store(target, _new(runtime, steps))


@entry()
def is_capturing(runtime: CudaRuntime, target: int) -> None:
    store(target, int(graphs.capturing()), ctypes.c_int32)


@entry()
def instantiate_graph(runtime: CudaRuntime, target: int, graph: int) -> None:
    store(target, _new(runtime, _steps_of(graph)))


@entry()
def launch_graph(runtime: CudaRuntime, graph: int, stream: int) -> None:
    graphs.replay(_steps_of(graph), stream)


@entry()
def destroy_graph(runtime: CudaRuntime, graph: int) -> None:
    _steps_of(graph)
    del _captured[graph]
