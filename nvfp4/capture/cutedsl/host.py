"""The CUDA runtime that compiled host code calls, as Python functions behind C callbacks.

CuTe DSL's host code reaches CUDA only through functions named `_cuda...` and `_cu...`. Each
gets a C callback here that ends in a method of `HostRuntime`. A Python exception cannot cross
compiled code: it is stored, the callback returns an error code, and the caller of the host code
raises the exception again with `raise_pending`.
"""

import ctypes
import itertools
import threading
from collections.abc import Callable

from nvfp4.capture.codes import Code, CudaError
from nvfp4.capture.kernel import (
    LARGE_CLUSTERS,
    Kernel,
    allow_dynamic_shared,
    blocks_per_multiprocessor,
    examined,
    find_kernel,
    kernel_attributes,
    parameters_at,
    refuse_clusters,
    refuse_too_much_shared,
)
from nvfp4.capture.session import Session
from nvfp4.records.launch import Dim3, Launch
from nvfp4.records.launch_errors import LaunchRefused, UnsupportedCall

LAUNCH_FAILURE = Code.LAUNCH_FAILURE
_LAUNCH_ATTRIBUTE_BYTES = 72
_CLUSTER_DIMENSION = 4  # cudaLaunchAttributeClusterDimension
_PROGRAMMATIC = 6  # cudaLaunchAttributeProgrammaticStreamSerialization
_MAX_DYNAMIC_SHARED = 8  # cudaFuncAttributeMaxDynamicSharedMemorySize, CU_FUNC_ATTRIBUTE_...


class HostRuntime(Session):
    """The session of CuTe DSL, and the state behind the callbacks: handles given out, and an
    exception on its way.
    """

    def __init__(self) -> None:
        super().__init__("CuTe DSL")
        self._pending = threading.local()
        self._handles = itertools.count(0x1000, 0x10)
        self._libraries: dict[int, tuple[str, ...]] = {}
        self._kernels: dict[int, Kernel] = {}
        self._held: list[object] = []

    def forget(self) -> None:
        """Discard the state of an earlier interception."""
        super().forget()
        self._pending = threading.local()  # no caller was left to raise the error of a late call

    def keep(self, error: BaseException) -> None:
        """Store an exception that cannot cross compiled code until `raise_pending`. Only the first
        one is kept, as it causes the others.
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
        """Keep an object that compiled code refers to alive until the process ends."""
        self._held.append(thing)

    # Handles

    def load_library(self, texts: tuple[str, ...]) -> int:
        """Return a handle for the PTX of one compiled function."""
        handle = next(self._handles)
        self._libraries[handle] = texts
        return handle

    def find_kernel(self, library: int, name: str) -> int:
        """Return a handle for the kernel `name` of a library."""
        kernel = find_kernel(self._libraries[library], name)
        if kernel is None:
            raise UnsupportedCall(
                f"the compiled module has no PTX of a kernel named {name}",
                hint="the PTX is kept of what is compiled after the interception was installed",
            )
        handle = next(self._handles)
        self._kernels[handle] = kernel
        return handle

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
        programmatic: bool = False,
    ) -> None:
        """Launch a kernel whose parameters `args` points at, one pointer each. programmatic: as of
        Launch."""
        kernel = self._kernels[handle]
        self._unless_refused(kernel, refuse_too_much_shared, shared_bytes)
        self._unless_refused(kernel, refuse_clusters, grid, cluster)
        raw = parameters_at(args, kernel.parameter_bytes)
        text, name = kernel.ptx, kernel.name
        self.hand_over(
            Launch(
                text,
                name,
                grid,
                block,
                raw,
                shared_bytes,
                cluster,
                self.memory,
                stream=stream,
                programmatic=programmatic,
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
        programmatic = False
        for i in range(count):
            entry = attributes + i * _LAUNCH_ATTRIBUTE_BYTES
            which = ctypes.c_uint32.from_address(entry).value
            if which == _CLUSTER_DIMENSION:
                x, y, z = (ctypes.c_uint32 * 3).from_address(entry + 8)
                cluster = (x or 1, y or 1, z or 1)
            elif which == _PROGRAMMATIC:
                programmatic = bool(ctypes.c_int32.from_address(entry + 8).value)
        x, y, z, *threads = dims
        block = threads[0], threads[1], threads[2]
        self.run(handle, (x, y, z), block, cluster, shared_bytes, args, stream, programmatic)

    def _unless_refused(self, kernel: Kernel, check: Callable[..., None], *values: object) -> None:
        """Check a kernel as CUDA does. Raises LaunchRefused."""
        try:
            with examined(kernel, self.examine):
                check(kernel, self.device, *values)
        except CudaError as error:
            raise LaunchRefused(error.message) from None

    # Attributes

    def set_attribute(self, handle: int, attribute: int, value: int) -> None:
        """Only the limits of dynamic shared memory and of clusters have an effect here."""
        if attribute == _MAX_DYNAMIC_SHARED:
            self._unless_refused(self._kernels[handle], allow_dynamic_shared, value)
        elif attribute == LARGE_CLUSTERS:
            self._kernels[handle].large_clusters = bool(value)

    def kernel_attribute(self, handle: int, attribute: int) -> int:
        """Return a CUfunction_attribute of a kernel, as far as it can be known without a device."""
        return kernel_attributes(self._kernels[handle], self.device).get(attribute, 0)

    def blocks_per_multiprocessor(self, handle: int, threads: int, shared_bytes: int) -> int:
        """Return how many blocks of a kernel fit one multiprocessor by threads and shared
        memory."""
        kernel = self._kernels[handle]
        return blocks_per_multiprocessor(kernel, self.device, threads, shared_bytes)


RUNTIME = HostRuntime()
