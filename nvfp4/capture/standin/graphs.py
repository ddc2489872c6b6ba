"""torch.cuda's graphs on the stand-in.

An operator that makes tensors runs when it is captured, so that its results exist, and again at
each replay.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from nvfp4.capture import graphs, stream_order
from nvfp4.capture.standin import memory
from nvfp4.capture.standin.streams import Stream, current_stream

UNSET = ("empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided")
"""Operators that leave memory uninitialised."""

OVERWRITING = (
    *("zero_", "fill_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_", "copy_"),
)
"""Operators that read nothing of their first argument."""

_READING = (
    *("_local_scalar_dense", "equal", "nonzero", "masked_select", "_unique2", "unique_dim"),
    *("unique_consecutive", "bincount", "_linalg_eigh", "linalg_eig", "_linalg_svd"),
    "linalg_matrix_exp",
)
"""Operators that wait for the device."""
_INDEXING = ("index", "index_put", "index_put_", "_index_put_impl_")
"""Operators that wait for the device where an index is a mask or lies on the host."""

_made: list[torch.Tensor] = []
"""Results of operators since the capture began; its end unsets them."""


class CUDAGraph:
    """torch.cuda.CUDAGraph. It keeps the tensors that captured operators made."""

    def __init__(self, keep_graph: bool = False) -> None:
        self._steps: list[graphs.Step] | None = None

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        """Begin to capture. Raises RuntimeError during another capture, with a graph that has been
        captured, and in the default stream, which cannot be captured."""
        if self._steps is not None:
            raise RuntimeError("This CUDAGraph instance already owns a captured graph.")
        stream = current_stream()
        if not stream.cuda_stream:
            raise RuntimeError("CUDA graphs must be captured on a non-default stream.")
        stream_order.begin_capture(stream.cuda_stream)
        _made.clear()

    def capture_end(self) -> None:
        """End the capture and keep its steps. Raises RuntimeError if there is none, or a stream
        that takes part is not joined."""
        self._steps = graphs.end()
        while _made:  # nothing has been computed before a replay
            result = memory.as_cpu(_made.pop())
            result.fill_(math.nan)
            memory.tell_written(result)

    def instantiate(self) -> None:
        """Do nothing: a captured graph can be replayed as it is."""

    def replay(self) -> None:
        """Perform the captured steps. Raises RuntimeError for a graph without any."""
        if self._steps is None:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        graphs.replay(self._steps, current_stream().cuda_stream)

    def reset(self) -> None:
        """Forget what was captured."""
        self._steps = None

    def pool(self) -> tuple[int, int]:
        """Return an identity of the graph's memory pool, which is not used."""
        return 0, 0


class graph:
    """torch.cuda.graph: captures a with block."""

    def __init__(
        self, cuda_graph: CUDAGraph, pool: Any = None, stream: Any = None, *_: Any, **__: Any
    ) -> None:
        self._graph = cuda_graph
        self._stream = torch.cuda.StreamContext(stream or Stream())

    def __enter__(self) -> None:
        self._stream.__enter__()
        self._graph.capture_begin()

    def __exit__(self, *error: Any) -> None:
        try:
            self._graph.capture_end()
        except stream_order.NotWhileCapturing:
            if not any(error):  # the block's own error says why
                raise
        finally:
            self._stream.__exit__(*error)


def capturable(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Return an operator's kernel that takes part in captures."""
    base = name.partition(".")[0]

    def call(*args: Any, **kwargs: Any) -> Any:
        waits = _waits(base, args, kwargs)
        stream = current_stream().cuda_stream
        if not stream_order.captures(stream):
            results = kernel(*args, **kwargs)
            if getattr(kernel, "computes", base not in UNSET):
                reads = any(each.is_cuda for each in memory.tensors_in(args[base in OVERWRITING :]))
                stream_order.launched(stream, f"torch's {base}", reads)
                stream_order.interrupt()
            if waits:
                stream_order.synchronize(stream)
            return results
        on_host = [each for each in memory.tensors_in(args[:2]) if not each.is_cuda]
        if waits or (base == "copy_" and not all(map(memory.is_pinned, on_host))):
            raise stream_order.forbidden(f"{name} waits for the device")
        if torch.Tag.inplace_view in memory.operator(name).tags:  # the host's work
            return kernel(*args, **kwargs)
        # Such as __irshift__, unlike __rshift__.
        in_place = base.startswith("__i") if base.startswith("__") else base.endswith("_")
        if in_place:
            graphs.keep(stream, partial(kernel, *_as_they_are(args), **kwargs))
            return None if base.startswith("_foreach") else args[0]
        results = _shaped(kernel, args, kwargs)
        given, targets = _as_they_are(args), [*map(memory.as_cpu, memory.tensors_in(results))]

        def again() -> None:
            if base in UNSET:
                return
            fresh = memory.tensors_in(kernel(*given, **kwargs))
            for target, new in zip(targets, fresh, strict=True):
                if target.data_ptr() != new.data_ptr():
                    target.copy_(memory.as_cpu(new) if new.is_cuda else new)
                    memory.tell_written(target)

        taken, made = (memory.tensors_in(each) for each in ([args, *kwargs.values()], results))
        held = {each.untyped_storage().data_ptr() for each in taken}
        fresh = (each for each in made if each.untyped_storage().data_ptr() not in held)
        _made.extend(e for e in fresh if e.is_cuda and e.is_floating_point() and e.itemsize > 1)
        graphs.keep(stream, again)  # and with it the memory of the results
        return results

    return call


def _shaped(kernel: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Return results of the right shapes. Steps captured before have not run, so indices may be
    anything."""
    try:
        return kernel(*args, **kwargs)
    except (IndexError, RuntimeError) as error:
        try:
            return kernel(*(_zeros(each) for each in args), **kwargs)
        except Exception:
            raise error from None


def _as_they_are(value: Any) -> Any:
    """Return arguments that do not follow when a tensor gets other sizes in place."""
    if isinstance(value, (list, tuple)):
        return [_as_they_are(each) for each in value]
    if isinstance(value, torch.Tensor) and value.is_cuda:
        return memory.strided_view(value, value.size(), value.stride(), value.storage_offset())
    return value


def _zeros(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_zeros(each) for each in value]
    if isinstance(value, torch.Tensor) and value.dtype in (torch.int32, torch.int64):
        return memory.as_cuda(torch.zeros(value.shape, dtype=value.dtype))
    return value


def _waits(base: str, args: Any, kwargs: Any) -> bool:
    """Return whether an operator waits for the device: a copy between host and device, or one whose
    result has a size that the device decides."""
    if base == "copy_":
        non_blocking = kwargs.get("non_blocking", len(args) > 2 and args[2])
        return not non_blocking and not all(each.is_cuda for each in args[:2])
    if base in _INDEXING:
        indices, values = memory.tensors_in(args[1]), memory.tensors_in(args[2:3])
        on_host = not all(each.is_cuda for each in (*indices, *values))
        if any(each.dtype in (torch.bool, torch.uint8) for each in indices):
            # A number where a mask says so is filled in.
            return len(indices) > 1 or not indices[0].is_cuda or not on_host
        return on_host
    if base == "where":
        return not all(each.is_cuda for each in memory.tensors_in(args))
    if base == "histc":
        return bool(args[2:3] == args[3:4])  # from the least to the greatest
    repeats = base == "repeat_interleave" and kwargs.get("output_size") is None
    return repeats or base in _READING
