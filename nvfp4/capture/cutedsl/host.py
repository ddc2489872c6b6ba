"""The CUDA runtime that compiled host code calls, as Python functions behind C callbacks.

CuTe DSL's host code reaches CUDA only through functions named `_cuda...` and `_cu...`. Each
gets a C callback here that ends in a method of `HostRuntime`. A Python exception cannot cross
compiled code: it is kept, the callback returns an error code, and whoever called the host code
raises it again with `raise_pending`.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from nvfp4.capture.device import Device
from nvfp4.capture.signature import parameter_bytes, parameters_at
from nvfp4.records.launch import (
    Dim3,
    Examine,
    Launch,
    ListedMemory,
    Memory,
    Note,
    anything_goes,
)
from nvfp4.records.launch_errors import LaunchRefused, UnsupportedCall

LAUNCH_FAILURE = 719  # cudaErrorLaunchFailure
_LAUNCH_ATTRIBUTE_BYTES = 72
_CLUSTER_DIMENSION = 4  # cudaLaunchAttributeClusterDimension
_MAX_DYNAMIC_SHARED = 8  # cudaFuncAttributeMaxDynamicSharedMemorySize, CU_FUNC_ATTRIBUTE_...
_DEFAULT_SHARED_BYTES = 48 * 1024
_KERNEL_NUMBERS = {0: 1024, 1: 0, 3: 0, 4: 32, 5: 100, 6: 90}


@dataclass
class _Kernel:
    """A kernel handle: the module's PTX and the sizes of the parameters in bytes."""

    ptx: str
    name: str
    parameter_bytes: tuple[int, ...]
    dynamic_shared_limit: int = _DEFAULT_SHARED_BYTES


