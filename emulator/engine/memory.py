"""Buffers of global memory, and the windows through which generic addresses see the rest.

A global address is a host address. Shared and local memory appear in the generic address space
at fixed windows far above any host address.
"""

from __future__ import annotations

import gc
import sys
import weakref
from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

SHARED_WINDOW = 1 << 60
LOCAL_WINDOW = 1 << 61
WINDOW_SHIFT = 60


@dataclass(frozen=True)
class Buffer:
    """A live range of host memory: [address, address + nbytes)."""

    name: str
    address: int
    nbytes: int
    writable: bool = True

    @property
    def end(self) -> int:
        return self.address + self.nbytes


class LiveTensors:
    """Torch's CPU tensors, found through the garbage collector and remembered weakly."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, str]] = {}

    def scan(self, generation: int) -> list[Buffer]:
        """Storages of live CPU tensors after a look at one generation of the garbage collector
        (0 is the youngest); empty if torch is not loaded."""
        if "torch" not in sys.modules:
            return []
        is_tensor = _TensorTypes()
        for candidate in gc.get_objects(generation):
            if is_tensor[type(candidate)]:
                self._remember(candidate)
        return self.known()

    def known(self) -> list[Buffer]:
        """Storages of the tensors seen so far that are still alive."""
        largest: dict[int, Buffer] = {}
        for key, (reference, name) in list(self._known.items()):
            tensor = reference()
            if tensor is None:
                del self._known[key]
                continue
            storage = tensor.untyped_storage()
            address, nbytes = storage.data_ptr(), storage.nbytes()
            held = largest.get(address)
            if address and nbytes and (held is None or held.nbytes < nbytes):
                largest[address] = Buffer(name, address, nbytes)
        return list(largest.values())

    def _remember(self, tensor: Any) -> None:
        try:
            if tensor.device.type != "cpu" or tensor.layout is not sys.modules["torch"].strided:
                return
            tensor.untyped_storage().data_ptr()
        except (RuntimeError, NotImplementedError, AttributeError, TypeError):
            return  # fake, functional and other tensors without storage
        shape = "x".join(map(str, tensor.shape)) or "scalar"
        name = f"the {shape} {str(tensor.dtype).removeprefix('torch.')} tensor"
        self._known[id(tensor)] = (weakref.ref(tensor), name)


class _TensorTypes(dict[type, bool]):
    """Whether a type is a tensor's; asked of the type, as isinstance would run foreign code."""

    def __missing__(self, kind: type) -> bool:
        self[kind] = issubclass(kind, sys.modules["torch"].Tensor)
        return self[kind]


LIVE_TENSORS = LiveTensors()


class GlobalMemory:
    """The buffers a launch may touch, sorted, and a flag for each of their 32-byte sectors.

    touched: bit 1 read, bit 2 written.
    """

    def __init__(self, buffers: list[Buffer], find_tensors: bool = True):
        self._explicit = buffers
        # Tensors that a launch needs and nobody has seen are mostly young.
        self._unseen = [0, 1, 2] if find_tensors else []
        self.touched = np.zeros(0, np.uint8)
        self.starts = self.ends = np.zeros(0, np.uint64)
        self.sector0 = np.zeros(0, np.int64)
        self.buffers: list[Buffer] = []
        self.addresses: list[int] = []
        known = LIVE_TENSORS.known() if find_tensors and "torch" in sys.modules else []
        self._lay_out(buffers + known)
        self.read_only = [b for b in buffers if not b.writable]

    def rescan(self) -> bool:
        """Look for tensors that were not known before; False once nothing is left to look at."""
        if not self._unseen:
            return False
        found = LIVE_TENSORS.scan(self._unseen.pop(0))
        before = {(b.address, b.nbytes): i for i, b in enumerate(self.buffers)}
        flags = {
            key: self.touched[self.sector0[i] : self.sector0[i] + _sectors(self.buffers[i])]
            for key, i in before.items()
        }
        self._lay_out(self._explicit + found)
        for i, buffer in enumerate(self.buffers):
            held = flags.get((buffer.address, buffer.nbytes))
            if held is not None:
                self.touched[self.sector0[i] : self.sector0[i] + held.size] = held
        return True

    def _lay_out(self, buffers: list[Buffer]) -> None:
        """Sort; of overlapping buffers keep those that start first and reach farthest."""
        self.buffers = []
        for buffer in sorted(buffers, key=lambda b: (b.address, -b.nbytes)):
            if buffer.nbytes == 0:
                continue
            if self.buffers and buffer.address < self.buffers[-1].end:
                last = self.buffers[-1]
                if buffer.end > last.end:
                    nbytes = buffer.end - last.address
                    self.buffers[-1] = Buffer(last.name, last.address, nbytes, last.writable)
                continue
            self.buffers.append(buffer)
        self.addresses = [b.address for b in self.buffers]
        self.starts = np.array([b.address for b in self.buffers], np.uint64)
        self.ends = np.array([b.end for b in self.buffers], np.uint64)
        counts = [_sectors(b) for b in self.buffers]
        self.sector0 = np.cumsum([0, *counts])[:-1].astype(np.int64)
        self.touched = np.zeros(sum(counts), np.uint8)

    def nearest(self, address: int) -> tuple[Buffer, int] | None:
        """The buffer that holds or lies nearest to an address, and the address's offset in it."""
        best: tuple[int, Buffer] | None = None
        i = bisect_right(self.addresses, address)
        for buffer in self.buffers[max(0, i - 1) : i + 1]:
            gap = max(buffer.address - address, address - buffer.end + 1, 0)
            if best is None or gap < best[0]:
                best = (gap, buffer)
        return None if best is None else (best[1], address - best[1].address)

    def describe(self, address: int) -> str:
        """An address in words: `byte 4096 of <tensor> (4096 bytes)`."""
        found = self.nearest(address)
        if found is None:
            return f"address {address:#x} (no tensor is alive)"
        buffer, offset = found
        if offset < 0:
            place = f"{-offset} bytes before"
        elif offset >= buffer.nbytes:
            place = f"{offset - buffer.nbytes} bytes past the end of"
        else:
            place = f"byte {offset} of"
        return f"address {address:#x}, {place} {buffer.name} ({buffer.nbytes} bytes)"


def _sectors(buffer: Buffer) -> int:
    return ((buffer.end + 31) >> 5) - (buffer.address >> 5)
