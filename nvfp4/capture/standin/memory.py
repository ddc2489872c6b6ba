"""CUDA tensors whose memory is host memory, and CPU tensors on the same memory.

DLPack is how libraries hand tensors to torch: a capsule says where the memory is and on which
device. A capsule of a CPU tensor that names the CUDA device makes torch build a CUDA tensor on host
memory: a plain `torch.Tensor`, CUDA by every means that Python and C++ have to ask. The capsule
keeps the memory's owner alive. Only the bytes of the storage go through it, since DLPack does not
know every dtype and changes strides of dimensions of size 1.
"""

import ctypes
import math
from pathlib import Path
from typing import Any

import torch

from nvfp4.capture import host_access
from nvfp4.records.launch_errors import NeedsGpu

_DLPACK_CPU, _DLPACK_CUDA = 1, 2
_ALIGNMENT = 512
_DEVICE_TYPE_OFFSET = ctypes.sizeof(ctypes.c_void_p)  # DLTensor begins: void* data; DLDevice device

_CUDA_TYPE, _META_TYPE, _KNOWN_TYPES = 1, 14, 15  # c10::DeviceType
_GUARD_REGISTRY = "_ZN3c104impl26device_guard_impl_registryE"

CPU_KEY = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)

_as_strided = torch.ops.aten.as_strided.default
_view_dtype = torch.ops.aten.view.dtype
_READ_AS = (torch.Tensor.is_conj, torch.conj), (torch.Tensor.is_neg, torch._neg_view)
"""Whether a view is conjugated or negated when it is read, and the view that is not."""

_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def operator(name: str) -> Any:
    """torch.ops.aten.<base>.<overload> for "base.overload" or "base"."""
    base, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), overload or "default")


def strided_view(
    tensor: torch.Tensor, size: Any, stride: Any, offset: int | None = None
) -> torch.Tensor:
    """Do `tensor.as_strided` below autograd. The CPU's kernel moves no data and needs no device."""
    return _as_strided.redispatch(CPU_KEY, tensor, size, stride, offset)


watching: list[set[int]] = []
"""Sets that get the addresses of memory that becomes a CUDA tensor's."""


def as_cuda(tensor: torch.Tensor) -> torch.Tensor:
    """Return a CUDA tensor on the memory of a strided CPU tensor: same dtype, sizes and strides."""
    return _relabelled(tensor, _DLPACK_CUDA)


def as_cpu(tensor: torch.Tensor) -> torch.Tensor:
    """Return a CPU tensor on the memory of a strided CUDA tensor: same dtype, sizes and strides."""
    return _relabelled(tensor, _DLPACK_CPU)


def _relabelled(tensor: torch.Tensor, device_type: int) -> torch.Tensor:
    if tensor.layout is not torch.strided:
        raise NeedsGpu(f"{tensor.layout} tensors are not supported without a GPU")
    for is_set, toggled in _READ_AS:
        if is_set(tensor):
            return toggled(_relabelled(toggled(tensor), device_type))
    elements = tensor.untyped_storage().nbytes() // tensor.element_size()
    flat = strided_view(tensor, [elements], [1], 0)
    return _labelled(_view_dtype.redispatch(CPU_KEY, flat, torch.uint8), tensor, device_type)


def _labelled(memory: torch.Tensor, tensor: torch.Tensor, device_type: int) -> torch.Tensor:
    """Like a tensor, on the memory of bytes and on a device."""
    for made in watching if device_type == _DLPACK_CUDA else ():
        made.add(memory.data_ptr())
    capsule = torch._C._to_dlpack(memory)
    address = _capsule_pointer(capsule, b"dltensor")
    ctypes.c_int32.from_address(address + _DEVICE_TYPE_OFFSET).value = device_type
    typed = _view_dtype.redispatch(CPU_KEY, torch._C._from_dlpack(capsule), tensor.dtype)
    return strided_view(typed, tensor.size(), tensor.stride(), tensor.storage_offset())


def aligned(tensor: torch.Tensor) -> torch.Tensor:
    """Return an uninitialised CUDA tensor with the alignment of torch's allocator."""
    nbytes = tensor.untyped_storage().nbytes()
    if not nbytes or tensor.data_ptr() % _ALIGNMENT == 0:
        return tensor
    memory = torch.empty(nbytes + _ALIGNMENT, dtype=torch.uint8)
    skip = -memory.data_ptr() % _ALIGNMENT
    return _labelled(memory[skip : skip + nbytes], tensor, _DLPACK_CUDA)


_most_runs = 1 << 16


def byte_runs(tensor: torch.Tensor) -> list[tuple[int, int]]:
    """Return address and size of each range of bytes that a strided tensor covers.

    For a tensor of very many pieces it is one range, which includes the gaps.
    """
    run = tensor.element_size()
    pieces: list[tuple[int, int]] = []
    extents = zip(tensor.stride(), tensor.shape, strict=True)
    for stride, size in sorted((s * tensor.element_size(), n) for s, n in extents if s and n != 1):
        if size == 0:
            return []
        if stride <= run and not pieces:
            run += stride * (size - 1)
        else:
            pieces.append((stride, size))
    if tensor.numel() == 0:
        return []
    if math.prod(size for _, size in pieces) > _most_runs:
        return [(tensor.data_ptr(), run + sum(stride * (size - 1) for stride, size in pieces))]
    starts = [tensor.data_ptr()]
    for stride, size in pieces:
        starts = [start + stride * index for start in starts for index in range(size)]
    return [(start, run) for start in starts]


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return the tensors among an operator's arguments or results, those in lists included."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for each in value for tensor in tensors_in(each)]
    return []


def pin(tensor: torch.Tensor) -> torch.Tensor:
    """Mark a CPU tensor's memory as pinned. Raises RuntimeError for another tensor."""
    if not tensor.is_cpu:
        raise RuntimeError("only dense CPU tensors can be pinned")
    tensor.untyped_storage().pinned = True
    return tensor


def is_pinned(tensor: torch.Tensor, device: Any = None) -> bool:
    """Return whether `pin` has had a tensor's memory."""
    return getattr(tensor.untyped_storage(), "pinned", False)


def tell_written(value: Any) -> None:
    """Tell the owner of device memory what an operator has set: a tensor, or a list of tensors."""
    for tensor in tensors_in(value):
        for address, nbytes in byte_runs(tensor) if tensor.layout is torch.strided else ():
            host_access.wrote(address, nbytes)


class DeviceGuard:
    """Gives torch a device guard for CUDA that does nothing: that of the meta device.

    C++ code sets the current device around many functions, indexing among them, and fails where
    none is registered for the tensor's device. This entry of torch's registry is put back by
    `remove`. It answers that the current device is the meta device, so `functions` gives every
    device an index before C++ can ask for it.
    """

    def __init__(self) -> None:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
        self._registry = (ctypes.c_void_p * _KNOWN_TYPES).in_dll(library, _GUARD_REGISTRY)
        self._before = self._registry[_CUDA_TYPE]
        self._registry[_CUDA_TYPE] = self._registry[_META_TYPE]

    def remove(self) -> None:
        """Put back what was registered."""
        self._registry[_CUDA_TYPE] = self._before
