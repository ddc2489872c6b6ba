"""The memory of torch's CPU tensors, found while a kernel runs that was given only addresses."""

import ctypes
import gc
import sys
import weakref
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from nvfp4.records.gpu_messages import noise
from nvfp4.records.launch import Buffer, View

_REMEMBERED = 64
"""Number of freed tensors that are remembered for messages."""


class LiveTensors:
    """Torch's CPU tensors, found through the garbage collector and remembered weakly."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Buffer]] = {}
        self._freed: deque[Buffer] = deque(maxlen=_REMEMBERED)

    def freed(self) -> list[Buffer]:
        """Storages of tensors seen before that are gone, the latest first."""
        self.known()
        return list(reversed(self._freed))

    def search(self) -> Iterator[list[Buffer]]:
        """Yield the storages of live CPU tensors, each time after one more generation of the
        garbage collector was searched; nothing if torch is not loaded.
        """
        if "torch" not in sys.modules:
            return
        is_tensor = _TensorTypes()
        for generation in (0, 1, 2):  # new tensors are mostly in young generations
            for candidate in gc.get_objects(generation):
                if is_tensor[type(candidate)]:
                    self.remember(candidate)
            yield self.known()

    def known(self) -> list[Buffer]:
        """Storages of the tensors seen so far that are still alive."""
        largest: dict[int, Buffer] = {}
        for key, (reference, seen) in list(self._known.items()):
            tensor = reference()
            if tensor is None:
                del self._known[key]
                self._freed.append(seen)
                continue
            storage = tensor.untyped_storage()
            address, nbytes = storage.data_ptr(), storage.nbytes()
            held = largest.get(address)
            if address and nbytes and (held is None or held.nbytes < nbytes):
                largest[address] = replace(seen, address=address, nbytes=nbytes)
        return list(largest.values())

    def remember(self, tensor: Any) -> None:
        """Remember a tensor now, as it may be freed before a search finds it."""
        try:
            if tensor.device.type != kernel_memory() or tensor.layout is not _torch().strided:
                return
            storage = tensor.untyped_storage()
            address, nbytes = storage.data_ptr(), storage.nbytes()
            width = tensor.element_size()
            strides = tuple(each * width for each in tensor.stride())
            dtype = str(tensor.dtype).removeprefix("torch.")
            view = View(tuple(tensor.shape), strides, tensor.storage_offset() * width, dtype=dtype)
        except (RuntimeError, NotImplementedError, AttributeError, TypeError):
            return  # fake, functional and other tensors without storage
        shape = "x".join(map(str, tensor.shape)) or "scalar"
        name = f"the {shape} {dtype} tensor"
        seen = self._known.get(id(tensor))
        if seen is not None and seen[0]() is None:  # another object had this id
            self._freed.append(seen[1])
        self._known[id(tensor)] = (weakref.ref(tensor), Buffer(name, address, nbytes, view=view))


def kernel_memory() -> str:
    """Return the device whose tensors kernels may touch: CUDA where it stands in for a GPU in host
    memory, else the CPU."""
    standin = sys.modules.get("nvfp4.capture.standin")
    return "cuda" if standin is not None and standin.is_installed() else "cpu"


def _torch() -> Any:
    return sys.modules["torch"]


class _TensorTypes(dict[type, bool]):
    """Tell whether a type is a tensor's. The type is asked, as isinstance would run foreign
    code."""

    def __missing__(self, kind: type) -> bool:
        self[kind] = issubclass(kind, _torch().Tensor)
        return self[kind]


_live_tensors = LiveTensors()
remember = _live_tensors.remember
"""Remember a tensor, so that messages can name its memory after it is freed."""


class ProcessMemory:
    """Registered buffers, and the CPU tensors of this process.

    Registered buffers take precedence. A tensor's storage that overlaps one, for instance because
    it covers a whole mapping, is left out, as it would hide the end of the buffer.
    """

    def __init__(self) -> None:
        self._registered: dict[int, Buffer] = {}

    def register(self, buffer: Buffer) -> None:
        """Register memory other than torch tensors that kernels may touch."""
        self._registered[buffer.address] = buffer

    def clear(self) -> None:
        """Discard the registered buffers."""
        self._registered.clear()

    def freed(self) -> list[Buffer]:
        """Tensors seen by earlier searches that are gone, the latest first."""
        return self._outside_registered(_live_tensors.freed())

    def known(self) -> list[Buffer]:
        """Registered buffers, and the tensors seen by earlier searches."""
        return self._beside_registered(_live_tensors.known())

    def search(self) -> Iterator[list[Buffer]]:
        """Search for more tensors; yields the registered buffers and all tensors seen so far."""
        for found in _live_tensors.search():
            yield self._beside_registered(found)

    def _beside_registered(self, found: list[Buffer]) -> list[Buffer]:
        return [*self._registered.values(), *self._outside_registered(found)]

    def _outside_registered(self, found: list[Buffer]) -> list[Buffer]:
        return [each for each in found if not any(map(each.meets, self._registered.values()))]


_most_bytes = 256 << 20
"""Limit on the bytes of an allocation that are filled with noise; the rest takes no memory until
used."""


def put_noise(address: int, size: int) -> None:
    """Fill uninitialised memory with noise, so that code which expects zeros fails."""
    filled = min(size, _most_bytes)
    for start in range(0, filled, len(noise())):
        ctypes.memmove(address + start, noise(), min(len(noise()), filled - start))
