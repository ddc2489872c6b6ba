"""The CUDA runtime that CuTe DSL's host code calls, as Python functions behind C callbacks.

That code reaches CUDA only through functions named `_cuda...` and `_cu...`. Each gets a C callback
that ends in the runtime of `capture.cuda`, with handles in place of addresses. A Python exception
cannot cross compiled code: it is stored, the callback returns an error code, and the caller of the
host code raises the exception again with `raise_pending`.
"""

import ctypes
import os
import threading

from nvfp4.capture.codes import Code
from nvfp4.capture.cuda.calls import grid_barrier
from nvfp4.capture.cuda.runtime import CudaRuntime, Module
from nvfp4.capture.device import Device
from nvfp4.capture.kernel import NO_CLUSTER, Kernel, refuse_clusters, refuse_too_much_shared
from nvfp4.records.launch import Dim3
from nvfp4.records.launch_errors import UnsupportedCall

_LAUNCH_ATTRIBUTE_BYTES = 72
_CLUSTER_DIMENSION = 4  # cudaLaunchAttributeClusterDimension
_COOPERATIVE = 2  # cudaLaunchAttributeCooperative
_PROGRAMMATIC = 6  # cudaLaunchAttributeProgrammaticStreamSerialization


class HostRuntime(CudaRuntime):
    """The session of CuTe DSL. An exception waits for the caller of the host code in this thread;
    later calls do not fail because of it. held: what compiled code refers to, kept alive until the
    process ends."""

    def __init__(self) -> None:
        super().__init__("CuTe DSL")
        self._pending = threading.local()
        self.held: list[object] = []

    def forget(self) -> None:
        """Discard the state of an earlier interception."""
        super().forget()
        self._pending = threading.local()  # no caller was left to raise the error of a late call

    def keep(self, error: BaseException) -> Code:
        """Store an exception that cannot cross compiled code until `raise_pending`. Only the first
        one is kept, as it causes the others.
        """
        if getattr(self._pending, "error", None) is None:
            self._pending.error = error
        return Code.LAUNCH_FAILURE

    def raise_pending(self, failure: BaseException | None = None) -> None:
        """Raise the exception that a callback of this thread left behind, if any."""
        error = getattr(self._pending, "error", None)
        self._pending.error = None
        if error is not None:
            raise error

    def load_library(self, texts: tuple[str, ...]) -> int:
        """Return a handle for the PTX of one compiled function, which on a GPU would be compiled
        for what the environment says."""
        return self.add_module(Module(texts, {}, (os.environ.get("CUTE_DSL_ARCH", ""),)))

    def find_kernel(self, library: int, name: str) -> int:
        """Return a handle for the kernel `name` of a library."""
        handle = self.new_handle()
        self.register_function(library, handle, name)
        if handle not in self._kernels:
            message = f"the compiled module has no PTX of a kernel named {name}"
            hint = "the PTX is kept of what is compiled after the interception was installed"
            raise UnsupportedCall(message, hint=hint)
        return handle

    @staticmethod
    def refuse_launch(
        kernel: Kernel, device: Device, grid: Dim3, block: Dim3, cluster: Dim3, shared_bytes: int
    ) -> None:
        """Raise CudaError for shared memory and clusters that are not possible.

        The executor refuses invalid blocks and grids, with the line of the launch.
        """
        refuse_too_much_shared(kernel, device, shared_bytes)
        refuse_clusters(kernel, device, grid, cluster)

    def run_configured(self, config: int, handle: int, args: int) -> None:
        """Launch by a cudaLaunchConfig_t at address `config`."""
        x, y, z, a, b, c = (ctypes.c_uint32 * 6).from_address(config)
        shared_bytes, stream = (ctypes.c_uint64 * 2).from_address(config + 24)
        attributes = ctypes.c_void_p.from_address(config + 40).value or 0
        size = _LAUNCH_ATTRIBUTE_BYTES * ctypes.c_uint32.from_address(config + 48).value
        asked = {
            ctypes.c_uint32.from_address(entry).value: (ctypes.c_uint32 * 3).from_address(entry + 8)
            for entry in range(attributes, attributes + size, _LAUNCH_ATTRIBUTE_BYTES)
        }
        cluster = asked.get(_CLUSTER_DIMENSION)
        i, j, k = [max(1, size) for size in cluster] if cluster else NO_CLUSTER
        early, cooperative = (bool(asked.get(w, [0])[0]) for w in (_PROGRAMMATIC, _COOPERATIVE))
        shape = (x, y, z), (a, b, c), (i, j, k)
        registers = grid_barrier(self, handle, *shape, shared_bytes, stream) if cooperative else {}
        self.launch(handle, *shape, args, shared_bytes, stream, registers, early)


RUNTIME = HostRuntime()
