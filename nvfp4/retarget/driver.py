"""The CUDA driver: the functions that loading PTX and launching kernels need."""

import ctypes
import struct
import threading
from collections.abc import Sequence
from functools import cache
from typing import Any

from nvfp4.records.launch import Dim3
from nvfp4.retarget.errors import DriverError

LIBRARY = "libcuda.so.1"

_ERROR_LOG_OPTIONS = (5, 6)  # CU_JIT_ERROR_LOG_BUFFER and its size
_LOG_BYTES = 8192
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_DEFAULT_SHARED_BYTES = 48 * 1024
_ALIGNMENT = 64  # of a parameter: the driver reads tensor maps at multiples of it

# The newest PTX of each release of the driver that changed it; each takes all earlier ones.
_NEWEST_PTX = {
    11000: (7, 0), 11010: (7, 1), 11020: (7, 2), 11030: (7, 3), 11040: (7, 4), 11050: (7, 5),
    11060: (7, 6), 11070: (7, 7), 11080: (7, 8), 12000: (8, 0), 12010: (8, 1), 12020: (8, 2),
    12030: (8, 3), 12040: (8, 4), 12050: (8, 5), 12070: (8, 6), 12080: (8, 7), 12090: (8, 8),
    13000: (9, 0), 13010: (9, 1),
}  # fmt: skip


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint32),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint32),
    )


class Driver:
    """The functions of the library. A call that fails raises DriverError."""

    def __init__(self, library: Any) -> None:
        """library: libcuda.so.1, loaded."""
        self.library = library

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function by its name."""
        code = getattr(self.library, name)(*arguments)
        if code:
            raise self.error(name, code)

    def error(self, name: str, code: int) -> DriverError:
        """Return the driver's text for an error code."""
        text = ctypes.c_char_p()
        self.library.cuGetErrorString(code, ctypes.byref(text))
        return DriverError(f"{name}: {(text.value or b'unknown error').decode()} ({code})")

    def newest_ptx(self) -> tuple[int, int]:
        """Return the latest version of PTX that the driver accepts."""
        version = ctypes.c_int()
        self.call("cuDriverGetVersion", ctypes.byref(version))
        return max(ptx for least, ptx in _NEWEST_PTX.items() if least <= version.value)

    def use_context(self) -> None:
        """Make the primary context of device 0 current in this thread, unless one is."""
        context, device = ctypes.c_void_p(), ctypes.c_int()
        self.call("cuInit", 0)
        self.call("cuCtxGetCurrent", ctypes.byref(context))
        if not context.value:
            self.call("cuDeviceGet", ctypes.byref(device), 0)
            self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
            self.call("cuCtxSetCurrent", context)

    def load(self, ptx: str) -> "Module":
        """Load PTX, compiled for the device of the current context; an error contains the
        compiler's message."""
        self.use_context()
        module, log = ctypes.c_void_p(), ctypes.create_string_buffer(_LOG_BYTES)
        options = (ctypes.c_int * 2)(*_ERROR_LOG_OPTIONS)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), _LOG_BYTES)
        text = ptx.encode() + b"\0"
        try:
            self.call("cuModuleLoadDataEx", ctypes.byref(module), text, 2, options, values)
        except DriverError as error:
            said = [line.strip() for line in log.value.decode("utf-8", "replace").splitlines()]
            first = next((line for line in said if line), "no reason given")
            raise DriverError(f"the driver takes no such PTX: {first}", hint=str(error)) from None
        return Module(self, module)


class Module:
    """Loaded PTX. It stays loaded for as long as the process lives, as kernels may be under way."""

    def __init__(self, driver: Driver, handle: ctypes.c_void_p) -> None:
        self._driver = driver
        self._handle = handle

    def kernel(self, name: str, parameter_bytes: Sequence[int]) -> "Kernel":
        """Return a kernel whose parameters have these sizes."""
        function = ctypes.c_void_p()
        given = ctypes.byref(function), self._handle, name.encode()
        self._driver.call("cuModuleGetFunction", *given)
        return Kernel(self._driver, function, parameter_bytes)


class Kernel:
    """A kernel that is prepared for launches, so that each costs little."""

    def __init__(
        self, driver: Driver, function: ctypes.c_void_p, parameter_bytes: Sequence[int]
    ) -> None:
        self._driver = driver
        self._function = function
        self._lock = threading.Lock()
        # Each parameter at a multiple of 64, in one buffer that one call fills.
        layout, offsets, at = "<", [], 0
        for size in parameter_bytes:
            offsets.append(at)
            step = -(-size // _ALIGNMENT) * _ALIGNMENT
            layout += f"{size}s{step - size}x"
            at += step
        self._pack_into = struct.Struct(layout).pack_into
        self._buffer = ctypes.create_string_buffer(at + _ALIGNMENT)
        self._start = -ctypes.addressof(self._buffer) % _ALIGNMENT
        base = ctypes.addressof(self._buffer) + self._start
        self._pointers = (ctypes.c_void_p * max(len(offsets), 1))(*(base + o for o in offsets))
        self._config = _Config()
        self._config_address = ctypes.byref(self._config)
        self._launch_ex = driver.library.cuLaunchKernelEx
        self._shape: tuple[Dim3, Dim3, int] | None = None
        self._allowed_shared_bytes = _DEFAULT_SHARED_BYTES

    def launch(
        self, grid: Dim3, block: Dim3, shared_bytes: int, parameters: Sequence[bytes], stream: int
    ) -> None:
        """Queue the kernel on a stream."""
        with self._lock:
            shape = grid, block, shared_bytes
            if shape != self._shape:
                config = self._config
                config.grid, config.block, config.shared_bytes = shape
                if shared_bytes > self._allowed_shared_bytes:
                    given = self._function, _MAX_DYNAMIC_SHARED, shared_bytes
                    self._driver.call("cuFuncSetAttribute", *given)
                    self._allowed_shared_bytes = shared_bytes
                self._shape = shape
            self._config.stream = stream
            self._pack_into(self._buffer, self._start, *parameters)
            # The driver has copied the parameters when it returns.
            code = self._launch_ex(self._config_address, self._function, self._pointers, None)
        if code:
            raise self._driver.error("cuLaunchKernelEx", code)


@cache
def installed_driver() -> Driver:
    """Return the driver of this machine. Raises DriverError where there is none."""
    try:
        return Driver(ctypes.CDLL(LIBRARY))
    except OSError:
        raise DriverError(f"there is no {LIBRARY}", hint="install the NVIDIA driver") from None
