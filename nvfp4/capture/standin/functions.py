"""Replacements for torch's functions that would ask CUDA itself in C++.

Most are replaced only to give a device its index: "cuda" becomes "cuda:0", so that C++ does not ask
for the current device.
"""

import copy
import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from nvfp4.capture.patches import Patches
from nvfp4.capture.standin import memory
from nvfp4.capture.standin.kernels import cpu_for
from nvfp4.capture.torch_memory import remember

_CUDA = torch.device("cuda", 0)

_FACTORIES = (
    *("empty", "empty_like", "empty_strided", "zeros", "zeros_like", "ones", "ones_like"),
    *("full", "full_like", "rand", "rand_like", "randn", "randn_like", "randint", "randint_like"),
    *("randperm", "arange", "linspace", "eye", "tensor", "as_tensor", "asarray", "scalar_tensor"),
)


def indexed(device: Any) -> Any:
    """cuda:0 for every way to name the CUDA device; anything else unchanged."""
    if isinstance(device, int) and not isinstance(device, bool):
        device = torch.device("cuda", device)
    elif isinstance(device, str) and device.startswith("cuda"):
        device = torch.device(device)
    if isinstance(device, torch.device) and device.type == "cuda":
        cpu_for(device)
        return _CUDA
    return device


def replace_functions(patches: Patches) -> None:
    """Replace the functions of torch and torch.Tensor that would ask CUDA."""
    from torch.jit import _builtins
    from torch.utils import _device

    # This set of functions holds the originals and is kept; a device context looks them up in it.
    _device._device_constructors()
    for name in _FACTORIES:
        function = _with_index(getattr(torch, name))
        # TorchScript, which forward derivatives use, has operators by the functions' identity.
        _builtins._register_builtin(function, f"aten::{name}")
        patches.set(torch, name, function)
    context, begin = _device.DeviceContext, _device.DeviceContext.__init__
    patches.set(context, "__init__", lambda self, device: begin(self, indexed(device)))
    tensor = torch.Tensor
    patches.set(tensor, "to", _to_indexed)
    patches.set(tensor, "cuda", _cuda)
    patches.set(tensor, "new_tensor", _new_tensor)
    patches.set(tensor, "type", _type)
    patches.set(tensor, "pin_memory", lambda self, device=None: memory.pin(self.clone()))
    patches.set(tensor, "is_pinned", memory.is_pinned)
    patches.set(tensor, "record_stream", lambda self, stream: None)
    patches.set(tensor, "__dlpack__", _dlpack)
    patches.set(tensor, "data_ptr", _data_ptr(tensor.data_ptr))
    patches.set(torch.UntypedStorage, "clone", _clone_of_storage)
    patches.set(torch, "Generator", _generator(torch.Generator))
    patches.set(torch, "compile", _compile)
    for library in ("linalg", "blas"):
        patches.set(torch._C, f"_set_{library}_preferred_backend", lambda backend: None)


_to, _type_of_torch = torch.Tensor.to, torch.Tensor.type
_new_tensor_of_torch, _dlpack_of_torch = torch.Tensor.new_tensor, torch.Tensor.__dlpack__


def _clone_of_storage(self: torch.UntypedStorage) -> torch.UntypedStorage:
    fresh = torch.empty(self.nbytes(), dtype=torch.uint8, device=self.device)
    return fresh.untyped_storage().copy_(self)


