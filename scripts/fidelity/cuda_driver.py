"""The CUDA driver through ctypes: enough to load PTX, copy arrays and launch kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from nvfp4.records.tensormap import TensorMap

Array = np.ndarray[Any, Any]
_MAX_DYNAMIC_SHARED = 8


def _pointer(array: Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


class Driver:
    """One device and its primary context. Raises RuntimeError for every call that fails."""

    def __init__(self, ordinal: int = 0) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        self._call("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuDeviceGet", ctypes.byref(device), ordinal)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)
        name = ctypes.create_string_buffer(100)
        self._call("cuDeviceGetName", name, 100, device)
        self.name = name.value.decode()

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self._library.cuGetErrorString(code, ctypes.byref(text))
            raise RuntimeError(f"{name}: {(text.value or b'?').decode()} ({code})")

    @contextmanager
    def module(self, ptx: str) -> Iterator[ctypes.c_void_p]:
        """PTX, compiled, for the length of a with block; an error has the compiler's log."""
        module, log = ctypes.c_void_p(), ctypes.create_string_buffer(8192)
        # CU_JIT_ERROR_LOG_BUFFER and its size.
        options = (ctypes.c_int * 2)(5, 6)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), 8192)
        text = ptx.encode() + b"\0"
        try:
            self._call("cuModuleLoadDataEx", ctypes.byref(module), text, 2, options, values)
        except RuntimeError as error:
            raise RuntimeError(f"{error}: {log.value.decode()}") from None
        try:
            yield module
        finally:
            self._call("cuModuleUnload", module)

    def function(
        self, module: ctypes.c_void_p, name: str, shared_bytes: int = 0
    ) -> ctypes.c_void_p:
        """A kernel of a module, allowed so much dynamic shared memory."""
        function = ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        if shared_bytes > 48 * 1024:
            self._call("cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED, shared_bytes)
        return function

    @contextmanager
    def arrays(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Iterator[list[int]]:
        """Device addresses of copies of all arrays, for the length of a with block; at its end
        the outputs are copied back.
        """
        addresses = []
        try:
            for array in (*inputs, *outputs):
                address, size = ctypes.c_uint64(), ctypes.c_size_t(max(array.nbytes, 16))
                self._call("cuMemAlloc_v2", ctypes.byref(address), size)
                addresses.append(address.value)
            for i, array in enumerate(map(np.ascontiguousarray, (*inputs, *outputs))):
                self._copy("cuMemcpyHtoD_v2", ctypes.c_uint64(addresses[i]), _pointer(array), array)
            yield addresses
            for i, array in enumerate(outputs, len(inputs)):
                self._copy("cuMemcpyDtoH_v2", _pointer(array), ctypes.c_uint64(addresses[i]), array)
        finally:
            for at in addresses:
                self._call("cuMemFree_v2", ctypes.c_uint64(at))

    def _copy(self, name: str, target: Any, source: Any, array: Array) -> None:
        self._call(name, target, source, ctypes.c_size_t(array.nbytes))

    def encode_tensor_map(self, tensor_map: TensorMap) -> bytes:
        """The 128 bytes that the driver encodes a tensor map as."""
        memory = ctypes.create_string_buffer(192)
        target = -(-ctypes.addressof(memory) // 64) * 64
        rank = tensor_map.rank
        self._call(
            "cuTensorMapEncodeTiled",
            ctypes.c_void_p(target),
            int(tensor_map.data_type),
            rank,
            ctypes.c_void_p(tensor_map.address),
            (ctypes.c_uint64 * rank)(*tensor_map.shape),
            (ctypes.c_uint64 * max(rank - 1, 1))(*tensor_map.strides_bytes),
            (ctypes.c_uint32 * rank)(*tensor_map.box),
            (ctypes.c_uint32 * rank)(*tensor_map.element_strides),
            int(tensor_map.interleave),
            int(tensor_map.swizzle),
            tensor_map.l2_promotion,
            int(tensor_map.fill),
        )
        return ctypes.string_at(target, 128)

    def launch(
        self,
        function: ctypes.c_void_p,
        grid: Sequence[int],
        block: Sequence[int],
        parameters: Sequence[bytes],
        shared_bytes: int = 0,
    ) -> None:
        """Launches a kernel and waits for it."""
        # The driver reads tensor maps at multiples of 64.
        buffers = [ctypes.create_string_buffer(len(raw) + 64) for raw in parameters]
        pointers = (ctypes.c_void_p * len(parameters))()
        for i, (buffer, raw) in enumerate(zip(buffers, parameters, strict=True)):
            aligned = -(-ctypes.addressof(buffer) // 64) * 64
            ctypes.memmove(aligned, raw, len(raw))
            pointers[i] = aligned
        self._call("cuLaunchKernel", function, *grid, *block, shared_bytes, None, pointers, None)
        self._call("cuCtxSynchronize")