class HostRuntime:
    """State behind the callbacks: handles given out, and an exception on its way.

    Compiled code keeps its handles for as long as the process lives, so one runtime serves all
    emulations of a process, one after the other: `begin` and `end` say which is on.
    """

    def __init__(self) -> None:
        self._device: Device | None = None
        self._launch: Callable[[Launch], None] | None = None
        self._memory: Memory = ListedMemory()
        self._examine: Examine = anything_goes
        self._pending = threading.local()
        self._handles = itertools.count(0x1000, 0x10)
        self._libraries: dict[int, tuple[str, ...]] = {}
        self._kernels: dict[int, _Kernel] = {}
        self._notes: list[Note] = []
        self._trials = 0
        self._held: list[object] = []

    def begin(
        self,
        device: Device,
        launch: Callable[[Launch], None],
        memory: Memory,
        examine: Examine = anything_goes,
    ) -> None:
        """Send launches on `memory` to `launch` until `end`. Raises RuntimeError if one is on."""
        if self._launch is not None:
            raise RuntimeError("CuTe DSL launches are intercepted already")
        self._device, self._launch, self._memory = device, launch, memory
        self._examine = examine
        self._pending = threading.local()  # nobody was there to raise what a late call left
        self._notes.clear()

    def end(self) -> None:
        """Refuse launches from now on."""
        self._device = self._launch = None

    @property
    def device(self) -> Device:
        """The pretended device. Raises UnsupportedCall when no emulation is on."""
        if self._device is None:
            raise UnsupportedCall("this function was compiled for an emulation that has ended")
        return self._device

    def keep(self, error: BaseException) -> None:
        """Hold an exception that cannot cross compiled code until `raise_pending`: the first, which
        is the cause of others.
        """
        if getattr(self._pending, "error", None) is None:
            self._pending.error = error

    def raise_pending(self) -> None:
        """Raise the exception that a callback of this thread left behind, if any."""
        error = getattr(self._pending, "error", None)
        self._pending.error = None
        if error is not None:
            raise error

    def hold(self, thing: object) -> None:
        """Keep what compiled code refers to for as long as the process lives."""
        self._held.append(thing)

    # What host code does beside its launches

    @contextmanager
    def trying(self) -> Iterator[None]:
        """Launches of the with block are trials."""
        self._trials += 1
        try:
            yield
        finally:
            self._trials -= 1

    def note(self, note: Note) -> None:
        """Say something with the next launch that is no trial, once."""
        if note not in self._notes:
            self._notes.append(note)

    # Handles

    def load_library(self, texts: tuple[str, ...]) -> int:
        """A handle for the PTX of one compiled function."""
        handle = next(self._handles)
        self._libraries[handle] = texts
        return handle

    def find_kernel(self, library: int, name: str) -> int:
        """A handle for the kernel `name` of a library."""
        for text in self._libraries[library]:
            sizes = parameter_bytes(text, name)
            if sizes is not None:
                handle = next(self._handles)
                self._kernels[handle] = _Kernel(text, name, sizes)
                return handle
        raise UnsupportedCall(
            f"the compiled module has no PTX of a kernel named {name}",
            hint="the PTX is kept of what is compiled after the interception was installed",
        )

    # Launches

    def run(
        self,
        handle: int,
        grid: Dim3,
        block: Dim3,
        cluster: Dim3,
        shared_bytes: int,
        args: int,
        stream: int,
    ) -> None:
        """Launch a kernel whose parameters `args` points at, one pointer each."""
        kernel = self._kernels[handle]
        if shared_bytes > kernel.dynamic_shared_limit:
            self._examine(kernel.ptx, kernel.name)
            raise LaunchRefused(
                f"{kernel.name} is launched with {shared_bytes} bytes of dynamic shared memory, "
                f"but {kernel.dynamic_shared_limit} are allowed"
            )
        if self._launch is None:
            raise UnsupportedCall("this function was compiled for an emulation that has ended")
        raw = parameters_at(args, kernel.parameter_bytes)
        trial, notes = self._trials > 0, tuple(self._notes)
        if not trial:
            self._notes.clear()
        self._launch(
            Launch(
                kernel.ptx,
                kernel.name,
                grid,
                block,
                raw,
                shared_bytes,
                cluster,
                self._memory,
                () if trial else notes,
                trial,
                stream=stream,
            )
        )

    def run_configured(self, config: int, handle: int, args: int) -> None:
        """Launch by a cudaLaunchConfig_t at address `config`."""
        dims = (ctypes.c_uint32 * 6).from_address(config)
        shared_bytes = ctypes.c_uint64.from_address(config + 24).value
        stream = ctypes.c_uint64.from_address(config + 32).value
        attributes = ctypes.c_void_p.from_address(config + 40).value or 0
        count = ctypes.c_uint32.from_address(config + 48).value
        cluster: Dim3 = (1, 1, 1)
        for i in range(count):
            entry = attributes + i * _LAUNCH_ATTRIBUTE_BYTES
            if ctypes.c_uint32.from_address(entry).value == _CLUSTER_DIMENSION:
                x, y, z = (ctypes.c_uint32 * 3).from_address(entry + 8)
                cluster = (x or 1, y or 1, z or 1)
        grid, block = tuple(dims[:3]), tuple(dims[3:])
        self.run(handle, grid, block, cluster, shared_bytes, args, stream)  # type: ignore[arg-type]

    # Attributes

    def set_attribute(self, handle: int, attribute: int, value: int) -> None:
        """Only the limit of dynamic shared memory has an effect here."""
        if attribute != _MAX_DYNAMIC_SHARED:
            return
        kernel = self._kernels[handle]
        if value > self.device.shared_bytes_per_block:
            self._examine(kernel.ptx, kernel.name)
            raise LaunchRefused(
                f"{value} bytes of dynamic shared memory; a block of {self.device.arch} has at "
                f"most {self.device.shared_bytes_per_block}"
            )
        kernel.dynamic_shared_limit = value

    def kernel_attribute(self, handle: int, attribute: int) -> int:
        """A CUfunction_attribute of a kernel, as far as it can be known without a device."""
        if attribute == _MAX_DYNAMIC_SHARED:
            return self._kernels[handle].dynamic_shared_limit
        return _KERNEL_NUMBERS.get(attribute, 0)

    def device_attribute(self, attribute: int) -> int:
        """A cudaDeviceAttr of the pretended device."""
        if attribute not in self.device.attributes:
            raise UnsupportedCall(
                f"host code asks for device attribute {attribute}, which is not known"
            )
        return self.device.attributes[attribute]

    def blocks_per_multiprocessor(self, threads: int, shared_bytes: int) -> int:
        """How many blocks fit one multiprocessor by threads and shared memory."""
        by_threads = self.device.threads_per_multiprocessor // max(threads, 1)
        by_shared = self.device.shared_bytes_per_multiprocessor // (shared_bytes + 1024)
        return min(by_threads, by_shared, 32)


RUNTIME = HostRuntime()