def _to_indexed(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    where = (each for each in (*args, kwargs.get("device")) if not isinstance(each, torch.Tensor))
    if "cpu" in map(str, where):
        kwargs.pop("non_blocking", None)  # which would need pinned memory
    return _to(self, *map(indexed, args), **_with_indexed_device(kwargs))


def _with_indexed_device(kwargs: dict[str, Any]) -> dict[str, Any]:
    if "device" in kwargs:
        kwargs["device"] = indexed(kwargs["device"])
    return kwargs


@functools.cache  # what is registered by its identity has to live on
def _with_index(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function that makes tensors, so that it accepts every name of the device and only
    marks pinned memory."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        pinned = kwargs.pop("pin_memory", False)
        made = original(*args, **_with_indexed_device(kwargs))
        return memory.pin(made) if pinned else made

    return call


def _new_tensor(self: torch.Tensor, data: Any, **kwargs: Any) -> torch.Tensor:
    device = indexed(kwargs.pop("device", None)) or self.device
    return _new_tensor_of_torch(self, data, device=device, **kwargs)


def _cuda(self: torch.Tensor, device: Any = None, non_blocking: bool = False, **how: Any) -> Any:
    return _to(self, indexed(device or _CUDA), non_blocking=non_blocking, **how)


def _type(self: torch.Tensor, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Tensor.type with names such as "torch.cuda.HalfTensor"."""
    if isinstance(dtype, str) and dtype.startswith("torch.cuda."):
        on_cpu = torch.empty(0).type(dtype.replace("torch.cuda.", "torch.", 1))
        return _to(self, _CUDA, on_cpu.dtype)
    return _type_of_torch(self, dtype, *args, **kwargs)


def _dlpack(self: torch.Tensor, *, stream: Any = -1, **kwargs: Any) -> Any:
    """Tensor.__dlpack__ without its wait for a stream."""
    return _dlpack_of_torch(self, stream=-1 if self.is_cuda else stream, **kwargs)


def _generator(original: type) -> type:
    """torch.Generator, whose CUDA generators are CPU generators."""

    class Kind(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original)

    class Generator(metaclass=Kind):
        def __new__(cls, device: Any = "cpu") -> Any:
            kind = torch.device(indexed(device))
            return original(device="cpu" if kind.type == "cuda" else kind)

    return Generator


_MODES = (None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


def _compile(model: Any = None, **how: Any) -> Any:
    """torch.compile that computes nothing else; with CUDA graphs, a call overwrites the results of
    the one before. Raises RuntimeError as torch does."""
    if model is None:
        return functools.partial(_compile, **how)
    mode, options = how.get("mode"), how.get("options") or {}
    if mode and options:
        raise RuntimeError("Either mode or options can be specified, but not both")
    if mode not in _MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of {', '.join(_MODES[1:])}")
    replays = mode in _MODES[2:4] or how.get("backend") == "cudagraphs"
    if not (replays or options.get("triton.cudagraphs")) or how.get("disable"):
        return model
    if isinstance(model, torch.nn.Module):
        compiled = copy.copy(model)
        compiled.forward = _overwriting(model.forward)
        return compiled
    return _overwriting(model)


def _overwriting(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function, so that a call leaves nothing of the results of the one before."""
    kept: list[weakref.ref[torch.Tensor]] = []

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = {each.untyped_storage().data_ptr() for each in _cuda_tensors((args, kwargs))}
        for each in (known() for known in kept):
            if each is not None and each.untyped_storage().data_ptr() not in given:
                on_cpu = memory.as_cpu(each)
                memory.tell_written(on_cpu.fill_(torch.nan if on_cpu.is_floating_point() else 1))
        memory.watching.append(set())
        try:
            made = function(*args, **kwargs)
        finally:
            own = memory.watching.pop() - given
        results = _cuda_tensors(made)
        kept[:] = [weakref.ref(e) for e in results if e.untyped_storage().data_ptr() in own]
        return made

    return call


def _cuda_tensors(values: Any) -> list[torch.Tensor]:
    leaves = tree_leaves(values)
    return [each for each in leaves if isinstance(each, torch.Tensor) and each.is_cuda]


def _data_ptr(function: Callable[..., int]) -> Callable[..., int]:
    """Remember a tensor whose address is taken: a kernel may use it after the tensor is gone."""

    @functools.wraps(function)
    def data_ptr(self: torch.Tensor) -> int:
        if self.is_cuda:
            remember(self)
        return function(self)

    return data_ptr
